"""The plan of a SELECT in the shell: what it reads, and from where to where, which SET says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rmqio.errors import LocalError
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, Step, ToRows, step_of
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Calc, Constants, Relation, Scan, Union
from rmqio.sql.planning.relations import Expand
from rmqio.sql.syntax.statements import Option
from rmqio.start import StartFrom, StartKind, StopAt, StopKind, start_of, stop_of

# SET in the shell: where a SELECT begins and ends, beside what SET means in every script.

START: Final = "scan.startup.mode"
STOP: Final = "scan.bounded.mode"
OWN: Final = {
    START: "earliest, latest, group or timestamp:TIME",
    STOP: "unbounded, latest or timestamp:TIME",
}
"""The shell's own settings, and what they can be."""
_STARTS: Final[tuple[StartKind, ...]] = ("earliest", "latest", "group", "timestamp:TIME")
_STOPS: Final[tuple[StopKind, ...]] = ("none", "latest", "timestamp:TIME")


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The places where tables begin and end in the shell.

    Attributes:
      start: of every table; None: the table's own, and else that of `--start`.
      stop: of every table without `endTime`.
      is_endless: whether SET says that tables do not end.
    """

    start: StartFrom | None = None
    stop: StopAt | None = None
    is_endless: bool = False

    def with_option(self, option: Option) -> ScanOptions:
        """Returns the settings after a SET of one of `OWN`. Raises `Refusal`."""
        key = option.key.lower()
        text = option.value.strip()
        text = text.lower().removesuffix("-offset").removesuffix("-offsets") if ":" not in text else text
        try:
            if key == START:
                found = start_of(text, _STARTS)
                # A group without an offset begins where a SELECT begins.
                return replace(self, start=StartFrom.group_offsets("earliest") if text == "group" else found)
            stop = stop_of("none" if text == "unbounded" else text, _STOPS)
        except LocalError as error:
            reason = f": {error}" if ":" in text else f"; it can be {OWN[key]}"
            raise Refusal(f"{option.key} is {option.value!r}{reason}", option.value_span) from None
        return replace(self, stop=stop, is_endless=stop is None)

    def without(self, key: str) -> ScanOptions:
        """Returns the settings after a RESET of one of `OWN`."""
        return replace(self, start=None) if key == START else replace(self, stop=None, is_endless=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The places where the tables of a SELECT begin and end, unless they say it. `stop`: None: they do not end."""

    settings: ScanOptions
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
