"""The sources of a table's rows: files, Arrow and topics, and the interface that they share."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from rmqio.errors import LocalError
from rmqio.hints import meant_or_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rmqio.interfaces import ClientFactory
    from rmqio.security import Security


# The interface of a source, and what sources share.


class Source(Protocol):
    """Rows as Arrow's batches. Picklable and hashable."""

    @property
    def shown(self) -> str:
        """Its name in messages, without credentials."""
        ...

    def identity(self) -> tuple[object, ...]:
        """Returns what distinguishes it from other sources."""
        ...

    def version(self) -> str | None:
        """Returns a text that changes with the rows; None: only reading them tells. Raises `LocalError`."""
        ...

    def rows(self) -> int | None:
        """Returns how many rows there are, if that is known before they are read."""
        ...

    def size(self) -> int:
        """Returns about how many bytes they have; 0: unknown."""
        ...

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows. `columns`: those that are needed; None: all. Raises `LocalError`."""
        ...


class Live(Protocol):
    """A table that keeps itself up to date."""

    def start(self) -> None:
        """Loads it. Raises `RmqioError`."""
        ...

    def stop(self) -> None:
        """Ends its threads. Idempotent."""
        ...

    def now(self) -> tuple[Any, float]:
        """Returns its rows, and when they were the source's (Unix s). Raises `RmqioError` if that has failed."""
        ...


@runtime_checkable
class LiveSource(Protocol):
    """A source that goes on: a `Source` whose rows are never read as a whole."""

    def live(self, wanted: Any) -> Live:
        """Returns the table of it. `wanted`: the `Wanted` with this source."""
        ...


def arrow_type(name: str, column: str) -> Any:
    """Returns the type of Arrow with a name, such as "int64" or "decimal128(10, 2)". Raises `LocalError`."""
    import re

    import pyarrow as pa

    text = name.strip().lower()
    found = re.fullmatch(r"decimal(?:128)?\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", text)
    if found:
        return pa.decimal128(int(found[1]), int(found[2]))
    found = re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:,\s*(?:tz=)?([^\]]+))?\]", name.strip())
    if found:
        return pa.timestamp(found[1], found[2])
    simple = {"text": "string", "bytes": "binary", "integer": "int64", "boolean": "bool", "date": "date32"}
    try:
        return pa.type_for_alias(simple.get(text, text))
    except ValueError:
        from rmqio.hints import meant_or_known

        known = ["string", "binary", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                 "float", "double", "date32", "timestamp[us]", "decimal128(10, 2)"]  # fmt: skip
        raise LocalError(
            f"the type of {column} is {name!r}, which is not one of Arrow's{meant_or_known(text, known)}"
        ) from None


# A table of Arrow, which travels with the pipeline.


@dataclass(frozen=True, slots=True, repr=False)
class ArrowTable:
    """See `Source`. `data`: the rows as Arrow's stream."""

    data: bytes
    count: int

    @classmethod
    def of(cls, table: pa.Table) -> ArrowTable:
        """Returns the source of a table."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return cls(sink.getvalue().to_pybytes(), table.num_rows)

    def __repr__(self) -> str:
        return f"ArrowTable({self.count:,} rows)"

    @property
    def shown(self) -> str:
        return f"from_arrow ({self.count:,} rows)"

    def identity(self) -> tuple[object, ...]:
        return "arrow", self.version()

    def version(self) -> str | None:
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()

    def rows(self) -> int | None:
        return self.count

    def size(self) -> int:
        return len(self.data)

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.ipc.open_stream(self.data) as reader:
            yield pa.RecordBatch.from_arrays([pa.array([], each.type) for each in reader.schema], schema=reader.schema)
            yield from reader


# A compacted topic, described. `rmqio.enrich.live` reads it.


@dataclass(frozen=True, slots=True)
class Topic:
    """See `Source`. It is never read as a whole: `LiveTable` keeps it up to date."""

    topic: str
    types: tuple[tuple[str, str], ...]
    deserializer: Any
    on_bad_row: str
    factory: ClientFactory
    place: str
    queues: int | None = None

    @classmethod
    def of(
        cls,
        topic: str,
        name_server: str | Sequence[str] | None,
        types: Mapping[str, str],
        deserializer: Any,
        on_bad_row: str,
        security: Security | None,
        factory: ClientFactory | None,
        queues: int | None = None,
    ) -> Topic:
        """See `Table.from_topic`."""
        if on_bad_row not in ("error", "skip"):
            raise LocalError(f"on_bad_row is {on_bad_row!r}; it must be error or skip")
        if queues is not None and (isinstance(queues, bool) or not isinstance(queues, int) or queues < 1):
            raise LocalError(f"queues is {queues!r}; it must be the number of the topic's queues, or None")
        for name, kind in types.items():
            arrow_type(kind, name)
        if factory is None:
            from rmqio.client.factory import RemotingClientFactory
            from rmqio.options import options_of_cluster

            factory = RemotingClientFactory(options_of_cluster(name_server, security))
            place = repr(name_server) if name_server is not None else repr(os.environ.get("NAMESRV_ADDR"))
        else:
            place = _identity_of(factory)
        return cls(topic, tuple(sorted(types.items())), deserializer, on_bad_row, factory, place, queues)

    @property
    def shown(self) -> str:
        return f"topic {self.topic}"

    def identity(self) -> tuple[object, ...]:
        decoder = None if self.deserializer is None else _identity_of(self.deserializer)
        return "topic", self.topic, self.place, self.types, decoder

    def version(self) -> str | None:
        return None

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 0

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        raise LocalError(f"{self.shown} has no end, so it cannot be read as a whole")


def _identity_of(given: Any) -> str:
    """A text that is the same for the same function or object in all processes, and not for another one."""
    home = given if hasattr(given, "__qualname__") else type(given)
    code = getattr(given, "__code__", None)
    try:
        if code is None:
            content = pickle.dumps(given)
        else:  # without the constants whose text has an address
            constants = [each for each in code.co_consts if isinstance(each, (str, bytes, int, float))]
            content = repr((code.co_code, code.co_names, constants)).encode()
    except Exception:  # noqa: BLE001  a user's object can raise anything
        content = b""
    return f"{home.__module__}.{home.__qualname__}/{hashlib.sha256(content).hexdigest()[:16]}"


_ROWS: Final = 1 << 16
_HEAD: Final = 1 << 16
"""Bytes of a CSV file in which its first line ends."""


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    size: int
    changed: float


def found_files(paths: Sequence[str]) -> list[_Found]:
    """Returns the files of paths, folders and patterns, each in the order of their names. Raises `LocalError`.

    Files of folders are left out if their names begin with a dot or an underscore.
    """
    found: list[_Found] = []
    for path in paths:
        try:
            of_path = _remote(path) if "://" in path else _local(path)
        except OSError as error:
            raise LocalError(f"{path} cannot be listed: {error}") from error
        if not of_path:
            raise LocalError(f"there is no file {path}")
        found += of_path
    return found


def _local(path: str) -> list[_Found]:
    if os.path.isdir(path):
        names = [name for name in os.listdir(path) if name[:1] not in (".", "_")]
        paths = [os.path.join(path, name) for name in names]
    else:
        paths = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    states = [(each, os.stat(each)) for each in sorted(paths) if os.path.isfile(each)]
    return [_Found(each, state.st_size, state.st_mtime) for each, state in states]


def _remote(path: str) -> list[_Found]:
    from apache_beam.io.filesystems import FileSystems

    try:
        pattern = f"{path}*" if path.endswith("/") else path
        listed = FileSystems.match([pattern])[0].metadata_list
        if not listed:
            listed = FileSystems.match([f"{path}/*"])[0].metadata_list
    except Exception as error:  # a filesystem of Beam can raise anything
        raise LocalError(f"{path} cannot be listed: {error}") from error
    kept = [each for each in listed if each.path.rsplit("/", 1)[-1][:1] not in (".", "_")]
    return sorted(
        (_Found(each.path, each.size_in_bytes, each.last_updated_in_seconds) for each in kept),
        key=lambda each: each.path,
    )


@contextlib.contextmanager
def _opened(path: str, *, decompressed: bool = False) -> Iterator[Any]:
    """Opens a file of a filesystem of Beam, and decompresses it by its name; of a local one, gives its path."""
    if "://" not in path:
        yield path
        return
    from apache_beam.io.filesystems import CompressionTypes, FileSystems

    try:
        kind = CompressionTypes.AUTO if decompressed else CompressionTypes.UNCOMPRESSED
        file = FileSystems.open(path, compression_type=kind)
    except Exception as error:  # see _remote
        raise LocalError(f"{path} cannot be read: {error}") from error
    try:
        yield file
    finally:
        file.close()


def _version(paths: Sequence[str]) -> str:
    return repr([(each.path, each.size, each.changed) for each in found_files(paths)])


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """See `Source`."""

    paths: tuple[str, ...]

    @property
    def shown(self) -> str:
        return ", ".join(self.paths)

    def identity(self) -> tuple[object, ...]:
        return "parquet", tuple(map(_absolute, self.paths))

    def version(self) -> str | None:
        return _version(self.paths)

    def rows(self) -> int | None:
        import pyarrow.parquet as pq

        count = 0
        for each in found_files(self.paths):
            if "://" in each.path:
                return None
            try:
                count += pq.read_metadata(each.path).num_rows
            except (OSError, ValueError):  # reading it says why
                return None
        return count

    def size(self) -> int:
        return 2 * sum(each.size for each in found_files(self.paths))

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for each in found_files(self.paths):
            with _opened(each.path) as opened:
                try:
                    file = pq.ParquetFile(opened, memory_map=False, pre_buffer=False)
                    names = file.schema_arrow.names
                    for name in columns or ():
                        if name not in names:
                            raise LocalError(f"{each.path} has no column {name}{meant_or_known(name, names)}")
                    wanted = None if columns is None else list(columns)
                    schema = (
                        file.schema_arrow if wanted is None else pa.schema([file.schema_arrow.field(n) for n in wanted])
                    )
                    yield pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
                    # No threads of Arrow: a worker of Spark is a fork, and all workers of a machine can build at once.
                    yield from file.iter_batches(_ROWS, columns=wanted, use_threads=False)
                except (pa.ArrowException, OSError) as error:
                    raise LocalError(f"{each.path} cannot be read as Parquet: {error}") from error


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """See `Source`."""

    paths: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    delimiter: str
    quote: str
    names: tuple[str, ...] | None
    null: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or len(self.quote) > 1:
            raise LocalError("delimiter and quote are one character each")

    @property
    def shown(self) -> str:
        return ", ".join(self.paths)

    def identity(self) -> tuple[object, ...]:
        return "csv", tuple(map(_absolute, self.paths)), self.types, self.delimiter, self.quote, self.names, self.null

    def version(self) -> str | None:
        return _version(self.paths)

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 2 * sum(each.size for each in found_files(self.paths))

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import csv

        for each in found_files(self.paths):
            with _opened(each.path, decompressed=True) as opened:
                try:
                    names, has_rows = self._begun(each.path)
                    given = {name: arrow_type(kind, name) for name, kind in self.types}
                    for name in (*given, *(columns or ())):
                        if name not in names:
                            raise LocalError(f"{each.path} has no column {name}{meant_or_known(name, names)}")
                    kinds = {name: given.get(name, pa.string()) for name in names}
                    wanted = names if columns is None else list(columns)
                    schema = pa.schema([(name, kinds[name]) for name in wanted])
                    yield pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
                    if not has_rows:
                        continue
                    reader = csv.open_csv(
                        opened,
                        csv.ReadOptions(column_names=self.names, use_threads=False, block_size=1 << 22),
                        csv.ParseOptions(
                            delimiter=self.delimiter,
                            quote_char=self.quote or False,
                            newlines_in_values=bool(self.quote),
                        ),
                        csv.ConvertOptions(
                            column_types=kinds,
                            include_columns=wanted,
                            null_values=list(self.null),
                            strings_can_be_null=True,
                            quoted_strings_can_be_null=False,
                        ),
                    )
                    with reader:
                        yield from reader
                except (pa.ArrowException, OSError) as error:
                    raise LocalError(f"{each.path} cannot be read as CSV: {error}") from error

    def _begun(self, path: str) -> tuple[list[str], bool]:
        """The names of the columns, and whether there are rows."""
        import csv
        import io

        import pyarrow as pa

        with _opened(path, decompressed=True) as opened:
            if isinstance(opened, str):
                opened = pa.input_stream(opened, compression="detect")
            data = opened.read(_HEAD)
        text = data.decode("utf-8-sig", "replace")
        quoting: Any = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=self.delimiter, quotechar=self.quote or None, quoting=quoting
        )
        try:
            names = list(self.names) if self.names is not None else next(reader, [])
            has_rows = len(data) == _HEAD or any(reader)
        except csv.Error as error:
            raise LocalError(f"{path} cannot be read as CSV: {error}") from error
        if not names:
            raise LocalError(f"{path} is empty: it has no line with the names of its columns")
        return names, has_rows


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)
