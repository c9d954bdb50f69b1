"""Functions whose calls need more than the types of the arguments: constants among them, or the types at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from rmqio.sql import types
from rmqio.sql.analysis.values import intervals
from rmqio.sql.analysis.values.conversions import cast
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Conversion, Expr, Operation
from rmqio.sql.functions.text.printf import check_format
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure


class CallOf(Protocol):
    """Finds the function for the arguments, see `functions.call_of`."""

    def __call__(
        self, name: str, arguments: list[Expr], node: nodes.Node, given: Sequence[Expr] | None = None, /
    ) -> Expr:
        """Returns the call. Raises `Refusal`."""


Special = Callable[[nodes.Call, Any, CallOf], Expr]
"""Binds a call: with the binder of its arguments, and what finds the function for those."""


def _date_format(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    given = [binder.bind(each) for each in node.arguments]
    arguments = list(given)
    if arguments and arguments[0].type.kind == "TIMESTAMP_LTZ":
        arguments[0] = intervals.local(arguments[0])
    return call_of("DATE_FORMAT", arguments, node, given)


def _of_dates(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    """Timestamps become dates."""
    given = [binder.bind(each) for each in node.arguments]
    arguments: list[Expr] = []
    for each in given:
        is_time = each.type.kind in types.TIMESTAMPS
        arguments.append(Conversion(types.DATE.nullable(each.type.is_nullable), each) if is_time else each)
    return call_of(node.name.text.upper(), arguments, node, given)


def _rounded(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    name = node.name.text.upper()
    arguments = [binder.bind(each) for each in node.arguments]
    found = call_of(name, arguments, node)
    given = arguments[0].type
    if given.kind in types.INTEGERS and len(arguments) > 1 and isinstance(found, Operation):  # 127 becomes 130
        return Conversion(found.type, replace(found, type=types.decimal(types.MAX_DECIMAL, 0, found.type.is_nullable)))
    if given.kind != "DECIMAL":
        return found
    digits = arguments[1] if len(arguments) > 1 else Constant(types.INTEGER, 0)
    if not isinstance(digits, Constant) or digits.value is None:  # the digits differ: as many as before are shown
        return _rounded_decimal(found, given) if isinstance(found, Operation) else found
    if digits.value >= given.scale:
        return found
    scale = max(0, digits.value)
    precision = 1 + given.precision - given.scale + scale
    kind = types.decimal(precision, scale, found.type.is_nullable)
    if precision > types.MAX_DECIMAL and name == "ROUND":
        return _rounded_decimal(found, kind)
    return replace(found, type=kind)


def _rounded_decimal(found: Expr, kind: SqlType) -> Expr:
    """A number that rounding has made too long is NULL, as in Flink."""
    wide = types.decimal(types.MAX_DECIMAL, kind.scale, found.type.is_nullable)
    return Conversion(kind.nullable(), replace(found, type=wide), is_try=True)


def _floor_or_ceil(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    name = "FLOOR" if node.name.text.upper() == "FLOOR" else "CEIL"
    given = node.arguments[0] if len(node.arguments) == 1 else None
    if isinstance(given, nodes.ToUnit):
        return intervals.rounded(name, given, binder)
    return call_of(name, [binder.bind(each) for each in node.arguments], node)


def _type_of(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    if not 1 <= len(node.arguments) <= 2:
        raise Refusal("TYPEOF takes one argument", node.span)
    return Constant(types.VARCHAR.nullable(False), str(binder.bind(node.arguments[0]).type))


def _printf(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    """Numbers and BOOLEANs are formatted as they are, and everything else as its text."""
    bound = [binder.bind(each) for each in node.arguments]
    text, values = bound[:1], bound[1:]
    if text and isinstance(text[0], Constant) and isinstance(text[0].value, str):
        kinds = [
            (each.type.text, each.type.kind in types.INTEGERS, each.type.kind in ("DECIMAL", *types.APPROXIMATE))
            for each in values
        ]
        try:
            check_format(text[0].value, kinds)
        except ValueFailure as error:
            raise Refusal(str(error), node.arguments[0].span) from None
    plain = ("NULL", "BOOLEAN", "VARCHAR", *types.NUMERIC)
    shown = [
        each if each.type.kind in plain else cast(each, types.VARCHAR, at, is_try=False)
        for each, at in zip(values, node.arguments[1:], strict=True)
    ]
    return call_of("PRINTF", [*text, *shown], node, bound)


SPECIAL: Final[dict[str, Special]] = {
    **dict.fromkeys(("LAST_DAY", "DATE_ADD", "DATE_SUB", "DATEDIFF"), _of_dates),
    "DATE_FORMAT": _date_format, "FLOOR": _floor_or_ceil, "CEIL": _floor_or_ceil, "CEILING": _floor_or_ceil,
    "ROUND": _rounded, "TRUNCATE": _rounded, "TYPEOF": _type_of, "PRINTF": _printf,
}  # fmt: skip
