"""EXPLAIN of reads: what the broker filters, what bounds them, what statements share, and dimension tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.shared import first_steps, on_common_columns, shared_expressions
from rmqio.sql.expressions import Expr, conjuncts
from rmqio.sql.planning.plan import Calc, LookupJoin, Relation, Scan
from rmqio.sql.planning.pushdown import Use, pushed_of, uses_of
from rmqio.sql.secrets import masked_value
from rmqio.sql.text import duration, text_of

# EXPLAIN of dimension tables, and of tables that are not topics.


def place_of(table: Table) -> str:
    """Returns what a table is: `topic orders, json`. No credentials."""
    options = table.options
    match options.connector:
        case "rocketmq":
            return f"topic {options.topic}, {options.format}"
        case connector if connector == FILES:
            return f"files {masked_value(options.of_connector.path, 'path')}, {options.format}"
        case connector if connector == DATABASE:
            from rmqio.sql.lookup.sources import place_of as in_database

            return in_database(options.of_connector)
    return options.connector


def look_up_lines(join: LookupJoin) -> list[str]:
    """Returns the lines of a look-up: the table, the key, what is kept of it, and how old it can be."""
    left = [each.name for each in join.input.fields]
    right = _names(join.dimension)
    relation, conditions = join.dimension, _conditions(join)
    while isinstance(relation, Calc):
        relation = relation.input
    assert isinstance(relation, Scan)
    table = relation.table
    keys = " and ".join(f"{text_of(key, left)} = {right[place]}" for key, place in join.keys)
    lines = [f"Look up in {table.name} ({place_of(table)}), {join.kind.lower()}, append-only", f"by {keys}"]
    lines += [f"where {text_of(each, [*left, *right])}" for each in conjuncts(join.residual)]
    kept = ", ".join(right)
    count = sum(each.expression is None for each in table.columns)
    lines.append(f"each worker keeps {kept} (reads {len(relation.columns)} of {count} columns)")
    lines += [f"only rows where {each}" for each in conditions]
    refresh_ms = table.options.of_connector.refresh_ms
    if table.options.connector not in (FILES, DATABASE):
        lines.append(f"the newest row of each {', '.join(table.primary_key)}, from the start of the topic")
    elif refresh_ms:
        lines.append(f"is loaded again every {duration(refresh_ms)}")
    else:
        lines.append("is loaded once")
    return lines


def _names(relation: Relation) -> list[str]:
    """The columns of a dimension as text: a key that is computed is what computes it."""
    if not isinstance(relation, Calc):
        return [each.name for each in relation.fields]
    below = _names(relation.input)
    return [
        text_of(each, below) if field.name.startswith("KEY$") else field.name
        for field, each in zip(relation.fields, relation.projections, strict=True)
    ]


def _conditions(join: LookupJoin) -> list[str]:
    """The filters of the dimension's rows, as text."""
    found: list[str] = []
    relation = join.dimension
    while isinstance(relation, Calc):
        names = [each.name for each in relation.input.fields]
        found = [*_texts(conjuncts(relation.condition), names), *found]
        relation = relation.input
    return found


def _texts(conditions: Sequence[Expr], names: Sequence[str]) -> list[str]:
    return [text_of(each, names) for each in conditions]


@dataclass(slots=True)
class Reads:
    """The reads of a job.

    Args:
      plans: the plans of the job.
    """

    plans: Sequence[Relation]
    _uses: list[Use] = field(default_factory=list)
    _shown: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._uses = uses_of(self.plans)

    def lines(self, scan: Scan) -> list[str]:
        """Returns lines about the read of a table. Facts that its statements share are stated once."""
        uses = [each for each in self._uses if each.scan.table is scan.table]
        if id(scan.table) in self._shown:
            return ["is read and decoded once: see above"]
        self._shown.add(id(scan.table))
        shared = _shared(uses) if len(uses) > 1 else []
        return [*_filtered(scan.table, uses), *_bounds(scan.table, uses), *shared]


def _filtered(table: Table, uses: Sequence[Use]) -> list[str]:
    pushed = pushed_of(table, uses)
    tag = pushed.expression if pushed.expression is not None else table.options.tag
    if pushed.selector is None and tag is not None:
        return [f"the broker filters by tag: {masked_value(tag)}"]
    condition = table.options.sql if pushed.selector is None else pushed.selector.text
    return [] if condition is None else [f"the broker filters by SQL92: {masked_value(condition, 'sql')}"]


def _bounds(table: Table, uses: Sequence[Use]) -> list[str]:
    options, pushed = table.options, pushed_of(table, uses)
    lines = []
    low = pushed.start_ms if options.start is None or options.start.kind in ("earliest", "timestamp") else None
    if options.start is not None and options.start.kind == "timestamp":
        low = max(options.start.timestamp_ms, low or 0)
        lines.append(f"begins with what was stored at {_moment(low)}")
    elif low is not None:
        if options.start is not None:
            lines.append(f"begins with what was stored at {_moment(low)}")
        else:
            lines.append(f"with --start=earliest, begins with what was stored at {_moment(low)}")
    elif options.start is not None:
        lines.append(f"begins at {_START.get(options.start.kind, options.start.kind)}")
    high = pushed.stop_ms
    if options.end_ms is not None:
        lines.append(f"ends with what was stored before {_moment(min(options.end_ms, high or options.end_ms))}")
    elif high is not None:
        lines.append(f"with --stop, ends with what was stored before {_moment(high)}")
    return lines


_START = {"group_offsets": "the offsets of its group"}


def _moment(milliseconds: int) -> str:
    """The time in UTC, without a fraction of zeros."""
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{moment.isoformat(' ', 'milliseconds').removesuffix('.000')} UTC"


def _shared(uses: Sequence[Use]) -> list[str]:
    fragments = [_fragment(each) for each in uses]
    _, columns, together = on_common_columns(fragments)
    names = [each.name for each in columns]
    lines = [f"is read and decoded once for the {len(uses)} that read it: {', '.join(names) or 'no column'}"]
    found = shared_expressions(first_steps(together))
    lines += [f"computes once for all: {text_of(each, names)}" for each in found]
    return lines


def _fragment(use: Use) -> Fragment:
    columns: tuple[Column, ...] = use.scan.columns
    steps = () if use.projections is None else (Step(use.condition, use.projections),)
    return Fragment(FromTable(use.scan.table, columns), steps, ToRows())
