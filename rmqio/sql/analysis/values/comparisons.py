"""Comparisons, and CASE: operands become values of one type."""

from __future__ import annotations

from rmqio.sql import types
from rmqio.sql.analysis.values import conversions
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Conditional, Expr, Logical, Not, Operation
from rmqio.sql.syntax import nodes


def comparison(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Returns the comparison of two values of one type. Raises `Refusal` if they do not compare."""
    if operator in ("=", "<>") and left.type.kind == right.type.kind == "ROW":
        return _of_rows(operator, left, right, node)
    left, right = conversions.compared(left, right, node)
    if operator not in ("=", "<>") and left.type.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{left.type.text} has no order: {operator} cannot compare it", node.span)
    is_nullable = types.any_nullable((left.type, right.type))
    return Operation(types.BOOLEAN.nullable(is_nullable), operator, (left, right))


def _of_rows(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Rows are equal if all of their fields are: NULL if none of them differs, and one is unknown."""
    pairs = list(zip(_fields(left), _fields(right), strict=False))
    if len(left.type.elements) != len(right.type.elements) or not pairs:
        raise Refusal(f"{left.type.text} and {right.type.text} cannot be compared: they differ in length", node.span)
    parts = tuple(comparison("=", one, other, node) for one, other in pairs)
    kind = types.BOOLEAN.nullable(types.any_nullable(each.type for each in parts))
    found = parts[0] if len(parts) == 1 else Logical(kind, "AND", parts)
    return found if operator == "=" else Not(kind, found)


def _fields(row: Expr) -> tuple[Expr, ...]:
    if isinstance(row, Operation) and row.name == "ROW":
        return row.arguments
    return tuple(
        Operation(each.nullable(each.is_nullable or row.type.is_nullable), f"FIELD {index}", (row,))
        for index, each in enumerate(row.type.elements)
    )


def conditional(conditions: list[Expr], results: list[Expr]) -> Expr:
    """Returns CASE: one result more than conditions, all of one type."""
    parts = [each for pair in zip(conditions, results, strict=False) for each in pair]
    kind = results[0].type.nullable(types.any_nullable(each.type for each in results))
    return Conditional(kind, (*parts, results[-1]))
