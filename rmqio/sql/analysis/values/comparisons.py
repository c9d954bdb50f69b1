"""Comparisons, and CASE: operands become values of one type."""

from __future__ import annotations

from typing import TypeGuard

from rmqio.sql import types
from rmqio.sql.analysis.values import conversions
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Conditional, Expr, Logical, Operation
from rmqio.sql.syntax import nodes


def comparison(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Returns the comparison of two values of one type. Raises `Refusal` if they do not compare."""
    if operator == "=" and _is_row(left) and _is_row(right):
        return _of_rows(left, right, node)
    return _plain(operator, left, right, node)


def _plain(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    left, right = conversions.compared(left, right, node)
    if operator not in ("=", "<>") and left.type.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{left.type.text} has no order: {operator} cannot compare it", node.span)
    is_nullable = types.any_nullable((left.type, right.type))
    return Operation(types.BOOLEAN.nullable(is_nullable), operator, (left, right))


def _is_row(expression: Expr) -> TypeGuard[Operation]:
    return isinstance(expression, Operation) and expression.name == "ROW"


def _of_rows(left: Operation, right: Operation, node: nodes.Expression) -> Expr:
    """Rows that are written are equal if all of their values are: NULL if none of them differs, and one is unknown.

    As in Flink, rows of columns, and in other rows, are compared as values, in which NULL is equal to NULL.
    """
    if len(left.arguments) != len(right.arguments):
        raise Refusal(f"{left.type.text} and {right.type.text} cannot be compared: they differ in length", node.span)
    parts = tuple(_plain("=", one, other, node) for one, other in zip(left.arguments, right.arguments, strict=True))
    kind = types.BOOLEAN.nullable(types.any_nullable(each.type for each in parts))
    return parts[0] if len(parts) == 1 else Logical(kind, "AND", parts)


def conditional(conditions: list[Expr], results: list[Expr]) -> Expr:
    """Returns CASE: one result more than conditions, all of one type."""
    parts = [each for pair in zip(conditions, results, strict=False) for each in pair]
    kind = results[0].type.nullable(types.any_nullable(each.type for each in results))
    return Conditional(kind, (*parts, results[-1]))
