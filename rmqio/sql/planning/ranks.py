"""Ranks in a plan: their forms, each of which has its own way to run, and conditions such as `rn <= 3` on them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import Final

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Operation, all_of, conjuncts
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Calc, Rank, Relation, SortKey, Window, Windowed
from rmqio.sql.planning.relations import Analytic, AnalyticCall, without_time
from rmqio.sql.planning.watermarks import window_columns

# Forms of ranks, by what they are ordered and divided by: each has its own way to run.

WINDOW_START, WINDOW_END, WINDOW_TIME = range(3)
OFFSET = "$offset"
"""The name of the column by which rows that are equal in ORDER BY are in the order of their queue."""


class Form(Enum):
    """How the rows of a rank come, of an input that does not end."""

    WINDOW = auto()
    """The first rows of a window: they come once, when the watermark passes the window."""
    FIRST = auto()
    """The first row by event time: it comes once, when the watermark passes its time."""
    SEEN = auto()
    """The first row by processing time: it comes once, and at once."""
    UPDATES = auto()
    """The first rows so far: they come again whenever they change."""


def form_of(rank: Rank) -> Form:
    """Returns the form of a rank that has its limit."""
    if window_end(rank) is not None:
        return Form.WINDOW
    order = stated_order(rank)
    if rank.limit == 1 and len(order) == 1 and not order[0].is_descending:
        time = rank.input.fields[order[0].column]
        if time.is_time:
            return Form.FIRST
        if time.is_processing:
            return Form.SEEN
    return Form.UPDATES


def stated_order(rank: Rank) -> list[SortKey]:
    """Returns what ORDER BY says."""
    return [each for each in rank.order if rank.input.fields[each.column].name != OFFSET]


def is_by_arrival(rank: Rank) -> bool:
    """Returns whether rows are ordered by PROCTIME(): of equal times, the order of arrival counts."""
    return len(rank.order) == 1 and rank.input.fields[rank.order[0].column].is_processing


def window_end(rank: Rank) -> int | None:
    """Returns the position of the column with the end of the window, if a rank is one of windows of event time."""
    found = {window_column(rank.input, each): each for each in rank.keys}
    return found.get(WINDOW_END) if WINDOW_START in found else None


def window_column(relation: Relation, position: int) -> int | None:
    """Returns which column of a window of event time a column is: start, end or time; None: none of them."""
    found = window_and_column(relation, position)
    return None if found is None else found[1]


def window_and_column(relation: Relation, position: int) -> tuple[Window, int] | None:
    """Returns the window of event time that a column is of, and which one it is; None: it is of none."""
    match relation:
        case Calc():
            expression = relation.projections[position]
            return window_and_column(relation.input, expression.index) if isinstance(expression, InputRef) else None
        case Rank():
            below = position < len(relation.input.fields) and form_of(relation) is Form.WINDOW
            return window_and_column(relation.input, position) if below else None
        case Windowed():
            return _of_window(relation.window, position - len(relation.input.fields))
        case Aggregate(window=window, emit=None) if window is not None:
            if position < len(relation.keys):
                return window_and_column(relation.input, relation.keys[position])
            return _of_window(window, position - len(relation.keys))
    return window_columns(relation).get(position)


def _of_window(window: Window, position: int) -> tuple[Window, int] | None:
    return (window, position) if 0 <= position <= WINDOW_TIME and not window.is_processing else None


MOST_ROWS: Final = 10_000
"""Rows of a partition that are kept, and sorted whenever one comes."""
WAY_OUT: Final = "WHERE rn <= 10, where rn is its name, in an outer query"
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def with_limits(relation: Relation) -> Relation:
    """Returns the plan whose ranks have the limits that the conditions on their numbers say."""
    relation = relation.with_inputs(tuple(map(with_limits, relation.inputs())))
    if not isinstance(relation, Calc) or not isinstance(relation.input, Rank) or relation.input.limit:
        return relation
    rank = relation.input
    rest: list[Expr] = []
    limit = 0
    for each in conjuncts(relation.condition):
        bound, operator = _bound(each, len(rank.fields) - 1)
        if bound is not None and bound < 1:
            written = f"{operator} {bound + (operator == '<')}"
            raise Refusal(
                f"ROW_NUMBER() begins at 1, and {written} holds for no row: {WAY_OUT}, keeps the first 10",
                rank.span,
            )
        found, is_all = bound or 0, operator != "=" or bound == 1
        if bound is None or not is_all:
            rest.append(each)
        if found:
            limit = min(limit or found, found)
    if not limit:
        return relation
    return replace(relation, input=replace(rank, limit=limit), condition=all_of(rest))


def without_limits(relation: Relation) -> Relation:
    """Returns the plan whose ranks without a limit are numbers in whole partitions."""
    relation = relation.with_inputs(tuple(map(without_limits, relation.inputs())))
    if not isinstance(relation, Rank) or relation.limit:
        return relation
    *fields, number = relation.fields
    call = AnalyticCall(AggregateCall("ROW_NUMBER", number.type))
    numbered = (*without_time(tuple(fields)), number)
    return Analytic(numbered, relation.input, relation.keys, relation.order, (call,), relation.span or Span(0, 0))


def _bound(condition: Expr, number: int) -> tuple[int | None, str]:
    """The greatest number that a condition leaves, and its operator; None: it is another condition."""
    if not isinstance(condition, Operation) or condition.name not in _FLIPPED:
        return None, ""
    left, right = map(_plain, condition.arguments)
    operator = condition.name
    if isinstance(left, Constant):
        left, right, operator = right, left, _FLIPPED[operator]
    if not isinstance(left, InputRef) or left.index != number or not isinstance(right, Constant):
        return None, ""
    bound = right.value
    if not isinstance(bound, int) or operator not in ("<", "<=", "="):
        return None, ""
    return (bound - 1 if operator == "<" else bound), operator


def _plain(expression: Expr) -> Expr:
    while isinstance(expression, Conversion):
        expression = expression.operand
    return expression


def check_limits(relation: Relation, within: Span | None, *, is_in_window: bool = False) -> None:
    """Raises `Refusal` for a rank of too many rows, or one below a window, at its place if that is in the statement."""
    is_window = isinstance(relation, Windowed) or (isinstance(relation, Aggregate) and relation.window is not None)
    for each in relation.inputs():
        check_limits(each, within, is_in_window=is_in_window or is_window)
    if not isinstance(relation, Rank | Analytic):
        return
    span: Span | None = relation.span
    if within is None or span is None or not (within.start <= span.start and span.end <= within.end):
        span = within
    if is_in_window and (isinstance(relation, Analytic) or form_of(relation) is Form.UPDATES):
        raise Refusal("first rows that change have no watermark; only the first row by time has one", span)
    if isinstance(relation, Rank) and relation.limit > MOST_ROWS:
        raise Refusal(
            f"{relation.limit} rows of each partition would be kept and sorted; at most {MOST_ROWS} are allowed", span
        )
