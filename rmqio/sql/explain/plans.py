"""EXPLAIN: a plan as a tree that a person reads."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from rmqio.errors import counted
from rmqio.hints import character_width
from rmqio.sql import types
from rmqio.sql.compile.emitter import shortened
from rmqio.sql.explain.reads import Reads, look_up_lines, place_of
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
from rmqio.sql.expressions import conjuncts
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
from rmqio.sql.planning.relations import Analytic, Expand, Over, Repeated, Sorted, SubqueryJoin, described
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.text import constant_text, duration, text_of

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
        names = _names(relation)
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
            return [f"Windows, append-only: {window_line(relation.window, _names(relation.input))}"]
        case LookupJoin():
            return look_up_lines(relation)
        case Aggregate():
            return _aggregate(relation)
        case Expand():
            return described(relation, _names(relation.input))
        case Rank():
            return rank_lines(relation, _names(relation.input))
        case Union():
            return [f"Union of {len(relation.members)}"]
        case Constants():
            return [counted(len(relation.rows), "row") + " of the statement"]
        case SubqueryJoin() | Over() | Analytic() | Sorted() | Repeated():
            return more_described(relation, _names)
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
    names = _names(calc.input)
    lines = [f"where {text_of(each, names)}" for each in conjuncts(calc.condition)]
    computed = [
        field.name if text_of(each, names) == field.name
        else f"{text_of(each, names)} AS {field.name}"
        for field, each in zip(calc.fields, calc.projections, strict=True)
    ]  # fmt: skip
    return ["Select", *_wrapped(computed), *lines]


def _names(relation: Relation) -> list[str]:
    """The columns of a relation as text: those of an aggregate are what it computes."""
    if isinstance(relation, Join):
        return column_names(relation)
    if isinstance(relation, (SubqueryJoin, Over, Analytic, Sorted, Repeated)):
        return more_names(relation, _names)
    if not isinstance(relation, Aggregate):
        return [each.name for each in relation.fields]
    names = _computed(relation.input)
    times = [] if relation.window is None else [each.name for each in relation.fields[len(relation.keys) :][:3]]
    return [*(names[each] for each in relation.keys), *times, *(_call(each, names) for each in relation.calls)]


def _computed(relation: Relation) -> list[str]:
    """The columns of an aggregate's input as text: they have no names of their own."""
    if not isinstance(relation, Calc):
        return _names(relation)
    below = _names(relation.input)
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
        below = _names(aggregate.input.input)
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
