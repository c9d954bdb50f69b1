"""The time of a table's rows: what the read's watermark follows."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import InputRef
from rmqio.sql.optimizer import optimize
from rmqio.sql.planning.plan import Calc, Field, Relation, Scan
from rmqio.sql.values import in_zone, session_zone


class TableTime:
    """Returns the Unix milliseconds of a record: its column of WATERMARK FOR.

    Args:
      table: the table; it has a watermark.
      is_lenient: a record without a time gets that of another one, which moves no watermark: the fragment says what
        becomes of it. Otherwise it raises `SerdeError`.
    """

    def __init__(self, table: Table, *, is_lenient: bool) -> None:
        assert table.watermark is not None
        self._table = table
        self._column = table.watermark[0]
        self._is_lenient = is_lenient
        self._zone = session_zone()
        self._run: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_time, (self._table, self._is_lenient, self._zone)

    def __call__(self, record: Record) -> int:
        stamps, errors = self.many((record,))
        if errors:
            raise errors[0]
        return stamps[0]

    def many(self, records: Sequence[Record]) -> tuple[list[int], dict[int, Exception]]:
        """Returns the milliseconds of the records that have a time, in order, and errors by position."""
        if self._run is None:
            with in_zone(self._zone):
                self._run = compiled(_fragment(self._table))
        mapped = self._run(records)
        if len(mapped.values) == len(records):
            with contextlib.suppress(TypeError):  # one of them is NULL
                return [micros // 1000 for (micros,) in mapped.values], {}
        times = zip(mapped.values, mapped.positions, strict=True)
        found = {at: micros // 1000 for (micros,), at in times if micros is not None}
        if self._is_lenient or (self._table.primary_key and self._are_deleted(records, found)):
            earliest = min(found.values(), default=0)
            return [found.get(at, earliest) for at in range(len(records))], {}
        errors: dict[int, Exception] = {at: SerdeError(str(error)) for at, error in mapped.failed.items()}
        for at in set(range(len(records))) - found.keys() - errors.keys():
            errors[at] = SerdeError(f"the column {self._column} is NULL: without it the row has no time")
        return list(found.values()), dict(sorted(errors.items()))

    @staticmethod
    def _are_deleted(records: Sequence[Record], found: Mapping[int, int]) -> bool:
        """Whether those without a time are tombstones, which are not rows."""
        return not any(each.body for at, each in enumerate(records) if at not in found)


def _table_time(table: Table, is_lenient: bool, zone: str) -> TableTime:
    with in_zone(zone):
        return TableTime(table, is_lenient=is_lenient)


def _fragment(table: Table) -> Fragment:
    found = optimize(_time_column(table))
    steps: tuple[Step, ...] = ()
    while isinstance(found, Calc):
        steps = (Step(found.condition, found.projections), *steps)
        found = found.input
    assert isinstance(found, Scan)
    return Fragment(FromTable(table, found.columns), steps, ToRows())


def _time_column(table: Table) -> Relation:
    assert table.watermark is not None
    relation = scan_of(table)
    position = [each.name for each in relation.fields].index(table.watermark[0])
    kind = relation.fields[position].type
    return Calc((Field("time", kind),), relation, None, (InputRef(kind, position),))
