"""The limits of ranks: conditions on the number of a row, such as `rn <= 3`.

A rank that nothing limits is computed like RANK(), of all rows of a partition: its input must end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqio.sql.analysis.ranks.forms import Form, form_of
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Operation, all_of, conjuncts
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Calc, Rank, Relation, Windowed
from rmqio.sql.planning.relations import Analytic, AnalyticCall, without_time

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
