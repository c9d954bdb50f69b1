"""The plan of a SELECT in the shell: what it reads, from where, and whether one function over batches computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, Step, ToRows, step_of
from rmqio.sql.planning.plan import Calc, Constants, Relation, Scan, Union
from rmqio.sql.planning.relations import Expand
from rmqio.sql.shell.settings import Scan as ScanSettings
from rmqio.start import StartFrom, StopAt


@dataclass(frozen=True, slots=True)
class Bounds:
    """The places where the tables of a SELECT begin and end, unless they say it. `stop`: None: they do not end."""

    settings: ScanSettings
    start: StartFrom | None
    stop: StopAt | None

    def start_of(self, table: Table) -> StartFrom:
        """Returns where the table begins: at SET, the table's own option, `--start`, or else its earliest message."""
        found = self.settings.start or table.options.start or self.start or StartFrom.earliest()
        return StartFrom.earliest() if found.needs_group and not table.options.group else found

    def stop_of(self, table: Table) -> StopAt | None:
        """Returns where the table ends."""
        return StopAt.timestamp(table.options.end_ms) if table.options.end_ms is not None else self.stop


class Branch(NamedTuple):
    """A part of a plan that one function computes. `table`: what it reads; None: it has its rows."""

    table: Table | None
    fragment: Fragment


def branches(relation: Relation, steps: tuple[Step, ...] = ()) -> list[Branch] | None:
    """Returns the parts whose rows together are those of the plan; None: the plan needs a runner."""
    match relation:
        case Calc():
            return branches(relation.input, (Step(relation.condition, relation.projections), *steps))
        case Expand():
            return branches(relation.input, (step_of(relation), *steps))
        case Scan() if relation.table.options.connector == "rocketmq":
            return [Branch(relation.table, Fragment(FromTable(relation.table, relation.columns), steps, ToRows()))]
        case Constants():
            rows = [Fragment(FromRows(()), (Step(None, row), *steps), ToRows()) for row in relation.rows]
            return [Branch(None, each) for each in rows]
        case Union():
            parts = [branches(each, steps) for each in relation.members]
            found = [branch for part in parts if part is not None for branch in part]
            return None if None in parts else found
    return None


def tables(relation: Relation) -> Iterator[Table]:
    """Yields the tables that a plan reads."""
    if isinstance(relation, Scan):
        yield relation.table
    for each in relation.inputs():
        yield from tables(each)


def for_reading(plan: Relation, bounds: Bounds) -> Relation:
    """Returns the plan with tables that begin where a SELECT begins, and whose bad rows go to no topic of letters."""
    changed: dict[int, Table] = {}  # a table stays one object, so that it is read once

    def table_of(table: Table) -> Table:
        options = table.options
        on_error = "skip" if options.on_error == "dead-letter" else options.on_error
        start = bounds.start_of(table) if options.connector == "rocketmq" else options.start
        return changed.setdefault(
            id(table), replace(table, options=replace(options, start=start, on_error=on_error, dead_letter_topic=None))
        )

    return _with_tables(plan, table_of)


def _with_tables(relation: Relation, table_of: Callable[[Table], Table]) -> Relation:
    if isinstance(relation, Scan):
        return replace(relation, table=table_of(relation.table))
    inputs = tuple(_with_tables(each, table_of) for each in relation.inputs())
    return relation.with_inputs(inputs) if inputs else relation
