"""The signature of a job: what its state depends on, in words, so that a refusal says what a query has changed.

It has the reads, the joins and the groups of each statement, with what they are keyed by, what they keep, and for how
long. Comments, aliases, conditions and what is computed after the last shuffle are not in it: they change no state.
The format of a table is not in it either: state holds decoded values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.sql.analysis.definitions import watermark_delay_ms
from rmqio.sql.explain.relations import more_names, more_step
from rmqio.sql.expressions import Conversion, Expr, NotNull
from rmqio.sql.planning.checks import ends_by_itself
from rmqio.sql.planning.identity import has_own_ids, has_variants
from rmqio.sql.planning.plan import (
    Aggregate,
    AggregateCall,
    Calc,
    Join,
    LookupJoin,
    Rank,
    Relation,
    Scan,
    Sink,
    Union,
    Window,
    Windowed,
)
from rmqio.sql.planning.relations import Analytic, Expand, Over, Repeated, Sorted, SubqueryJoin
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.text import duration, text_of

Step = dict[str, Any]
Signature = list[dict[str, Any]]

VERSION: Final = 4
"""Another one when values have another meaning than in state that was written: of functions, casts, comparisons, keys.

2: those of Flink 2.3.0, as `CAST` to `CHAR(5)`, `SIMILAR TO`, `TO_TIMESTAMP_LTZ` of text; -0.0 in a row is 0.0.
3: a NaN in arrays, maps and rows, and as a key; text beside a time; keys are told apart by intervals, `-(a + b)`.
4: a NaN is equal to nothing as the key of a join, and in arrays, maps and rows; a map as a key has no order.
"""
WATERMARK_DELAY: Final = "watermark delay"
KEY_TYPES: Final = ("types of the keys",)
RESULT_TYPES: Final = ("types of the arguments", "types of the results")
ADDED_LATER: Final = (WATERMARK_DELAY, *KEY_TYPES, *RESULT_TYPES)
"""Keys that version 1 did not have at first: a kept signature may lack them."""


def signature_of(sinks: Sequence[Sink]) -> Signature:
    """Returns the signature of a job, which is JSON."""
    with deep_trees():
        return [{"into": sink.table.name, "steps": [*_steps(sink.input), *_ids(sink)]} for sink in sinks]


def _ids(sink: Sink) -> Iterator[Step]:
    """How rows that were written are known again. What was numbered under an earlier version would be written twice."""
    if sink.table.options.is_exactly_once and has_own_ids(sink) and has_variants(sink):
        yield {"step": "rows known by what was looked up"}


# ---- what is in it --------------------------------------------------------------------------------------------------


def _steps(relation: Relation) -> Iterator[Step]:
    """The steps from the tables up."""
    for each in relation.inputs():
        yield from _steps(each)
    match relation:
        case Scan():
            table = relation.table
            delay = {} if table.watermark is None else {WATERMARK_DELAY: duration(watermark_delay_ms(table))}
            yield {"step": f"read of {table.name}", "topic": table.options.topic, **delay}
        case Join():
            left, right = (_columns(each) for each in (relation.left, relation.right))
            yield {
                "step": "join",
                "kind": relation.kind.lower(),
                "condition": [f"{left[one]} = {right[other]}" for one, other in relation.keys],
                "left columns": _typed(left, relation.left),
                "right columns": _typed(right, relation.right),
                "time to live": duration(relation.ttl_ms),
                **(_kept(relation, "left", "right") if relation.keys else {}),
                **_more(relation, {"left", "right", "kind", "keys", "residual", "ttl_ms"}),
            }
        case Aggregate():
            names = _columns(relation.input)
            yield {
                "step": "group",
                "keys": [names[each] for each in relation.keys],
                "window": _window(relation.window, names),
                "aggregates": [_call(each, names) for each in relation.calls],
                KEY_TYPES[0]: [relation.input.fields[each].type.text for each in relation.keys],
                RESULT_TYPES[0]: [
                    "*" if each.argument is None else relation.input.fields[each.argument].type.text
                    for each in relation.calls
                ],
                RESULT_TYPES[1]: [each.type.text for each in relation.calls],
                **_lives(relation),
                **_more(relation, {"input", "keys", "window", "calls", "is_total", "ttl_ms"}),
            }
        case Rank():
            names = _columns(relation.input)
            yield {
                "step": "first rows",
                "keys": [names[each] for each in relation.keys],
                "order": [f"{names[each.column]}{' descending' * each.is_descending}" for each in relation.order],
                "nulls first": [str(each.nulls_first).lower() for each in relation.order],
                "limit": str(relation.limit),
                "columns": _typed(names, relation.input),
                "time to live": duration(relation.ttl_ms),
                **_more(relation, {"input", "keys", "order", "limit", "is_numbered", "ttl_ms"}),
            }
        case Windowed():
            zone = {"zone": relation.window.local_zone} if relation.window.local_zone else {}
            yield {"step": "windowed", **_more(relation, {"input"}), **zone}
        case Calc() | Expand() | Union() | LookupJoin():  # without state
            pass
        case SubqueryJoin():
            yield {**more_step(relation, _columns), **_kept(relation, "left")}
        case Over():
            yield {**more_step(relation, _columns), **_lives(relation)}
        case Analytic() | Sorted() | Repeated():
            yield more_step(relation, _columns)
        case _:
            yield {"step": type(relation).__name__.lower(), **_more(relation, {"input", "left", "right"})}


def _kept(join: Join | SubqueryJoin, *sides: str) -> Step:
    """Whose rows are kept forever, since they end and others do not. Under an earlier version, they were not."""
    found = [each for each in sides if ends_by_itself(getattr(join, each))]
    return {"kept forever": found} if join.ttl_ms and found and not ends_by_itself(join) else {}


def _lives(relation: Aggregate | Over) -> Step:
    """How long a key is kept, if not forever. Under an earlier version, it was, and had no time of its last row."""
    return {"time to live": duration(relation.ttl_ms)} if relation.ttl_ms and not ends_by_itself(relation) else {}


_NO_STATE: Final = frozenset(
    {"fields", "members", "rows", "origin", "span", "is_crossed", "way_out", "is_total"}  # texts and places
)


def _more(relation: Relation, known: set[str]) -> Step:
    """Attributes that this module does not know, but for relations and columns."""
    names = [each for each in relation.__dataclass_fields__ if each not in known | _NO_STATE]
    found = {each: getattr(relation, each) for each in names}
    return {key: repr(value) for key, value in found.items() if not isinstance(value, Relation) and value is not None}


def _columns(relation: Relation) -> list[str]:
    """Each column by what it is computed from: columns of tables, whatever their names are since."""
    match relation:
        case Scan():
            return [f"{relation.table.name}.{each.name}" for each in relation.columns]
        case Calc():
            below = _columns(relation.input)
            return [text_of(_unwrapped(each), below) for each in relation.projections]
        case Expand():
            below = _columns(relation.input)
            rows = text_of(relation.rows, below)
            return [*below, *(f"{rows}.{each.name}" for each in relation.fields[len(below) :])]
        case Join():
            return [*_columns(relation.left), *_columns(relation.right)]
        case LookupJoin():
            return [*_columns(relation.input), *_columns(relation.dimension)]
        case Aggregate():
            names = _columns(relation.input)
            times = [each.name for each in relation.fields[len(relation.keys) :][:3]] if relation.window else []
            return [*(names[each] for each in relation.keys), *times, *(_call(each, names) for each in relation.calls)]
        case Rank():
            return [*_columns(relation.input), "ROW_NUMBER()"][: len(relation.fields)]
        case Union():
            return [" or ".join(dict.fromkeys(each)) for each in zip(*map(_columns, relation.members), strict=True)]
        case SubqueryJoin() | Over() | Analytic() | Sorted() | Repeated():
            return more_names(relation, _columns)
    return [each.name for each in relation.fields]


def _unwrapped(expression: Expr) -> Expr:
    while isinstance(expression, NotNull) or (
        isinstance(expression, Conversion) and expression.type.nullable() == expression.operand.type.nullable()
    ):
        expression = expression.operand
    return expression


def _typed(names: list[str], relation: Relation) -> list[str]:
    return [f"{name} {field.type.text}" for name, field in zip(names, relation.fields, strict=True)]


def _window(window: Window | None, names: list[str]) -> str:
    if window is None:
        return "none"
    every = f" every {duration(window.slide_us // 1000)}" if window.slide_us != window.size_us else ""
    offset = f" offset {duration(window.offset_us // 1000)}" if window.offset_us else ""
    zone = f" in {window.local_zone}" if window.local_zone else ""
    return f"{window.kind.lower()} of {duration(window.size_us // 1000)}{every}{offset} by {_time(window, names)}{zone}"


def _time(window: Window, names: list[str]) -> str:
    return "the time of the worker" if window.is_processing else names[window.time]


def _call(call: AggregateCall, names: list[str]) -> str:
    argument = "*" if call.argument is None else names[call.argument]
    if call.separator != ",":
        argument += f", {call.separator!r}"
    only = "" if call.condition is None else f" FILTER (WHERE {names[call.condition]})"
    return f"{call.name}({'DISTINCT ' if call.is_distinct else ''}{argument}){only}"


# Whether a changed query can go on from the state of the one before it: two signatures are compared.
#
# INSERTs are paired by table and by plan, so their order does not count. Some changes of a type fit the state: a
# value of the narrower type has the same bytes in the wider one, and the same key.

_TYPED: Final = re.compile(
    r"(?P<name>.*?) ?(?P<type>(?:TINYINT|SMALLINT|INT|BIGINT|STRING|VARCHAR\(\d+\)|DECIMAL\(\d+, \d+\)"
    r"|(?:TIME|TIMESTAMP|TIMESTAMP_LTZ)\(\d\)))",
    re.DOTALL,
)
"""A column with a type that can become wider."""
_WINDOW_TIME: Final = re.compile(r"(?<![\w.])window_time\b")
_NAMES: Final = {KEY_TYPES[0]: "keys", **dict.fromkeys(RESULT_TYPES, "aggregates")}
"""Of keys that are lists of types, the key with what has these types; other lists of types have names, too."""
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(slots=True)
class Comparison:
    """The differences between two signatures.

    Attributes:
      refused: a sentence for each difference that does not fit the state.
      accepted: a sentence for each one that does.
      order: for each INSERT of before that is still there, its position now.
    """

    refused: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    order: list[int] = field(default_factory=list)


def changes(before: Signature, now: Signature) -> list[str]:
    """Returns a sentence for each difference that does not fit the state; none: the state fits."""
    return compared(before, now).refused


def compared(before: Signature, now: Signature) -> Comparison:
    """Returns the differences. Keys that a signature of an earlier version lacks are not compared."""
    found = Comparison()
    pairs = _pairs(before, now)
    left = [each for number, each in enumerate(now) if number not in pairs.values()]
    for number, old in enumerate(before):
        if number in pairs:
            found.order.append(pairs[number])
            for fits, text in _differences(old, now[pairs[number]]):
                said = found.accepted if fits else found.refused
                if text not in said:  # both sides of a join can have the same windows
                    said.append(text)
            continue
        renamed = next((each for each in left if not any(_steps_differ(old, each))), None)
        if renamed is None:
            found.refused.append(f"INSERT INTO {old['into']} is missing")
        else:
            left.remove(renamed)
            found.refused.append(f"INSERT INTO {old['into']} has become INSERT INTO {renamed['into']}")
    found.refused += [f"INSERT INTO {each['into']} is new" for each in left]
    return found


def _pairs(before: Signature, now: Signature) -> dict[int, int]:
    """The position now of an INSERT of before: of those into one table, first the same one, then one that fits."""
    pairs: dict[int, int] = {}

    def pair(is_wanted: Any) -> None:
        for number, old in enumerate(before):
            if number in pairs:
                continue
            for other, new in enumerate(now):
                if other not in pairs.values() and old["into"] == new["into"] and is_wanted(old, new):
                    pairs[number] = other
                    break

    pair(lambda old, new: not any(True for _ in _differences(old, new)))
    pair(lambda old, new: all(fits for fits, _ in _differences(old, new)))
    pair(lambda old, new: [each["step"] for each in old["steps"]] == [each["step"] for each in new["steps"]])
    pair(lambda old, new: True)
    return pairs


def _steps_differ(old: dict[str, Any], new: dict[str, Any]) -> Iterator[bool]:
    for _ in _differences(old, new):
        yield True


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Whether the state fits, and what has changed."""
    head = f"INSERT INTO {now['into']}"
    old, new = before["steps"], now["steps"]
    kinds = [each["step"] for each in old]
    if kinds != [each["step"] for each in new]:
        yield False, f"{head}: it was {_listed(kinds)}, and is {_listed([each['step'] for each in new])}"
        return
    for one, other in zip(map(_instants, old), map(_instants, new), strict=True):
        for key in dict.fromkeys([*one, *other]):
            was, is_now = one.get(key), other.get(key)
            if was == is_now or (key in ADDED_LATER and None in (was, is_now)):
                continue
            if key in (*KEY_TYPES, *RESULT_TYPES) and _names_differ(one, other):
                continue  # another key or aggregate: its type says nothing more
            fits = key == WATERMARK_DELAY or _widens(was, is_now)
            note = " (it goes on)" if fits else ""
            yield fits, f"{head}: {one['step']}: {key} was {_shown(was)}, and is {_shown(is_now)}{note}"


def _instants(step: Step) -> Step:
    """The step with `window_time` as the TIMESTAMP that it was at first in all windows.

    In UTC, it has the same values as a TIMESTAMP_LTZ; another zone is a difference of the window.
    """
    found = dict(step)
    for key, value in step.items():
        if isinstance(value, list):
            names = step.get(_NAMES[key], value) if key in _NAMES else value
            found[key] = [
                str(each).replace("TIMESTAMP_LTZ", "TIMESTAMP") if _WINDOW_TIME.search(str(name)) else each
                for name, each in zip(names, value, strict=True)
            ]
    return found


def _names_differ(one: Step, other: Step) -> bool:
    return any(one.get(each) != other.get(each) for each in ("keys", "aggregates"))


def _widens(was: Any, is_now: Any) -> bool:
    """Whether these are the same columns, some of a wider type whose values have the same bytes."""
    if not (isinstance(was, list) and isinstance(is_now, list) and len(was) == len(is_now)):
        return False
    return all(one == other or _is_wider(str(one), str(other)) for one, other in zip(was, is_now, strict=True))


def _is_wider(was: str, is_now: str) -> bool:
    one, other = _TYPED.fullmatch(was), _TYPED.fullmatch(is_now)
    if one is None or other is None or one["name"] != other["name"]:
        return False
    old, new = one["type"], other["type"]
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    if old.startswith("VARCHAR") and new == "STRING":
        return True
    (kind, *sizes), (kind_now, *sizes_now) = (re.findall(r"\w+", each) for each in (old, new))
    if kind != kind_now or len(sizes) != len(sizes_now):
        return False
    return int(sizes[0]) <= int(sizes_now[0]) and sizes[1:] == sizes_now[1:]  # of a DECIMAL with the same scale


def _listed(kinds: list[str]) -> str:
    return " of ".join(reversed(kinds)) or "nothing"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)
