"""The limits of ranks: conditions on the number of a row, such as `rn <= 3`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqio.sql.analysis.ranks.forms import Form, form_of
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Operation, all_of, conjuncts
from rmqio.sql.planning.plan import Aggregate, Calc, Rank, Relation, Windowed

MOST_ROWS: Final = 10_000
"""Rows of a partition that are kept, and sorted whenever one comes."""
WAY_OUT: Final = "WHERE rn <= 10, where rn is its name, in a query around"
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
        found, is_all = _limit(each, len(rank.fields) - 1)
        if not is_all:
            rest.append(each)
        if found:
            limit = min(limit or found, found)
    if not limit:
        return relation
    return replace(relation, input=replace(rank, limit=limit), condition=all_of(rest))


def _limit(condition: Expr, number: int) -> tuple[int, bool]:
    """The limit that a condition is, and whether it says no more; 0: it is another condition."""
    if not isinstance(condition, Operation) or condition.name not in _FLIPPED:
        return 0, False
    left, right = map(_plain, condition.arguments)
    operator = condition.name
    if isinstance(left, Constant):
        left, right, operator = right, left, _FLIPPED[operator]
    if not isinstance(left, InputRef) or left.index != number or not isinstance(right, Constant):
        return 0, False
    bound = right.value
    if not isinstance(bound, int) or operator not in ("<", "<=", "="):
        return 0, False
    limit = bound - 1 if operator == "<" else bound
    return (limit, operator != "=" or limit == 1) if limit >= 1 else (0, False)


def _plain(expression: Expr) -> Expr:
    while isinstance(expression, Conversion):
        expression = expression.operand
    return expression


def check_limits(relation: Relation, within: Span | None, *, is_in_window: bool = False) -> None:
    """Raises `Refusal` for a rank that no condition limits, with its place, if that is in the statement."""
    is_window = isinstance(relation, Windowed) or (isinstance(relation, Aggregate) and relation.window is not None)
    for each in relation.inputs():
        check_limits(each, within, is_in_window=is_in_window or is_window)
    if not isinstance(relation, Rank):
        return
    span = relation.span
    if within is None or span is None or not (within.start <= span.start and span.end <= within.end):
        span = within
    if not relation.limit:
        raise Refusal(f"ROW_NUMBER() of all rows would keep all of them: it needs {WAY_OUT}", span)
    if is_in_window and form_of(relation) is Form.UPDATES:
        raise Refusal(
            "no watermark follows the times of first rows that change: of the first row by time, it does", span
        )
    if relation.limit > MOST_ROWS:
        raise Refusal(
            f"{relation.limit} rows of each partition would be kept and sorted: at most {MOST_ROWS} are", span
        )
