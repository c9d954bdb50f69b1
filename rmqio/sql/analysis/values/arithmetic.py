"""Arithmetic: which operator, on which type, gives which type. The rules for DECIMAL are Flink's."""

from __future__ import annotations

from typing import Final

from rmqio.sql import types
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Conversion, Expr, Operation
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType

_WITH_TIME: Final = ("DATE", "TIME", *types.TIMESTAMPS)


def arithmetic(node: nodes.Binary, left: Expr, right: Expr) -> Expr:
    """Returns the operation. Raises `Refusal` if the types do not take it."""
    if left.type.kind == "NULL":
        left = Constant(right.type.nullable(), None)
    if right.type.kind == "NULL":
        right = Constant(left.type.nullable(), None)
    kinds = (left.type.kind, right.type.kind)
    if any(each in (*_WITH_TIME, *types.INTERVALS) for each in kinds):
        return _with_times(node, left, right)
    for side, at in ((left, node.left), (right, node.right)):
        if side.type.kind not in types.NUMERIC:
            raise Refusal(f"{node.operator} takes numbers, not {side.type.text}{_hint(side)}", at.span)
    found = types.common_type((left.type, right.type))
    assert found is not None
    if found.kind == "DECIMAL":
        return _decimals(node.operator, left, right)
    kind = found.nullable(types.any_nullable((left.type, right.type)))
    family = "INTEGER" if found.kind in types.INTEGERS else "DOUBLE"
    return Operation(kind, f"{family} {node.operator}", (_as(left, found), _as(right, found)))


def _as(side: Expr, wanted: SqlType) -> Expr:
    if side.type.kind == wanted.kind or (side.type.kind in types.INTEGERS and wanted.kind in types.INTEGERS):
        return side
    return Conversion(wanted.nullable(side.type.is_nullable), side)


def _hint(side: Expr) -> str:
    return ": use CAST(... AS BIGINT)" if side.type.kind == "VARCHAR" else ""


def _decimals(operator: str, left: Expr, right: Expr) -> Expr:
    one, other = types.as_decimal(left.type), types.as_decimal(right.type)
    match operator:
        case "+" | "-":
            scale = max(one.scale, other.scale)
            precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
        case "*":
            precision, scale = one.precision + other.precision + 1, one.scale + other.scale
        case "/":
            scale = max(6, one.scale + other.precision + 1)
            precision = one.precision - one.scale + other.scale + scale
        case _:
            scale = max(one.scale, other.scale)
            precision = min(one.precision - one.scale, other.precision - other.scale) + scale
            if scale == 0:
                precision = other.precision
    # A result of too many digits is NULL.
    kind = types.decimal(precision, scale)
    return Operation(kind, f"DECIMAL {operator}", (_as(left, one), _as(right, other)))


def _with_times(node: nodes.Binary, left: Expr, right: Expr) -> Expr:
    if node.operator == "+" and right.type.kind in _WITH_TIME:
        left, right = right, left
    kinds = (left.type.kind, right.type.kind)
    is_nullable = types.any_nullable((left.type, right.type))
    kind = left.type.nullable(is_nullable)
    if node.operator in "+-" and kinds[0] in _WITH_TIME and kinds[1] in types.INTERVALS:
        return _moved(node.operator, left, right, kind, node)
    if node.operator in "+-" and kinds[0] == kinds[1] and kinds[0] in types.INTERVALS:
        return Operation(kind, f"TIME {node.operator}", (left, right))
    if kinds[0] in types.INTERVALS and kinds[1] in types.INTEGERS and node.operator == "*":
        return Operation(kind, "INTEGER *", (left, right))
    if kinds[1] in types.INTERVALS and kinds[0] in types.INTEGERS and node.operator == "*":
        return Operation(right.type.nullable(is_nullable), "INTEGER *", (left, right))
    hint = ": use TIMESTAMPDIFF(unit, from, to)" if node.operator == "-" and kinds[0] in _WITH_TIME else ""
    raise Refusal(f"there is no {left.type.text} {node.operator} {right.type.text}{hint}", node.span)


def _moved(operator: str, time: Expr, interval: Expr, kind: SqlType, node: nodes.Binary) -> Expr:
    if interval.type.kind == "INTERVAL_MONTH":
        if time.type.kind == "TIME":
            raise Refusal("a TIME has no months", node.span)
        months = interval if operator == "+" else Operation(interval.type, "NEGATE", (interval,))
        name = "DATE + MONTHS" if time.type.kind == "DATE" else "TIMESTAMP + MONTHS"
        return Operation(kind, name, (time, months))
    if time.type.kind == "TIME":  # it goes on at midnight
        moved = interval if operator == "+" else Operation(interval.type, "NEGATE", (interval,))
        return Operation(kind, "TIME OF DAY +", (time, moved))
    if time.type.kind == "DATE":  # an interval of days leaves it a date
        if isinstance(interval, Constant) and interval.value is not None and interval.value % 86_400_000_000 == 0:
            days = Constant(types.INTERVAL_DAY.nullable(False), interval.value // 86_400_000_000)
            return Operation(kind, f"TIME {operator}", (time, days))
        raise Refusal("only whole days can be added to a DATE: CAST it to TIMESTAMP first", node.span)
    return Operation(kind, f"TIME {operator}", (time, interval))
