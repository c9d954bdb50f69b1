"""Types of expressions: literals, CAST, operators, and the conversions that happen without being asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, TypeGuard

from rmqio.sql import types, values
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Conditional, Constant, Conversion, Expr, Logical, Operation
from rmqio.sql.rows import has_floats
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

# Arithmetic: which operator, on which type, gives which type. The rules for DECIMAL are Flink's.

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


def literal(node: nodes.Literal) -> Constant:
    """Returns the value of a literal. Raises `Refusal` if its text is not valid."""
    try:
        return _literal(node)
    except ValueFailure as error:
        raise Refusal(str(error), node.span) from None


def _literal(node: nodes.Literal) -> Constant:
    def constant(kind: SqlType, value: Any) -> Constant:
        return Constant(kind.nullable(value is None), value)

    match node.kind:
        case "number":
            return Constant(*_number(node.value, node))
        case "string":
            return Constant(_TEXT, node.value)
        case "binary":
            if len(node.value) % 2:
                raise ValueFailure(f"X'{node.value}' has an odd number of digits")
            return constant(types.BYTES, bytes.fromhex(node.value))
        case "boolean":
            return constant(types.BOOLEAN, node.value)
        case "date":
            return constant(types.DATE, values.date_of_text(node.value))
        case "time":
            return constant(_with_digits(types.TIME, node.value), values.time_of_text(node.value))
        case "timestamp":
            return constant(
                _with_digits(types.TIMESTAMP, node.value), values.timestamp_of_text(node.value, is_strict=True)
            )
    return Constant(types.NULL, None)


def _with_digits(kind: SqlType, text: str) -> SqlType:
    """The type of a literal: its fraction of a second has the digits that are written."""
    digits = text.strip().partition(".")[2]
    if digits.isdecimal() and digits[types.MAX_FRACTION :].strip("0"):
        raise ValueFailure(
            f"{kind.kind} {values.shown(text)} would lose digits: times are kept in microseconds, so write at most "
            f"{types.MAX_FRACTION} digits of the second's fraction"
        )
    return replace(kind, precision=min(len(digits), types.MAX_FRACTION))


_TEXT: Final = types.VARCHAR.nullable(False)
_WHOLE: Final = [(types.BITS[each.kind] - 1, each.nullable(False)) for each in (types.INTEGER, types.BIGINT)]


def _number(text: str, node: nodes.Literal) -> tuple[SqlType, Any]:
    if "e" in text.lower():
        return types.DOUBLE.nullable(False), float(text)
    if len(text) > 1000:
        raise Refusal("this number has more than 1000 digits", node.span)
    if "." not in text:
        number = int(text)
        for bits, kind in _WHOLE:
            if -(1 << bits) <= number < 1 << bits:
                return kind, number
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits), scale, min(scale + 1, types.MAX_DECIMAL))  # 0.25 has three digits, as in Flink
    if precision > types.MAX_DECIMAL:
        raise Refusal(f"{text} has more than {types.MAX_DECIMAL} digits; 1E0 makes it a DOUBLE", node.span)
    return types.decimal(precision, scale, False), exact or exact.copy_abs()  # no -0


# ---- implicit -------------------------------------------------------------------------------------------------------


def converted(expression: Expr, wanted: SqlType, node: nodes.Node) -> Expr:
    """Returns the expression as the wanted type, into which its own fits. Raises `Refusal` if it does not."""
    given = expression.type
    if given is wanted or same_but_null(given, wanted):
        return expression
    if isinstance(expression, Constant):
        if expression.value is None:
            return Constant(wanted.nullable(), None)
        if given.kind == "VARCHAR" and wanted.kind in _OF_TEXT:  # '2020-01-01' beside a date
            try:
                return fold(expression, wanted)
            except ValueFailure as error:
                raise Refusal(str(error), node.span) from None
    if not fits(given, wanted):
        raise Refusal(f"this is {given.text}, but {wanted.text} is needed: use CAST", node.span)
    return _conversion(expression, wanted.nullable(given.is_nullable or can_overflow(given, wanted)))


def _conversion(expression: Expr, wanted: SqlType) -> Expr:
    if isinstance(expression, Constant):
        return fold(expression, wanted)
    return Conversion(wanted, expression)


def fold(constant: Constant, wanted: SqlType) -> Constant:
    """Returns the constant as another type. Raises `ValueFailure` if its value does not fit."""
    if constant.value is None:
        return Constant(wanted.nullable(), None)
    from rmqio.sql.casts import caster  # needs the compiler's table of conversions

    value = caster(constant.type, wanted)(constant.value)
    return Constant(wanted.nullable(value is None), value)


_OF_TEXT: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")


def same_but_null(left: SqlType, right: SqlType) -> bool:
    """Returns whether the types differ in nothing, or in whether they can be NULL only."""
    return left.nullable() == right.nullable() or (left.kind == right.kind == "VARCHAR" and not right.precision)


def can_overflow(given: SqlType, wanted: SqlType) -> bool:
    """Returns whether a number can have too many digits for a DECIMAL, which makes it NULL."""
    if wanted.kind != "DECIMAL":
        return False
    if given.kind not in (*types.INTEGERS, "DECIMAL"):
        return True
    exact = types.as_decimal(given)
    return exact.precision - exact.scale > wanted.precision - wanted.scale


def fits(given: SqlType, wanted: SqlType) -> bool:
    """Returns whether every value of a type is one of the wanted type: what needs no CAST."""
    if given.kind == "NULL":
        return True
    if given.kind == wanted.kind:
        return given.kind not in ("ARRAY", "MAP", "ROW", "MULTISET") or _same_elements(given, wanted)
    if given.kind in types.INTEGERS and wanted.kind in types.INTEGERS:
        return types.BITS[given.kind] <= types.BITS[wanted.kind]
    if (given.kind, wanted.kind) == ("DOUBLE", "FLOAT"):
        return False
    if given.kind in types.NUMERIC:
        return wanted.kind in (*types.APPROXIMATE, "DECIMAL") and not (
            given.kind in types.APPROXIMATE and wanted.kind == "DECIMAL"
        )
    return (given.kind, wanted.kind) in {("DATE", "TIMESTAMP"), ("TIMESTAMP", "TIMESTAMP_LTZ")}


def _same_elements(given: SqlType, wanted: SqlType) -> bool:
    return len(given.elements) == len(wanted.elements) and all(
        fits(each, other) for each, other in zip(given.elements, wanted.elements, strict=True)
    )


def same_type(items: list[Expr], places: Sequence[nodes.Node], what: str, *, is_compared: bool = False) -> list[Expr]:
    """Returns the expressions as one type. Raises `Refusal` if there is none that holds all.

    Args:
      is_compared: how long their texts are at most makes no difference.
    """
    kinds = list(dict.fromkeys({id(each.type): each.type for each in items}.values()))  # hashes cost more than ids
    found = types.common_type(kinds)
    if found is None:
        dated = [each for each in kinds if each.kind in _OF_TEXT]
        found = types.common_type(dated) if dated else None
        if found is None or any(
            each.type.kind == "VARCHAR" and not isinstance(each, Constant) for each in items
        ):  # fmt: skip
            shown = " and ".join(dict.fromkeys(each.text for each in kinds))
            raise Refusal(f"{what} has values of {shown}, which have no common type: use CAST", places[-1].span)
    wanted = found.nullable(False), found.nullable()
    numbers = _numbers(items, found)
    if found.kind == "VARCHAR" and not is_compared:
        return [_as_text(each, wanted[each.type.is_nullable]) for each in items]
    return [
        Constant(wanted[False], numbers[id(each.type)](each.value))
        if isinstance(each, Constant) and id(each.type) in numbers
        else converted(each, wanted[each.type.is_nullable], at)
        for each, at in zip(items, places, strict=False)
    ]


def _as_text(expression: Expr, wanted: SqlType) -> Expr:
    """The expression with the length of all: who takes the type of the first one would not cut the others."""
    if expression.type.kind != "NULL" and (expression.type.precision, expression.type.is_fixed) == (
        wanted.precision,
        wanted.is_fixed,
    ):
        return expression
    return _conversion(expression, wanted)


def _numbers(items: Sequence[Expr], wanted: SqlType) -> dict[int, Any]:
    """The casts of constants that are integers, by the identity of their types: literals share them."""
    from rmqio.sql.casts import caster  # needs the compiler's table of conversions

    given = {id(each.type): each.type for each in items if isinstance(each, Constant) and each.value is not None}
    return {
        key: caster(each, wanted)
        for key, each in given.items()
        if each.kind in types.INTEGERS and wanted.kind in types.NUMERIC and not can_overflow(each, wanted)
    }


def compared(left: Expr, right: Expr, node: nodes.Node) -> tuple[Expr, Expr]:
    """Returns both as the type in which they are compared. Raises `Refusal` if they do not compare."""
    found = types.common_type((left.type, right.type))
    if found is None:
        for one, other in ((left, right), (right, left)):
            if one.type.kind == "VARCHAR" and other.type.kind in _OF_TEXT:
                found = other.type
        if found is None:
            raise Refusal(f"{left.type.text} and {right.type.text} cannot be compared: use CAST", node.span)
        left, right = (
            Conversion(found.nullable(), each, is_try=True)  # text that is no time is NULL, as in Flink
            if each.type.kind == "VARCHAR" and not isinstance(each, Constant)
            else each
            for each in (left, right)
        )
    pair = [converted(each, found.nullable(each.type.is_nullable), node) for each in (left, right)]
    if found.elements and has_floats(found):  # Python takes the same NaN in both as equal
        return Operation(pair[0].type, "DISTINCT NANS", (pair[0],)), pair[1]
    return pair[0], pair[1]


# ---- CAST -----------------------------------------------------------------------------------------------------------

_CASTS: Final[dict[str, tuple[str, ...]]] = {
    "BOOLEAN": ("VARCHAR", *types.NUMERIC),
    "VARCHAR": (*types.ORDERED, "ARRAY", "MAP", "ROW"),
    "VARBINARY": ("VARCHAR",),
    "DATE": ("VARCHAR", "TIMESTAMP", "TIMESTAMP_LTZ"),
    "TIME": ("VARCHAR", "TIMESTAMP", "TIMESTAMP_LTZ"),
    "TIMESTAMP": ("VARCHAR", "DATE", "TIME", "TIMESTAMP_LTZ"),
    "TIMESTAMP_LTZ": ("VARCHAR", "DATE", "TIMESTAMP"),
    **dict.fromkeys(types.NUMERIC, (*types.NUMERIC, "VARCHAR", "BOOLEAN")),
}
"""The types from which a type can be cast."""


def cast(operand: Expr, wanted: SqlType, node: nodes.Node, *, is_try: bool, is_conditional: bool = False) -> Expr:
    """Returns the CAST. Raises `Refusal` if there is none between the types.

    Args:
      is_conditional: not every row gets to it: one that always fails is an error of the rows that do.
    """
    given = operand.type
    if given.kind == "NULL":
        return Constant(wanted.nullable(), None)
    if not _can_be_cast(given, wanted):
        raise Refusal(f"there is no CAST of {given.text} to {wanted.text}{_instead(given, wanted)}", node.span)
    if given.nullable() == wanted.nullable() and given.kind not in ("ARRAY", "MAP", "ROW"):
        return operand
    if wanted.kind == "VARBINARY" and isinstance(operand, Operation) and operand.name == "FROM_BASE64":
        # text has replaced what is no UTF-8
        operand = replace(operand, type=types.BYTES.nullable(given.is_nullable), name="BYTES OF BASE64")
        return cast(operand, wanted, node, is_try=is_try)
    can_fail = is_try or (wanted.kind == "DECIMAL")  # a decimal that is too large is NULL
    wanted = wanted.nullable(given.is_nullable or can_fail)
    if isinstance(operand, Constant) and not is_try:
        try:
            return fold(operand, wanted)
        except ValueFailure as error:
            if not is_conditional:
                raise Refusal(f"this CAST always fails: {error}", node.span) from None
    return Conversion(wanted, operand, is_try)


def _can_be_cast(given: SqlType, wanted: SqlType) -> bool:
    if given.kind != wanted.kind:
        return given.kind in ("NULL", *_CASTS.get(wanted.kind, ()))
    return len(given.elements) == len(wanted.elements) and all(map(_can_be_cast, given.elements, wanted.elements))


def _instead(given: SqlType, wanted: SqlType) -> str:
    if given.kind in types.INTEGERS and wanted.kind in types.TIMESTAMPS:
        return ": use TO_TIMESTAMP_LTZ(number, 3)"
    if given.kind in types.TIMESTAMPS and wanted.kind in types.INTEGERS:
        return ": use UNIX_TIMESTAMP or TIMESTAMPDIFF"
    return ""


# Comparisons, and CASE: operands become values of one type.


def comparison(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Returns the comparison of two values of one type. Raises `Refusal` if they do not compare."""
    if operator == "=" and _is_row(left) and _is_row(right):
        return _of_rows(left, right, node)
    return _plain(operator, left, right, node)


def _plain(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    left, right = compared(left, right, node)
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
