"""Intervals, and the functions that take a unit of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.errors import Refusal, listed
from rmqio.sql.expressions import Constant, Conversion, Expr, Operation
from rmqio.sql.functions.time.fields import FIELDS, SPAN_FIELDS, TIME_FIELDS
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.expression_builder import UNITS, unit_named

MICROSECONDS: Final = {
    "MILLISECOND": 1000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}  # fmt: skip
MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MOST_CHARACTERS: Final = 100
_DAY_TO_SECOND: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval(node: nodes.Interval) -> Constant:
    """Returns the interval in microseconds or in months. Raises `Refusal` if its text does not fit its units."""
    if len(node.text) > _MOST_CHARACTERS:  # Python converts no more than 4,300 digits
        raise Refusal(f"an interval has at most {_MOST_CHARACTERS} characters", node.span)
    found = _interval(node)
    bits = 31 if found.type.kind == "INTERVAL_MONTH" else 63  # as in Flink, whose intervals of days are milliseconds
    if abs(found.value) >> bits:
        raise Refusal(f"'{node.text}' is too long for an interval", node.span)
    return found


def _interval(node: nodes.Interval) -> Constant:
    text, sign = node.text.strip(), -1 if node.is_negative else 1
    if text[:1] in ("+", "-"):
        sign, text = -sign if text[0] == "-" else sign, text[1:]
    if node.unit in MONTHS:
        return Constant(types.INTERVAL_MONTH.nullable(False), sign * _months(node, text))
    return Constant(types.INTERVAL_DAY.nullable(False), sign * _microseconds(node, text))


def _months(node: nodes.Interval, text: str) -> int:
    if node.to is not None:
        found = re.fullmatch(r"(\d+)-(\d+)", text)
        if (node.unit, node.to) != ("YEAR", "MONTH") or not found or int(found[2]) > 11:
            raise Refusal(f"'{node.text}' is not an interval {node.unit} TO {node.to}", node.span)
        return int(found[1]) * 12 + int(found[2])
    if not text.isdecimal():
        raise Refusal(f"'{node.text}' is not a whole number of {node.unit.lower()}s", node.span)
    return int(text) * MONTHS[node.unit]


def _microseconds(node: nodes.Interval, text: str) -> int:
    if node.to is not None:
        return _from_to(node, text)
    pattern, kind = r"\d+", f"a whole number of {node.unit.lower()}s"
    if node.unit == "SECOND":
        pattern, kind = r"\d+(?:\.\d{1,6})?", "a number of seconds, with at most 6 digits of a fraction"
    if not re.fullmatch(pattern, text):
        raise Refusal(f"'{node.text}' is not {kind}", node.span)
    whole, _, fraction = text.partition(".")
    return int(whole) * MICROSECONDS[node.unit] + int(f"{fraction}000000"[:6])


def _from_to(node: nodes.Interval, text: str) -> int:
    wrong = Refusal(f"'{node.text}' is not an interval {node.unit} TO {node.to}", node.span)
    if node.unit not in _DAY_TO_SECOND or node.to not in _DAY_TO_SECOND:
        raise wrong
    units = _DAY_TO_SECOND[_DAY_TO_SECOND.index(node.unit) : _DAY_TO_SECOND.index(node.to) + 1]
    parts = re.split(r"[ :]", text)
    if len(units) < 2 or len(parts) != len(units):
        raise wrong
    total = 0
    for unit, part in zip(units, parts, strict=True):
        total += _microseconds(nodes.Interval(part, unit, None, False, span=node.span), part)
    return total


# ---- functions ------------------------------------------------------------------------------------------------------

Special = Callable[[nodes.Call, Any], Expr]


def local(instant: Expr) -> Expr:
    """Returns the TIMESTAMP in the session's zone of a TIMESTAMP_LTZ."""
    return Operation(replace(instant.type, kind="TIMESTAMP"), "LOCAL OF INSTANT", (instant,))


def unit_argument(node: nodes.Expression, more: tuple[str, ...] = ()) -> str:
    """Returns the unit of time that stands as an argument. Raises `Refusal`."""
    if isinstance(node, nodes.Unit):
        text = node.unit.upper().removeprefix("SQL_TSI_")
    elif isinstance(node, nodes.Literal) and node.kind == "string":
        text = node.value.upper()
    else:
        raise Refusal(f"a unit of time is expected here: {', '.join(UNITS)}", node.span)
    return text if text in more else unit_named(text, node.span)


def _extract(node: nodes.Call, binder: Any) -> Expr:
    if len(node.arguments) != 2:
        raise Refusal("EXTRACT is written EXTRACT(unit FROM time)", node.span)
    return _extracted(unit_argument(node.arguments[0], FIELDS), binder.bind(node.arguments[1]), node)


def _extracted(unit: str, operand: Expr, node: nodes.Node) -> Expr:
    kind = operand.type.kind
    if kind == "NULL":
        return Constant(types.BIGINT, None)
    if kind in types.INTERVALS:
        known = [each for each, (of, _, _) in SPAN_FIELDS.items() if of == kind]
        if unit not in known:
            raise Refusal(f"{operand.type.text} has no {unit}: it has {listed(known, 'and')}", node.span)
        return Operation(types.BIGINT.nullable(operand.type.is_nullable), f"EXTRACT {unit} OF INTERVAL", (operand,))
    if kind not in ("DATE", "TIME", *types.TIMESTAMPS) or (kind == "TIME" and unit not in TIME_FIELDS):
        raise Refusal(f"{unit} takes a DATE or a TIMESTAMP, not {operand.type.text}", node.span)
    if kind == "TIMESTAMP_LTZ" and unit != "EPOCH":
        operand = local(operand)
    name = f"EXTRACT {unit} OF {'TIMESTAMP' if kind in types.TIMESTAMPS else kind}"
    return Operation(types.BIGINT.nullable(operand.type.is_nullable), name, (operand,))


def _part(unit: str) -> Special:
    def bind(node: nodes.Call, binder: Any) -> Expr:
        if len(node.arguments) != 1:
            raise Refusal(f"{unit} takes one argument, a time", node.span)
        return _extracted(unit, binder.bind(node.arguments[0]), node)

    return bind


def rounded(name: str, given: nodes.ToUnit, binder: Any) -> Expr:
    """Returns FLOOR or CEIL of a time to a unit. Raises `Refusal` if it is not a time."""
    operand = binder.bind(given.operand)
    kind = operand.type.kind
    if kind == "NULL":
        return Constant(types.TIMESTAMP, None)
    if kind not in ("DATE", "TIME", *types.TIMESTAMPS):
        raise Refusal(f"{name} TO rounds a time, not {operand.type.text}", given.operand.span)
    if kind == "TIME" and given.unit not in TIME_FIELDS:
        raise Refusal(f"a TIME has no {given.unit}", given.span)
    unit = Constant(types.VARCHAR.nullable(False), given.unit)
    return Operation(operand.type, f"{name} OF {kind}", (unit, operand))


def _added(node: nodes.Call, binder: Any) -> Expr:
    if len(node.arguments) != 3:
        raise Refusal("TIMESTAMPADD is written TIMESTAMPADD(unit, number, time)", node.span)
    unit = unit_argument(node.arguments[0])
    number, time = (binder.bind(each) for each in node.arguments[1:])
    if "NULL" in (number.type.kind, time.type.kind):
        return Constant(types.TIMESTAMP if time.type.kind == "NULL" else time.type.nullable(), None)
    if number.type.kind not in types.INTEGERS:
        raise Refusal(f"TIMESTAMPADD adds an integer, not {number.type.text}", node.arguments[1].span)
    if time.type.kind not in ("DATE", "TIME", *types.TIMESTAMPS):
        raise Refusal(f"TIMESTAMPADD adds to a time, not {time.type.text}", node.arguments[2].span)
    kind = time.type.kind
    is_nullable = types.any_nullable((number.type, time.type))
    if unit in MONTHS:
        if kind == "TIME":
            raise Refusal("a TIME has no months", node.span)
        name = "DATE + MONTHS" if kind == "DATE" else "TIMESTAMP + MONTHS"
        return Operation(time.type.nullable(is_nullable), name, (time, _times(number, MONTHS[unit])))
    if kind == "DATE" and unit in ("DAY", "WEEK"):
        return Operation(time.type.nullable(is_nullable), "TIME +", (time, _times(number, 7 if unit == "WEEK" else 1)))
    if kind == "DATE":
        time = Conversion(replace(types.TIMESTAMP, precision=6, is_nullable=time.type.is_nullable), time)
    span = _times(number, MICROSECONDS[unit])
    if kind == "TIME":
        return Operation(time.type.nullable(is_nullable), "TIME OF DAY +", (time, span))
    precision = max(time.type.precision, 3 if unit == "MILLISECOND" else 0)
    return Operation(replace(time.type, precision=precision, is_nullable=is_nullable), "TIME +", (time, span))


def _times(number: Expr, factor: int) -> Expr:
    if factor == 1:
        return number
    if isinstance(number, Constant) and number.value is not None:
        return Constant(types.INTERVAL_DAY.nullable(False), number.value * factor)
    constant = Constant(types.BIGINT.nullable(False), factor)
    return Operation(types.INTERVAL_DAY.nullable(number.type.is_nullable), "INTEGER *", (number, constant))


def _between(node: nodes.Call, binder: Any) -> Expr:
    if len(node.arguments) != 3:
        raise Refusal("TIMESTAMPDIFF is written TIMESTAMPDIFF(unit, from, to)", node.span)
    unit = unit_argument(node.arguments[0])
    sides = []
    for at in node.arguments[1:]:
        side = binder.bind(at)
        if side.type.kind not in ("DATE", "NULL", *types.TIMESTAMPS):
            raise Refusal(f"TIMESTAMPDIFF takes dates or timestamps, not {side.type.text}", at.span)
        sides.append(side)
    result = types.BIGINT if unit == "MILLISECOND" else types.INTEGER
    kinds = {each.type.kind for each in sides}
    if "NULL" in kinds:
        return Constant(result, None)
    if "TIMESTAMP_LTZ" in kinds and len(kinds) > 1:
        raise Refusal("TIMESTAMPDIFF takes two TIMESTAMP_LTZ, or none: use CAST", node.span)
    start, end = (
        Conversion(types.TIMESTAMP.nullable(each.type.is_nullable), each) if each.type.kind == "DATE" else each
        for each in sides
    )
    if kinds == {"TIMESTAMP_LTZ"} and unit in MONTHS:
        start, end = local(start), local(end)
    size = Constant(types.BIGINT.nullable(False), MONTHS.get(unit) or MICROSECONDS[unit])
    name = "MONTHS BETWEEN" if unit in MONTHS else "MICROSECONDS BETWEEN"
    is_nullable = types.any_nullable((start.type, end.type))
    found = Operation(types.BIGINT.nullable(is_nullable), name, (size, start, end))
    return found if unit == "MILLISECOND" else Conversion(result.nullable(is_nullable), found)


SPECIAL: Final[dict[str, Special]] = {
    "EXTRACT": _extract,
    **{unit: _part(unit) for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": _part("DAY"), "DAYOFWEEK": _part("DOW"), "DAYOFYEAR": _part("DOY"),
    "TIMESTAMPADD": _added, "TIMESTAMPDIFF": _between,
}  # fmt: skip
