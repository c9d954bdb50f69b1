"""The time of a table's rows: what the read's watermark follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.fragment import Fragment, FromTable, Step, ToRows, compiled
from rmqio.sql.expressions import InputRef
from rmqio.sql.optimizer import optimize
from rmqio.sql.plan import Calc, Field, Relation, Scan


class TableTime:
    """Returns the Unix milliseconds of a record: its column of WATERMARK FOR. Raises `SerdeError` if it has none."""

    def __init__(self, table: Table) -> None:
        assert table.watermark is not None
        self._table = table
        self._run: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._table,)

    def __call__(self, record: Record) -> int:
        stamps, errors = self.many((record,))
        if errors:
            raise errors[0]
        return stamps[0]

    def many(self, records: Sequence[Record]) -> tuple[list[int], dict[int, Exception]]:
        """Returns the milliseconds of the records that have a time, in order, and errors by position."""
        if self._run is None:
            self._run = compiled(_fragment(self._table))
        mapped = self._run(records)
        errors: dict[int, Exception] = {at: SerdeError(str(error)) for at, error in mapped.failed.items()}
        stamps = []
        for (micros,), position in zip(mapped.values, mapped.positions, strict=True):
            if micros is None:
                column = self._table.watermark and self._table.watermark[0]
                errors[position] = SerdeError(f"the column {column} is NULL: without it the row has no time")
            else:
                stamps.append(micros // 1000)
        return stamps, errors


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
