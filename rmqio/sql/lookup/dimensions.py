"""The dimension tables of this process: those of `rmqio.enrich`, loaded and looked up with the semantics of SQL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqio.enrich import refresh
from rmqio.enrich.definition import Table
from rmqio.enrich.sources import Live
from rmqio.enrich.store import Wanted, folder_of_jobs
from rmqio.enrich.table import native
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError, counted
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.compile.description import Fragment, FromTable, ToRows
from rmqio.sql.compile.emitter import is_pure
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.compile.look_ups import Dimension, Row, key_maker, packed_key
from rmqio.sql.errors import SqlError
from rmqio.sql.expressions import Expr
from rmqio.sql.lookup import sources
from rmqio.sql.lookup.sources import Line
from rmqio.sql.rows import pack, unpacker

if TYPE_CHECKING:
    import pyarrow as pa


# Rows of files and databases as a source of `rmqio.enrich`: a key and a row, both as bytes.
#
# So the types of SQL need no counterpart in Arrow, and rows are those that travel between the steps of a pipeline.

KEY: Final = "key"
ROW: Final = "row"
_BATCH: Final = 16_384
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DimensionRows:
    """See `Source`."""

    dimension: Dimension

    @property
    def shown(self) -> str:
        return self.dimension.table.name

    def identity(self) -> tuple[object, ...]:
        return "sql dimension", self.dimension.identity()

    def version(self) -> str | None:
        """See `Source.version`. Rows of files stay the same as long as the files do, unless they depend on the time."""
        options = self.dimension.table.options
        steps = self.dimension.steps
        expressions: list[Expr] = [e for each in steps for e in (each.condition, *each.projections) if e is not None]
        is_computed = any(each.expression is not None for each in self.dimension.columns)
        if options.connector != FILES or is_computed or not all(map(is_pure, expressions)):
            return None
        return repr([(path, sources.version_of(path)) for path in sources.paths_of(options.of_connector.path)])

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 0

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`. Raises `SqlError` for the first bad row, unless the table skips them."""
        import pyarrow as pa

        decode = _decoder(self.dimension)
        keys: list[bytes] = []
        rows: list[bytes] = []

        def made() -> pa.RecordBatch:
            arrays = [pa.array(keys, pa.binary()), pa.array(rows, pa.binary())]
            return pa.RecordBatch.from_arrays(arrays, names=[KEY, ROW])

        for lines in _chunks(self.dimension):
            for key, row in decode(lines):
                keys.append(key)
                rows.append(row)
            if len(keys) >= _BATCH:
                yield made()
                keys, rows = [], []
        yield made()


def _decoder(dimension: Dimension) -> Callable[[Sequence[Line]], Iterator[tuple[bytes, bytes]]]:
    """The function from lines to keys and rows as bytes. Rows whose key has a NULL are left out: nothing is equal."""
    table = dimension.table
    run = compiled(Fragment(FromTable(table, dimension.columns), dimension.steps, ToRows(), dimension.zone))
    key_of = key_maker([dimension.fields[each].type for each in dimension.keys], dimension.keys)
    skips = table.options.on_error == "skip"

    def refuse(line: Line, error: Exception, count: int) -> None:
        where = line.place
        if not skips:
            raise SqlError(f"{where}: {error}") from error
        _LOGGER.warning(
            "dimension %s: %s left out, the first at %s: %s", table.name, counted(count, "row"), where, error
        )

    def of(lines: Sequence[Line]) -> Iterator[tuple[bytes, bytes]]:
        mapped = run(lines)
        if mapped.failed:
            position, error = next(iter(mapped.failed.items()))
            refuse(lines[position], error, len(mapped.failed))
        for position, row in zip(mapped.positions, mapped.values, strict=True):
            try:
                yield from _packed(key_of(row), row)
            except (UnicodeEncodeError, OverflowError) as error:  # half of a surrogate pair, over 64 bits
                refuse(lines[position], error, 1)

    return of


def _packed(key: Any, row: Row) -> list[tuple[bytes, bytes]]:
    return [] if key is None else [(packed_key(key), pack(row))]


def _chunks(dimension: Dimension) -> Iterator[list[Line]]:
    options = dimension.table.options
    names = [each.name for each in dimension.columns if each.is_physical]
    if options.connector == FILES:
        for path in sources.paths_of(options.of_connector.path):
            yield from sources.rows_of_file(dimension.table, path, names)
    else:
        yield from sources.rows_of_database(options.of_connector, names)


_KEPT_KEYS: Final = 16_384
"""Keys whose rows stay decoded: most look-ups are for few keys."""
_KEPT_ROWS: Final = 64
"""A key with more rows is decoded each time."""

Getter = Callable[[Any], Sequence[Row]]


class DimensionLease:
    """See `Lease`."""

    def __init__(self, dimension: Dimension) -> None:
        self._dimension = dimension
        self._lease: refresh.Lease | None = None
        self._rows: Any = None
        self._getter: Getter | None = None

    def getter(self) -> Getter:
        """See `Lease.getter`."""
        try:
            if self._lease is None:
                self._lease = _acquired(self._dimension)
            rows = self._lease.rows()
        except SqlError:
            raise
        except LocalError as error:
            raise SqlError(str(error)) from error
        if _is_topic(self._dimension):
            return rows.get  # type: ignore[no-any-return]
        if rows is not self._rows or self._getter is None:
            self._getter = _Decoded(rows, unpacker(self._dimension.fields)).__getitem__
            self._rows = rows
        return self._getter


class _Decoded(dict[Any, Sequence[Row]]):
    """Rows by key. Those that are not there are looked up in a version of the table."""

    def __init__(self, table: MappedTable, unpack: Callable[[bytes], Row]) -> None:
        super().__init__()
        self._look_up = _in_memory(table) if native.new_table is None else _in_files(table)
        self._unpack = unpack

    def __missing__(self, key: Any) -> Sequence[Row]:
        try:
            found = self._look_up(packed_key(key))
        except UnicodeEncodeError:  # half of a surrogate pair: no row has it
            found = None
        unpack = self._unpack
        rows: Sequence[Row] = () if found is None else [unpack(row) for (row,) in found]
        if len(rows) > 1:
            rows = sorted(rows, key=repr)  # an order that does not depend on how they were read
        if len(rows) <= _KEPT_ROWS:
            if len(self) >= _KEPT_KEYS:
                self.clear()
            self[key] = rows
        return rows


def _in_files(table: MappedTable) -> Callable[[bytes], Any]:
    get = table.get_one
    return lambda key: get(key, many=True)


def _in_memory(table: MappedTable) -> Callable[[bytes], Any]:
    """Without C, a look-up in the files takes some hundred times as long as in a dict."""
    found: dict[bytes, list[Any]] = {}
    for key, row in table.rows():
        found.setdefault(key, []).append(row)
    return found.get


@dataclass(frozen=True, slots=True)
class DimensionTopic(DimensionRows):
    """See `LiveSource`."""

    def version(self) -> str | None:
        return None

    def live(self, wanted: Wanted) -> Live:
        """See `LiveSource`."""
        from rmqio.sql.lookup.topic import TopicTable

        return TopicTable(self.dimension)


def acquire(dimension: Dimension) -> DimensionLease:
    """Returns the table of a dimension, for as long as the lease lives. It is loaded when it is needed first."""
    return DimensionLease(dimension)


def close_all() -> None:
    """Drops all tables of this process, and ends their threads."""
    refresh.close_all()


def _is_topic(dimension: Dimension) -> bool:
    return dimension.table.options.connector not in (FILES, DATABASE)


def _acquired(dimension: Dimension) -> refresh.Lease:
    name = f"the dimension table {dimension.table.name}"
    spec = Spec((KEY,), (ROW,), "all")
    every_ms = dimension.table.options.of_connector.refresh_ms
    schedule = refresh.Schedule(every_ms / 1000 if every_ms else None)
    if _is_topic(dimension):
        return refresh.acquire(Wanted(Table(DimensionTopic(dimension)), spec, name), schedule)
    try:
        table = Table(DimensionRows(dimension), cache_dir=str(folder_of_jobs()))
    except LocalError as error:
        raise SqlError(f"{name} cannot be loaded: {error}") from error
    return refresh.acquire(Wanted(table, spec, name, of_job=True), schedule)
