"""Times of rows in a plan: bounds of joins by the watermark, and by how much rows can be behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql import types
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Operation
from rmqio.sql.planning.plan import (
    SAME_WINDOW,
    WINDOW_COLUMNS,
    Aggregate,
    Calc,
    Interval,
    Join,
    Relation,
    SameWindow,
    Union,
    Window,
    Windowed,
)

# By how much the times of a relation's rows can be behind the watermark.
#
# The rows of a table are not: what is older than the watermark is late. A row of an interval join is there when its
# last partner has come, and then its first one is older. Windows over such rows wait for as much longer.

_MS: Final = 1000
LEAST_BUCKET_US: Final = 1_000_000
"""Rows of a key are kept and forgotten together that are so near to each other."""


def delay_us(*relations: Relation) -> int:
    """Returns the microseconds, a whole number of milliseconds: the most of some relations."""
    return max(map(_delay_us, relations), default=0)


def _delay_us(relation: Relation) -> int:
    inputs = delay_us(*relation.inputs())
    if isinstance(relation, Join) and isinstance(relation.bound, Interval):
        return inputs + _own_delay_us(relation.kind, relation.bound)
    return inputs


def delayed(aggregate: Aggregate) -> Aggregate:
    """Returns the aggregate, whose window waits for rows that are behind the watermark."""
    if aggregate.window is None:
        return aggregate
    return replace(aggregate, window=replace(aggregate.window, delay_us=delay_us(aggregate.input)))


def bucket_us(kind: str, bound: Interval) -> int:
    """Returns the size of the pieces of time by which an interval join keeps its rows.

    A row of an outer side waits until the end of its piece. So it is half the interval there, as Flink does it.
    """
    width = bound.upper_us - bound.lower_us
    return max(LEAST_BUCKET_US, _up(width if kind == "INNER" else width // 2))


def kept_us(kind: str, bound: Interval) -> int:
    """Returns how long after the end of its piece of time the piece is kept: until no partner can come."""
    later = {"LEFT": bound.upper_us, "INNER": bound.upper_us, "RIGHT": -bound.lower_us}
    most = later.get(kind, max(bound.upper_us, -bound.lower_us))
    return _up(max(most, 0)) + _MS


def _own_delay_us(kind: str, bound: Interval) -> int:
    apart = _up(max(bound.upper_us, -bound.lower_us, 0))
    return apart if kind == "INNER" else max(apart, bucket_us(kind, bound) + kept_us(kind, bound))


def _up(micros: int) -> int:
    return -(-micros // _MS) * _MS


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Bounds of the distance of two time columns, right minus left, in microseconds."""

    interval: Interval | None
    used: tuple[Expr, ...] = ()
    """The conditions that the interval says completely."""
    missing: tuple[int, int, str] | None = None
    """If there is no interval, but one end of it: the two columns, and which end is missing."""


def time_bounds(conditions: Sequence[Expr], left: Relation, right: Relation) -> TimeBounds:
    """Returns the interval that the conditions bound on both ends, between columns that the watermark follows."""
    width = len(left.fields)
    lower: dict[tuple[int, int], int] = {}
    upper: dict[tuple[int, int], int] = {}
    used: dict[tuple[int, int], list[Expr]] = {}
    for each in conditions:
        found = _distance(each, width)
        if found is None:
            continue
        one, other, operator, micros = found
        if not left.fields[one].is_time or not right.fields[other].is_time:
            continue
        pair = one, other
        used.setdefault(pair, []).append(each)
        if operator in (">", ">=", "="):
            least = micros + (operator == ">")
            lower[pair] = max(least, lower.get(pair, least))
        if operator in ("<", "<=", "="):
            most = micros - (operator == "<")
            upper[pair] = min(most, upper.get(pair, most))
    for pair in used:
        if pair in lower and pair in upper:
            return TimeBounds(Interval(*pair, lower[pair], upper[pair]), tuple(used[pair]))
    if not used:
        return TimeBounds(None)
    one, other = next(iter(used))
    end = "after" if (one, other) in lower else "before"
    return TimeBounds(None, (), (one, len(left.fields) + other, end))


def _distance(condition: Expr, width: int) -> tuple[int, int, str, int] | None:
    """The left column, the right one, and `right - left operator microseconds`, if the condition says that."""
    if not isinstance(condition, Operation) or condition.name not in _FLIPPED:
        return None
    one, other = map(_shifted_column, condition.arguments)
    if one is None or other is None:
        return None
    operator = condition.name
    if one[0] >= width > other[0]:
        one, other = other, one
    else:
        operator = _FLIPPED[operator]
    if not one[0] < width <= other[0]:
        return None
    # other + b operator one + a
    return one[0], other[0] - width, operator, one[1] - other[1]


def _shifted_column(expression: Expr) -> tuple[int, int] | None:
    """The position of a column, and by how many microseconds the expression is after it."""
    micros = 0
    while not isinstance(expression, InputRef):
        if isinstance(expression, Conversion) and expression.operand.type.kind == expression.type.kind:
            if expression.operand.type.precision > expression.type.precision:
                return None
            expression = expression.operand
            continue
        if not isinstance(expression, Operation) or expression.name not in ("TIME +", "TIME -"):
            return None
        time, interval = expression.arguments
        found = _constant_us(interval)
        if found is None:
            return None
        micros += found if expression.name == "TIME +" else -found
        expression = time
    return (expression.index, micros) if expression.type.kind in types.TIMESTAMPS else None


def _constant_us(expression: Expr) -> int | None:
    """The microseconds of an interval of days to seconds that is known, also a sum of such."""
    if expression.type.kind != "INTERVAL_DAY":
        value = expression.value if isinstance(expression, Constant) else None
        return value if isinstance(value, int) else None
    match expression:
        case Constant(value=int() as value):
            return value
        case Operation(name="NEGATE"):
            inner = _constant_us(expression.arguments[0])
            return None if inner is None else -inner
        case Operation(name="TIME +" | "TIME -" | "INTEGER *"):
            one, other = map(_constant_us, expression.arguments)
            if one is None or other is None:
                return None
            if expression.name == "INTEGER *":
                return one * other
            return one + other if expression.name == "TIME +" else one - other
    return None


# ---- windows --------------------------------------------------------------------------------------------------------


def same_window(keys: Iterable[tuple[int, int]], left: Relation, right: Relation) -> SameWindow | None:
    """Returns the window of both sides, if the keys have its start and its end."""
    of_left, of_right = window_columns(left), window_columns(right)
    found: dict[Window, dict[int, tuple[int, int]]] = {}
    for one, other in keys:
        if one in of_left and of_left[one] == of_right.get(other):
            window, column = of_left[one]
            found.setdefault(window, {})[column] = (one, other)
    for window, columns in found.items():
        if 0 in columns and 1 in columns:
            return SameWindow(window, *columns[1])
    return None


def half_window(keys: Iterable[tuple[int, int]], left: Relation, right: Relation) -> str:
    """Returns why keys that are starts and ends of windows make no window join; empty: there are no such keys."""
    of_left, of_right = window_columns(left), window_columns(right)
    for one, other in keys:
        if one in of_left and other in of_right:
            if of_left[one][0] != of_right[other][0]:
                return "of equal windows, but these two differ"
            if of_left[one] == of_right[other]:
                return f"there is {WINDOW_COLUMNS[of_left[one][1]]} only"
    return ""


def window_columns(relation: Relation) -> dict[int, tuple[Window, int]]:
    """Returns the columns that hold a start (0), end (1) or time (2) of a window, which the watermark follows."""
    match relation:
        case Windowed():
            width = len(relation.input.fields)
            return {width + each: (_plain(relation.window), each) for each in range(3)}
        case Aggregate() if relation.emit is not None:  # its rows come again
            return {}
        case Aggregate(window=Window(is_processing=True)):  # the clock says when they come
            return {}
        case Aggregate():
            inner = window_columns(relation.input)
            keys = {i: inner[each] for i, each in enumerate(relation.keys) if each in inner}
            if relation.window is None:  # its rows come at the end, or when they change
                return {}
            if relation.window.kind in ("SESSION", SAME_WINDOW):
                return keys
            return keys | {len(relation.keys) + each: (_plain(relation.window), each) for each in range(3)}
        case Calc():
            inner = window_columns(relation.input)
            return {
                i: inner[each.index]
                for i, each in enumerate(relation.projections)
                if isinstance(each, InputRef) and each.index in inner
            }
        case Join(bound=Interval() | SameWindow()):
            width = len(relation.left.fields)
            left = window_columns(relation.left) if relation.kind in ("INNER", "LEFT") else {}
            right = window_columns(relation.right) if relation.kind in ("INNER", "RIGHT") else {}
            return left | {width + each: found for each, found in right.items()}
        case Union():
            first, *others = map(window_columns, relation.members)
            return {each: found for each, found in first.items() if all(o.get(each) == found for o in others)}
    return {}


def _plain(window: Window) -> Window:
    return replace(window, time=0, delay_us=0, zone=window.local_zone)
