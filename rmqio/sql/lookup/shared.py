"""The dimension tables of this process: those of `rmqio.enrich`, with the semantics of SQL.

Files and databases are loaded once a machine for each job, into files that its processes map. A topic is read by each
process, which goes on to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.enrich import refresh
from rmqio.enrich.definition import Table
from rmqio.enrich.sources import Live
from rmqio.enrich.store import Wanted, folder_of_jobs
from rmqio.enrich.table import native
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup.definition import Dimension, Row
from rmqio.sql.lookup.keys import packed_key
from rmqio.sql.lookup.loading import KEY, ROW, DimensionRows
from rmqio.sql.rows import unpacker

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
