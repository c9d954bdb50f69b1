"""Rows of files (JSON, CSV and Parquet, local or on a filesystem that Beam knows), and of SQL databases."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from rmqio.addresses import shown_url
from rmqio.enrich.sql_source import engine_of
from rmqio.errors import LocalError
from rmqio.security import password_from
from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import SqlError, nearest
from rmqio.sql.formats.base import RowFailure, reason_of
from rmqio.sql.formats.delimited import CsvOptions
from rmqio.sql.secrets import masked_message, masked_value

CHUNK: Final = 512
"""Rows that are decoded together."""


class Line(NamedTuple):
    """A row of a file, not yet decoded. `body`: bytes of a line, or a dict of values."""

    body: Any
    path: str
    number: int
    """Counts from 1: lines of text, rows of Parquet."""
    version: str = ""
    """The version of the file: another one when the file has changed."""

    @property
    def place(self) -> str:
        """For messages."""
        return masked_message(f"{self.path}, row {self.number}")

    # A row can stand where a message is expected that has a place in a topic.

    @property
    def topic(self) -> str:
        return self.path

    @property
    def broker(self) -> str:
        return self.version

    @property
    def queue_id(self) -> int:
        return 0

    @property
    def queue_offset(self) -> int:
        return self.number


def paths_of(path: str) -> list[str]:
    """Returns the files of a path: itself, those of a folder that are not hidden, or those that match a pattern.

    Raises `SqlError` if there are none, or they cannot be listed.
    """
    from apache_beam.io.filesystems import FileSystems

    is_folder = path.endswith("/") or os.path.isdir(path)
    try:
        found = _matches(f"{path.rstrip('/')}/*") if is_folder else _matches(path)
        if not found and not is_folder and "://" in path:
            found, is_folder = _matches(f"{path}/*"), True
    except Exception as error:  # a filesystem of Beam can raise anything
        raise SqlError(f"{path} cannot be listed: {error}") from error
    if is_folder:
        found = [each for each in found if FileSystems.split(each)[1][:1] not in (".", "_")]
        found = [each for each in found if not os.path.isdir(each)]
        if not found and os.path.isdir(path):
            return []
    if not found:
        raise SqlError(f"there is no file {path}")
    return sorted(found)


def _matches(pattern: str) -> list[str]:
    from apache_beam.io.filesystems import FileSystems

    return [each.path for each in FileSystems.match([pattern])[0].metadata_list]


def version_of(path: str) -> str:
    """Returns a text that differs for a file that has changed: its size and time."""
    from apache_beam.io.filesystems import FileSystems

    for each in FileSystems.match([path])[0].metadata_list:
        if each.path == path:
            return f"{each.size_in_bytes}-{each.last_updated_in_seconds}"
    return ""


def rows_of_file(table: Table, path: str, names: Sequence[str]) -> Iterator[list[Line]]:
    """Yields the rows of a file of the table, some hundred at a time. `names`: the columns that are needed."""
    yield from _parquet(path, names) if table.options.format == "parquet" else _texts(table, path)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    from apache_beam.io.filesystems import FileSystems

    try:
        file = FileSystems.open(path)
    except Exception as error:  # see paths_of
        raise SqlError(f"{path} cannot be read: {error}") from error
    try:
        yield file
    finally:
        file.close()


# ---- text -----------------------------------------------------------------------------------------------------------


def _texts(table: Table, path: str) -> Iterator[list[Line]]:
    options = table.options
    with _opened(path) as file:
        lines: Iterable[tuple[int, bytes]] = enumerate(_lines(file, path), 1)
        if options.format == "csv":
            lines = _records(lines, CsvOptions.of(FormatOptions(options.of_format)))
        chunk: list[Line] = []
        if options.of_connector.skips_first_line:  # comments before it are no line: so does the parser of Flink
            lines = itertools.islice(lines, 1, None)
        is_row = _row_test(table)
        for number, line in lines:
            body = line.removesuffix(b"\r")
            if is_row(body):
                chunk.append(Line(body, path, number))
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk


def _row_test(table: Table) -> Callable[[bytes], bool]:
    """Returns what tells a row from a blank line. Blanks can be the one value of a row, or the delimiter of CSV."""
    options = table.options
    if options.format in ("csv", "raw") and sum(each.is_physical for each in table.columns) == 1:
        return bool
    if options.format != "csv":
        return lambda line: bool(line.strip())
    delimiter = CsvOptions.of(FormatOptions(options.of_format)).delimiter.encode()
    return lambda line: bool(line.strip()) or delimiter in line


def _lines(file: Any, path: str) -> Iterator[bytes]:
    """The lines of a file, without their line feeds."""
    rest = codecs.BOM_UTF8
    is_first = True
    while True:
        try:
            data = file.read(1 << 20)
        except Exception as error:  # also of a decompressor
            raise SqlError(f"{path} cannot be read: {error}") from error
        if is_first:
            rest = data.removeprefix(codecs.BOM_UTF8)
            is_first = False
        else:
            rest += data
        *whole, rest = rest.split(b"\n") if data else (rest, b"")
        yield from whole
        if not data:
            return


def _records(lines: Iterable[tuple[int, bytes]], options: CsvOptions) -> Iterator[tuple[int, bytes]]:
    """The records of CSV: a field in quotes can have line breaks. Comments are left out."""
    quote = options.quote.encode()
    whole, rest = _closed(options) if quote else (None, None)
    begun: list[bytes] = []
    start = 0
    for number, line in lines:
        if begun:
            begun.append(line)
            if quote in line and rest is not None and rest.match(line):
                yield start, b"\n".join(begun)
                begun = []
        elif options.has_comments and line.startswith(b"#"):
            continue
        elif quote and quote in line and whole is not None and not whole.match(line):
            start, begun = number, [line]
        else:
            yield number, line
    if begun:
        yield start, b"\n".join(begun)  # its decoder says that the quote is missing


def _closed(options: CsvOptions) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Patterns of a line that does not end within quotes: one that begins a record, and one that begins in quotes.

    As in the decoder, a quote is text where a field does not begin with it. No part can give back what another would
    take, so that they take linear time. Possessive repeats say so, but miss matches before Python 3.11.5.
    """
    quote, escape, delimiter = (re.escape(each.encode()) for each in (options.quote, options.escape, options.delimiter))
    escaped = rb"|%s(?:.|\Z)" % escape if escape else b""
    special = b"|".join(filter(None, (quote, escape)))
    closing = rb"%s(?!%s)(?:(?!%s).)*" % (quote, quote, delimiter)
    quoted = rb"(?:(?!%s).%s|%s%s)*%s" % (special, escaped, quote, quote, closing)
    bare = rb"(?!%s)(?:(?!%s).%s)*" % (quote, b"|".join(filter(None, (delimiter, escape))), escaped)
    further = rb"(?:%s(?:%s%s|%s))*\Z" % (delimiter, quote, quoted, bare)
    whole = rb"(?:%s%s|%s)%s" % (quote, quoted, bare, further)
    return re.compile(whole, re.DOTALL), re.compile(quoted + further, re.DOTALL)


# ---- Parquet --------------------------------------------------------------------------------------------------------


def _parquet(path: str, names: Sequence[str]) -> Iterator[list[Line]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SqlError("files of Parquet need pyarrow: pip install pyarrow") from error
    with _opened(path) as file:
        try:
            source = pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise SqlError(f"{path} is not a Parquet file: {error}") from error
        known = source.schema_arrow.names
        for each in names:
            if each not in known:
                raise SqlError(f"{path} has no column {each}{nearest(each, known)}")
        number = 0
        if not names:  # only the rows count
            for start in range(0, source.metadata.num_rows, CHUNK):
                stop = min(start + CHUNK, source.metadata.num_rows)
                yield [Line({}, path, each + 1) for each in range(start, stop)]
            return
        try:
            for batch in source.iter_batches(CHUNK, columns=list(names)):
                rows = _rows(pa, batch)
                yield [Line(row, path, number + i) for i, row in enumerate(rows, 1)]
                number += len(rows)
        except pa.ArrowException as error:
            raise SqlError(f"{path} cannot be read after row {number}: {error}") from error


class _PartOfRow(dict[str, Any]):
    """A row without the values that Python does not have: who asks for one of those is told why."""

    def __init__(self, found: dict[str, Any], reasons: dict[str, str]) -> None:
        super().__init__(found)
        self._reasons = reasons

    def __missing__(self, name: str) -> Any:
        raise RowFailure(self._reasons[name], name)


def _rows(pa: Any, batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch. A file can have what Python has not: the year 10000, bytes as text, 24:00."""
    try:
        _require_times(pa, batch.columns)
        rows: list[dict[str, Any]] = _microseconds(pa, batch).to_pylist()
    except _NO_VALUES:
        return [_row(pa, batch.slice(i, 1)) for i in range(batch.num_rows)]
    return rows


_NO_VALUES: Final = (ArithmeticError, ValueError, LookupError)
"""Errors of pyarrow for values; LookupError: a zone that is unknown."""


def _row(pa: Any, batch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    reasons = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            _require_times(pa, [column])
            found |= _microseconds(pa, pa.RecordBatch.from_arrays([column], names=[name])).to_pylist()[0]
        except UnicodeDecodeError as error:
            reasons[name] = f"it is not UTF-8 text: {error.reason} at byte {error.start}"
        except OverflowError:
            reasons[name] = "it has a date or time that is not in the years 1 to 9999"
        except _NO_VALUES as error:
            reasons[name] = reason_of(error)
    return _PartOfRow(found, reasons) if reasons else found


def _require_times(pa: Any, columns: Iterable[Any]) -> None:
    """Raises ValueError for a time that is not in a day: pyarrow takes that of another day."""
    import pyarrow.compute as pc

    for column in columns:
        kind = column.type
        if pa.types.is_map(kind):  # its keys and items are those of the whole batch, also in a slice of it
            first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
            _require_times(pa, [each.slice(first, end - first) for each in (column.keys, column.items)])
        elif pa.types.is_struct(kind):
            _require_times(pa, column.flatten())
        elif pa.types.is_nested(kind):
            _require_times(pa, [column.flatten()])
        elif pa.types.is_time(kind):
            found = pc.min_max(column.view(pa.int32() if kind.bit_width == 32 else pa.int64())).as_py()
            if found["min"] is not None and not 0 <= found["min"] <= found["max"] < _DAY[kind.unit]:
                raise ValueError("it has a time that is not in a day")


_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _microseconds(pa: Any, batch: Any) -> Any:
    """The batch with times of nanoseconds cut to microseconds: Python's own have no more."""
    columns = []
    for column in batch.columns:
        kind = column.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        elif pa.types.is_time64(kind) and kind.unit == "ns":
            column = column.cast(pa.time64("us"), safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# Rows of an SQL database, by SQLAlchemy.


def rows_of_database(options: ConnectorOptions, names: Sequence[str]) -> Iterator[list[Line]]:
    """Yields the rows of a table, some hundred at a time. `names`: the columns that are read.

    Raises `SqlError` if the database cannot be reached, or has no such table or columns.
    """
    shown = place_of(options)
    try:
        password = options.password or password_from(options.password_env, options.password_file)
    except LocalError as error:
        raise SqlError(f"{shown} cannot be read: {error}") from error
    engine = engine_of(options.url, options.username, password, shown)
    import sqlalchemy as sa

    schema, _, name = options.table_name.rpartition(".")
    table = sa.table(name, *(sa.column(each) for each in names), schema=schema or None)
    columns: list[Any] = [table.c[each] for each in names] or [sa.literal(1).label("one")]
    query = sa.select(*columns).select_from(table)
    number = 0
    try:
        with contextlib.closing(engine.connect()) as connection:
            connection = connection.execution_options(stream_results=True, yield_per=CHUNK)
            with contextlib.closing(connection.execute(query)) as result:
                for rows in result.partitions(CHUNK):
                    given = (dict(zip(names, row, strict=False)) for row in rows)
                    yield [Line(row, shown, number + i) for i, row in enumerate(given, 1)]
                    number += len(rows)
    except sa.exc.SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())  # the drivers' have several lines
        raise SqlError(f"{shown} cannot be read: {reason}") from error
    finally:
        engine.dispose()


def place_of(options: ConnectorOptions) -> str:
    """Returns the table and its database for a message, without credentials and parameters."""
    return f"table {masked_value(options.table_name)} of {shown_url(options.url)}"
