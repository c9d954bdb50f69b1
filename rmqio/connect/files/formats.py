"""The formats of files: rows to bytes and back. A row that does not fit is left out and named."""

from __future__ import annotations

import csv
import datetime as dt
import importlib.util
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from rmqio.connect.files import parquet
from rmqio.connect.rows import is_beyond_float, to_json, to_row
from rmqio.connect.sink import RowRefused
from rmqio.errors import LocalError, SerdeError, reason
from rmqio.hints import did_you_mean

# Values that fastavro would change: times without a zone, and numbers that no float can hold.

_EXACT: Final = 1 << 53
"""Up to here, floats hold every integer."""


def in_utc(value: Any) -> Any:
    """Returns a row whose times are in UTC. Those without a zone are: fastavro takes them in the zone of the machine.

    A field of local times gets the time in UTC, as a column of a database without a zone does.
    """
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return {name: in_utc(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(in_utc, value))
    return value


def changed_number(row: Any, encoded: bytes, parsed: Any) -> Any:
    """Returns a number that the encoded row does not have any more, since it has become a float; None: there is none.

    A union takes the first type that fits, so the schema alone does not say it.
    """
    large = set(_large(row))
    if not large:
        return None
    import fastavro

    kept = set(_large(fastavro.schemaless_reader(io.BytesIO(encoded), parsed, None)))
    return next(iter(sorted(large - kept)), None)


def _large(value: Any) -> Iterator[Any]:
    if is_beyond_float(value):
        yield value
    elif isinstance(value, int):
        if abs(value) > _EXACT and float(value) != value:
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _large(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _large(each)


# File systems that need more than Beam itself.

_NEEDS: Final = {
    "s3": ("boto3", "aws"),
    "gs": ("google.cloud.storage", "gcp"),
    "hdfs": ("hdfs", "hadoop"),
    "azfs": ("azure.storage.blob", "azure"),
}
"""By scheme: a package that is missing without the extra of Beam, and the extra."""


def require_file_system(path: str) -> None:
    """Raise `LocalError` if a package is missing here that the file system of a path needs; it says what to install."""
    scheme, is_url, _ = path.partition("://")
    package, extra = _NEEDS.get(scheme, ("", ""))
    if is_url and package and not _is_there(package):
        raise LocalError(f"{scheme}:// needs {package}: pip install 'apache-beam[{extra}]'")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


SUFFIXES: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet", ".avro": "avro",
}  # fmt: skip
FORMATS: Final = ("jsonl", "csv", "parquet", "avro")

Refused = list[tuple[Any, Exception]]

csv.field_size_limit(2**31 - 1)  # of the process; by default, a value that the writer takes is not read again


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format and its options.

    Args:
      name: "jsonl", "csv", "parquet" or "avro".
      columns: of CSV and Parquet, in order; None: those of the rows of the file.
      schema: of Avro, a dict; of Parquet, a `pyarrow.Schema`; None for Parquet: what the rows are.
    """

    name: str
    columns: tuple[str, ...] | None = None
    schema: Any = None

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise LocalError(f"format is {self.name!r}; it must be one of {', '.join(FORMATS)}" + did_you_mean(
                str(self.name), FORMATS))  # fmt: skip
        if self.columns is not None and self.name not in ("csv", "parquet"):
            raise LocalError(f"columns= works only with csv and parquet, not with {self.name}")
        if self.schema is not None and self.name not in ("avro", "parquet"):
            raise LocalError(f"schema= works only with avro and parquet, not with {self.name}")
        package = {"avro": "fastavro", "parquet": "pyarrow"}.get(self.name)
        if package is not None:
            _require(package, self.name)
        if self.name == "avro" and self.schema is not None:
            object.__setattr__(self, "schema", _avro_schema(self.schema))
        if self.name == "parquet" and self.schema is not None:
            parquet.check_schema(self.schema, self.columns)

    @property
    def suffix(self) -> str:
        """The end of a file's name."""
        return f".{self.name}"

    def write(self, rows: Iterable[dict[str, Any]], file: Any) -> Refused:
        """Writes rows to an open file. `rows` can be iterated twice. Returns the refused ones with their errors."""
        return {"jsonl": _write_lines, "csv": _write_csv, "parquet": _write_parquet, "avro": _write_avro}[self.name](
            self, rows, file
        )

    def read(self, file: Any) -> Iterator[dict[str, Any]]:
        """Yields the rows of an open file. Raises `SerdeError`, which names the line if there is one."""
        readers: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
            "jsonl": _read_lines, "csv": _read_csv, "parquet": parquet.read_rows, "avro": _read_avro,
        }  # fmt: skip
        return readers[self.name](file)


def format_of(path: str, given: str | None = None) -> str:
    """Returns the format of a path. Raises `LocalError` if neither its suffix nor `given` says it."""
    if given is not None:
        return given
    name = path.removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    suffix = f".{name.rpartition('.')[2]}"
    if suffix not in SUFFIXES:
        raise LocalError(f"the name {path} does not say the format: give format=, one of {', '.join(FORMATS)}")
    return SUFFIXES[suffix]


def _write_lines(_: FileFormat, rows: Iterable[dict[str, Any]], file: Any) -> Refused:
    refused: Refused = []
    for row in rows:
        try:
            file.write(f"{to_json(row)}\n".encode())
        except (SerdeError, UnicodeEncodeError) as error:
            refused.append((row, error))
    return refused


def _names_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return list(found)


def _write_csv(kind: FileFormat, rows: Iterable[dict[str, Any]], file: Any) -> Refused:
    names = list(kind.columns or _names_of(rows))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(names)
    refused: Refused = []
    for row in rows:
        try:
            _require_known(row, names)
            line = [_cell(name, row.get(name)) for name in names]
            "".join(line).encode()
            writer.writerow(line)
        except (SerdeError, UnicodeEncodeError, RowRefused) as error:
            refused.append((row, error))
        if text.tell() > 1 << 20:
            file.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()
    file.write(text.getvalue().encode())
    return refused


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        text = to_json(value)
    except SerdeError as error:
        raise RowRefused(f"column {name}: {value!r:.100} has no text in CSV: {error.__cause__}") from error
    return json.loads(text) if text.startswith('"') else text  # a date is text


def _require_known(row: dict[str, Any], names: Sequence[str]) -> None:
    for name in row:
        if name not in names:
            raise RowRefused(f"the file has no column {name}{did_you_mean(name, names)}")


def _write_parquet(kind: FileFormat, rows: Iterable[dict[str, Any]], file: Any) -> Refused:
    names = kind.columns or (kind.schema.names if kind.schema is not None else _names_of(rows))
    return parquet.write_rows(rows, list(names), kind.schema, file)


def _write_avro(kind: FileFormat, rows: Iterable[dict[str, Any]], file: Any) -> Refused:
    import fastavro
    from fastavro.validation import validate

    if kind.schema is None:
        raise LocalError("Avro files need a schema: give schema=")
    refused: Refused = []
    parsed = fastavro.parse_schema(kind.schema)

    def good() -> Iterator[dict[str, Any]]:
        for row in rows:
            try:
                made = in_utc(row)
                validate(made, kind.schema, raise_errors=True, strict=True)
                # Alone first: what cannot be encoded, such as half a surrogate pair, would end the file.
                encoded = io.BytesIO()
                fastavro.schemaless_writer(encoded, parsed, made)
                if (number := changed_number(made, encoded.getvalue(), parsed)) is not None:
                    raise ValueError(
                        f"{number} would become {float(number):.0f}, since the type of its field is a float"
                    )
            except Exception as error:  # noqa: BLE001  # fastavro raises many, by type and value
                refused.append((row, RowRefused(f"it does not fit: {' '.join(str(error).split())[:500]}")))
            else:
                yield made

    fastavro.writer(file, kind.schema, good(), codec="deflate")
    return refused


def _read_lines(file: Any) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                row = to_row(line)
            except SerdeError as error:
                raise SerdeError(f"line {number}: {error}") from error
            yield row


class _CountedLines(io.BufferedIOBase):
    """The bytes of a file. `before`: the line feeds before the chunk that was read last."""

    def __init__(self, file: Any) -> None:
        self._file, self._chunk, self.before = file, b"", 0

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1, /) -> bytes:
        self.before += self._chunk.count(b"\n")
        self._chunk = self._file.read(size)
        return self._chunk


def _read_csv(file: Any) -> Iterator[dict[str, Any]]:
    counted = _CountedLines(file)
    text = io.TextIOWrapper(cast("Any", counted), "utf-8-sig", newline="")  # for which it needs no name
    reader = csv.reader(text, strict=True)
    try:
        names = next(reader, [])
        for place, name in enumerate(names):
            if name in names[:place]:
                raise SerdeError(f"line 1: two columns have the name {name}")
        for values in reader:
            if not values:
                continue
            if len(values) != len(names):
                raise SerdeError(f"line {reader.line_num}: {len(values)} values for {len(names)} columns")
            yield {name: value or None for name, value in zip(names, values, strict=True)}
    except csv.Error as error:
        raise SerdeError(f"line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:  # of a whole chunk, whose lines the reader has not seen
        line = counted.before + error.object.count(b"\n", 0, error.start) + 1
        raise SerdeError(f"line {line}: not UTF-8 text: {error.reason}") from error
    finally:
        text.detach()  # the file is closed by whoever opened it


def _read_avro(file: Any) -> Iterator[dict[str, Any]]:
    import fastavro

    try:
        for row in fastavro.reader(file):
            if not isinstance(row, dict):
                raise SerdeError(f"the file contains {type(row).__name__} instead of records")
            yield row
    except (ValueError, EOFError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise SerdeError(f"it is not an Avro file, or it is truncated: {error}") from error


def _avro_schema(schema: Any) -> Any:
    import fastavro

    if isinstance(schema, (str, Path)):
        try:
            schema = json.loads(Path(schema).read_text("utf-8-sig"))
        except (OSError, ValueError) as error:
            raise LocalError(f"the schema {schema} cannot be read: {reason(error)}") from error
    try:
        fastavro.parse_schema(schema)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise LocalError(f"the schema is not an Avro schema: {error}") from error
    return schema


def _require(package: str, name: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        extra = {"fastavro": "avro", "pyarrow": "enrich"}[package]
        raise LocalError(f"files of {name} need {package}: pip install 'rmqio[{extra}]'") from error
