"""EXPLAIN: the text of plans, from the reads of tables to the statements."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqio.errors import counted
from rmqio.hints import character_width
from rmqio.sql import types
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.emitter import shortened
from rmqio.sql.compile.shared import first_steps, on_common_columns, shared_expressions
from rmqio.sql.explain.relations import (
    column_names,
    emit_lines,
    group_kept,
    group_kind,
    join_lines,
    more_described,
    more_names,
    rank_lines,
    sink_kind,
    window_line,
)
from rmqio.sql.expressions import Expr, conjuncts
from rmqio.sql.planning.plan import (
    BY_TIME,
    Aggregate,
    AggregateCall,
    Calc,
    Constants,
    Field,
    Join,
    LookupJoin,
    Rank,
    Relation,
    Scan,
    Sink,
    Union,
    Windowed,
)
from rmqio.sql.planning.pushdown import Use, pushed_of, uses_of
from rmqio.sql.planning.relations import Analytic, Expand, Over, Repeated, Sorted, SubqueryJoin, described
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.secrets import masked_value
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.text import constant_text, duration, text_of

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


# EXPLAIN: a plan as a tree that a person reads.

# EXPLAIN on a terminal: lines that are longer than it is wide go on below, within the lines of the tree.

_TREE: Final = re.compile(r"[│├└─ ]*")
_FILLER: Final = "\ue000"
"""Stands behind a character that takes two columns of a terminal, while lines are broken by their length."""
_LEAST: Final = 30
"""Columns of text that a line has at least, however deep it is."""


def for_terminal(text: str) -> str:
    """Returns the trees for standard output: as they are, unless it is a terminal."""
    return fitted(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text


def fitted(text: str, columns: int) -> str:
    """Returns the trees with lines of at most so many columns, as far as words and depth permit."""
    lines = text.split("\n")
    found: list[str] = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if len(_padded(line)) <= columns:
            found.append(line)
            continue
        found += _parts(line, below, columns)
    return "\n".join(found)


def _parts(line: str, below: str, columns: int) -> list[str]:
    found = _TREE.match(line)
    assert found is not None
    before = found[0]
    rest = before.replace("├─", "│ ").replace("└─", "  ")
    if (rest != before or not before) and below.startswith(f"{rest}│"):  # the head of a relation that has others below
        rest += "│"
    rest += " " * (5 if rest.endswith("│") else 2)
    width = max(columns - max(len(before), len(rest)), _LEAST)
    text = _padded(line[len(before) :])
    first, *others = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [(before + first).replace(_FILLER, ""), *((rest + each).replace(_FILLER, "") for each in others)]


def _padded(text: str) -> str:
    if text.isascii():
        return text
    return "".join(each + _FILLER * (character_width(each) - 1) for each in text)


def explain(plans: Sequence[Relation]) -> str:
    """Returns the trees of the plans of one job. Tables that several of them read are marked: they are read once."""
    with deep_trees():
        reads = Reads(plans)
        return "\n\n".join("\n".join(_lines(plan, reads)) for plan in plans)


def named_fields(relation: Relation) -> tuple[Field, ...]:
    """Returns the columns of a relation with the names that EXPLAIN has for them, for errors of its rows."""
    with deep_trees():
        names = _column_names(relation)
    return tuple(
        field._replace(name=shortened(name), table="") for field, name in zip(relation.fields, names, strict=True)
    )


def _lines(relation: Relation, reads: Reads) -> list[str]:
    head, *details = _described(relation, reads)
    below = relation.inputs()
    if isinstance(relation, Aggregate) and isinstance(relation.input, Calc):  # it is in the lines of the aggregate
        below = relation.input.inputs()
    inputs = [_lines(each, reads) for each in below]
    rail = "│" if inputs else " "
    lines = [head, *(f"{rail}   {each}" for each in details)]
    for number, (first, *others) in enumerate(inputs):
        is_last = number == len(inputs) - 1
        branch, rest = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        lines.append(branch + first)
        lines += [rest + each for each in others]
    return lines


def _described(relation: Relation, reads: Reads) -> list[str]:
    match relation:
        case Sink():
            return _sink(relation)
        case Scan():
            return _scan(relation, reads)
        case Calc():
            return _calc(relation)
        case Join():
            return join_lines(relation)
        case Windowed():
            return [f"Windows, append-only: {window_line(relation.window, _column_names(relation.input))}"]
        case LookupJoin():
            return look_up_lines(relation)
        case Aggregate():
            return _aggregate(relation)
        case Expand():
            return described(relation, _column_names(relation.input))
        case Rank():
            return rank_lines(relation, _column_names(relation.input))
        case Union():
            return [f"Union of {len(relation.members)}"]
        case Constants():
            return [counted(len(relation.rows), "row") + " of the statement"]
        case SubqueryJoin() | Over() | Analytic() | Sorted() | Repeated():
            return more_described(relation, _column_names)
    return [type(relation).__name__]


def _sink(sink: Sink) -> list[str]:
    kind, more = sink_kind(sink)
    return [f"Insert into {sink.table.name} ({place_of(sink.table)}), {kind}", *_columns("writes", sink.fields), *more]


def _scan(scan: Scan, reads: Reads) -> list[str]:
    options = scan.table.options
    body = [each.name for each in scan.columns if each.metadata is None]
    beside = [each.name for each in scan.columns if each.metadata is not None]
    all_physical = sum(each.is_physical for each in scan.table.columns)
    is_topic = options.connector == "rocketmq"
    lines = [f"Read {scan.table.name} ({place_of(scan.table)}), append-only{'' if is_topic else ', ends'}"]
    lines.append(f"decodes {', '.join(body)} ({len(body)} of {all_physical} columns)" if body else "decodes nothing")
    if beside:
        lines.append(f"metadata {', '.join(beside)}")
    if is_topic:
        lines += reads.lines(scan)
    if is_topic and scan.table.primary_key:
        lines.append("each version of a row counts: it is no upsert table, and its PRIMARY KEY only matters for writes")
    if options.on_error != "fail":
        letters = f" {options.dead_letter_topic}" if options.on_error == "dead-letter" else ""
        lines.append(f"bad rows: {options.on_error}{letters}")
    return lines


def _calc(calc: Calc) -> list[str]:
    names = _column_names(calc.input)
    lines = [f"where {text_of(each, names)}" for each in conjuncts(calc.condition)]
    computed = [
        field.name if text_of(each, names) == field.name
        else f"{text_of(each, names)} AS {field.name}"
        for field, each in zip(calc.fields, calc.projections, strict=True)
    ]  # fmt: skip
    return ["Select", *_wrapped(computed), *lines]


def _column_names(relation: Relation) -> list[str]:
    """The columns of a relation as text: those of an aggregate are what it computes."""
    if isinstance(relation, Join):
        return column_names(relation)
    if isinstance(relation, (SubqueryJoin, Over, Analytic, Sorted, Repeated)):
        return more_names(relation, _column_names)
    if not isinstance(relation, Aggregate):
        return [each.name for each in relation.fields]
    names = _computed(relation.input)
    times = [] if relation.window is None else [each.name for each in relation.fields[len(relation.keys) :][:3]]
    return [*(names[each] for each in relation.keys), *times, *(_call(each, names) for each in relation.calls)]


def _computed(relation: Relation) -> list[str]:
    """The columns of an aggregate's input as text: they have no names of their own."""
    if not isinstance(relation, Calc):
        return _column_names(relation)
    below = _column_names(relation.input)
    return [text_of(each, below) for each in relation.projections]


def _call(call: AggregateCall, names: list[str]) -> str:
    argument = "*" if call.argument is None else names[call.argument]
    if call.function is not None:
        argument = "" if call.argument is None else argument.removeprefix("ROW(").removesuffix(")")
    if call.name in BY_TIME:
        argument = argument.removeprefix("ROW(").removesuffix(")").removesuffix(", queue_offset")
        argument, _, time = argument.rpartition(", ")
        argument += f") by {time}"
    if call.separator != ",":
        argument += f", {constant_text(call.separator, types.VARCHAR)}"
    only = "" if call.condition is None else f" FILTER (WHERE {names[call.condition]})"
    end = "" if call.name in BY_TIME else ")"
    return f"{call.name}({'DISTINCT ' if call.is_distinct else ''}{argument}{end}{only}"


def _aggregate(aggregate: Aggregate) -> list[str]:
    names = _computed(aggregate.input)
    keys = ", ".join(names[each] for each in aggregate.keys)
    window = aggregate.window
    when = group_kind(aggregate, [names[each] for each in aggregate.keys])
    lines = [f"Group by {keys or 'nothing'}, {when}"]
    if aggregate.origin is not None:
        lines = [f"{aggregate.origin.name} by {keys}, {when if window else 'once when the input ends'}"]
    elif window is not None:
        lines.append(window_line(window, names))
        if behind := delay_us(aggregate.input):
            lines.append(f"closes {duration(behind // 1000)} later: rows of the join are so much behind the watermark")
    lines += emit_lines(aggregate.emit)
    lines += [_call(each, names) for each in aggregate.calls]
    if isinstance(aggregate.input, Calc):
        below = _column_names(aggregate.input.input)
        lines += [f"where {text_of(each, below)}" for each in conjuncts(aggregate.input.condition)]
    lines.append(f"aggregates each batch, shuffles by {keys or 'nothing'}, {group_kept(aggregate)}")
    return lines


def _columns(verb: str, fields: Sequence[Field]) -> list[str]:
    return [f"{verb} {', '.join(f'{each.name} {each.type.text}' for each in fields)}"]


def _wrapped(texts: list[str], width: int = 90) -> list[str]:
    lines, line = [], ""
    for each in texts:
        if line and len(line) + len(each) > width:
            lines.append(line + ",")
            line = each
        else:
            line = f"{line}, {each}" if line else each
    return [*lines, line] if line else lines
