"""Comparisons, and CASE: operands become values of one type."""

from __future__ import annotations

from rmqio.sql import types
from rmqio.sql.analysis.values import conversions
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Conditional, Expr, Operation
from rmqio.sql.syntax import nodes


def comparison(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Returns the comparison of two values of one type. Raises `Refusal` if they do not compare."""
    left, right = conversions.compared(left, right, node)
    if operator not in ("=", "<>") and left.type.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{left.type.text} has no order: {operator} cannot compare it", node.span)
    is_nullable = types.any_nullable((left.type, right.type))
    return Operation(types.BOOLEAN.nullable(is_nullable), operator, (left, right))


def conditional(conditions: list[Expr], results: list[Expr]) -> Expr:
    """Returns CASE: one result more than conditions, all of one type."""
    parts = [each for pair in zip(conditions, results, strict=False) for each in pair]
    kind = results[0].type.nullable(types.any_nullable(each.type for each in results))
    return Conditional(kind, (*parts, results[-1]))
