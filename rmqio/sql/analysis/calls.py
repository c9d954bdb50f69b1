"""Calls that need more than the types of their arguments: constants, units of time, clauses of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from rmqio.sql import types
from rmqio.sql.analysis.conversions import cast
from rmqio.sql.errors import Refusal, listed
from rmqio.sql.expressions import Constant, Conversion, Expr, Not, Operation
from rmqio.sql.functions.printf import check_format
from rmqio.sql.functions.times import FIELDS, SPAN_FIELDS, TIME_FIELDS
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.expression_builder import UNITS, unit_named
from rmqio.sql.syntax.nodes import Name, TypeName
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

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

TimeCall = Callable[[nodes.Call, Any], Expr]


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


def _part(unit: str) -> TimeCall:
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


TIME_CALLS: Final[dict[str, TimeCall]] = {
    "EXTRACT": _extract,
    **{unit: _part(unit) for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": _part("DAY"), "DAYOFWEEK": _part("DOW"), "DAYOFYEAR": _part("DOY"),
    "TIMESTAMPADD": _added, "TIMESTAMPDIFF": _between,
}  # fmt: skip


# Functions whose calls need more than the types of the arguments: constants among them, or the types at run time.


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
        arguments[0] = local(arguments[0])
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
        return rounded(name, given, binder)
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


# Functions of JSON: what stands behind their arguments, as `NULL ON EMPTY`, and the types of what they write.

_RESULTS: Final = {
    ("JSON_VALUE", "EMPTY"): ("NULL", "ERROR"),
    ("JSON_VALUE", "ERROR"): ("NULL", "ERROR"),
    ("JSON_QUERY", "EMPTY"): ("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR"),
    ("JSON_QUERY", "ERROR"): ("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR"),
    ("JSON_EXISTS", "ERROR"): ("TRUE", "FALSE", "UNKNOWN", "ERROR"),
    ("JSON_ARRAY", "NULL"): ("NULL", "ABSENT"),
    ("JSON_OBJECT", "NULL"): ("NULL", "ABSENT"),
    ("JSON_ARRAYAGG", "NULL"): ("NULL", "ABSENT"),
    ("JSON_OBJECTAGG", "NULL"): ("NULL", "ABSENT"),
}
STEPS: Final = ("JSON TEXT", "JSON STATE", "JSON VALUE FAILED")
"""Functions that JSON_VALUE with clauses is made of, as calls."""
_KEYS: Final = {"JSON_VALUE": ("RETURNING", "EMPTY", "ERROR"), "JSON_QUERY": ("RETURNING", "WRAPPER", "EMPTY", "ERROR")}


def parts(node: nodes.Call) -> tuple[list[nodes.Expression], dict[str, Any]]:
    """Returns the arguments, and the clauses behind the last one. Raises `Refusal` for clauses of other functions."""
    arguments = list(node.arguments)
    last = arguments[-1] if arguments else None
    if not isinstance(last, nodes.JsonClauses):
        return arguments, {}
    name, found = node.name.text.upper(), {}
    arguments[-1:] = [] if last.operand is None else [last.operand]
    for key, what in last.clauses:
        possible = _RESULTS.get((name, key), ())
        is_default = key in ("EMPTY", "ERROR") and not isinstance(what, str) and name == "JSON_VALUE"
        if not (what in possible or is_default or (key in _KEYS.get(name, ()) and key in ("RETURNING", "WRAPPER"))):
            shown = f"ON {key}" if key in ("EMPTY", "ERROR", "NULL") else key
            hint = f": {listed([*possible, 'DEFAULT ...'] if name == 'JSON_VALUE' else possible)}" if possible else ""
            raise Refusal(f"{name} does not take this {shown}{hint}", last.span)
        if key in found:
            raise Refusal(f"{name} can have only one {key}", last.span)
        found[key] = what
    return arguments, found


def _json_value(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    plain = call_of("JSON_VALUE", [binder.bind(each) for each in arguments], node)
    if not clauses:
        return plain
    kind = clauses.get("RETURNING") or TypeName("STRING", span=node.span)
    if kind.name not in ("STRING", "VARCHAR", "CHAR", "BOOLEAN", "INT", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL"):
        raise Refusal(f"JSON_VALUE returns STRING, BOOLEAN, INT, BIGINT, DOUBLE or DECIMAL, not {kind.name}", kind.span)

    def call(name: str, *more: nodes.Expression) -> nodes.Call:
        return nodes.Call(Name(name, span=node.span), (*arguments, *more), span=node.span)

    def outcome(event: str) -> nodes.Expression:
        said = clauses.get(event, "NULL")
        if said == "ERROR":
            said = call("JSON VALUE FAILED", nodes.Literal("string", event, span=node.span))
        elif said == "NULL":
            said = nodes.Literal("null", None, span=node.span)
        return nodes.Cast(said, kind, False, span=said.span)

    def is_state(number: str) -> nodes.Expression:
        return nodes.Binary("=", call("JSON STATE"), nodes.Literal("number", number, span=node.span), span=node.span)

    value: nodes.Expression = call("JSON TEXT")
    if "RETURNING" in clauses:  # a value of another type is an error
        tried = nodes.Cast(value, kind, True, span=node.span)
        value = nodes.Call(Name("COALESCE", span=node.span), (tried, outcome("ERROR")), span=node.span)
    whens = ((is_state("1"), outcome("EMPTY")), (is_state("2"), outcome("ERROR")))
    found: Expr = binder.bind(nodes.Case(None, whens, value, span=node.span))
    return found


def _json_query(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    bound = [binder.bind(each) for each in arguments]
    plain = call_of("JSON_QUERY", bound, node)
    if not clauses:
        return plain
    wrapper = clauses.get("WRAPPER", "WITHOUT")
    kind = "" if wrapper.startswith("WITHOUT") else "CONDITIONAL" if " CONDITIONAL" in wrapper else "ALL"
    said = (kind, clauses.get("EMPTY", "NULL"), clauses.get("ERROR", "NULL"))
    returned = clauses.get("RETURNING")
    if returned is not None and types.resolve(returned) == types.array_of(types.VARCHAR):
        if "EMPTY OBJECT" in said:
            raise Refusal("JSON_QUERY RETURNING ARRAY<STRING> has no EMPTY OBJECT: use EMPTY ARRAY", node.span)
        return call_of("JSON QUERY ARRAY", [*bound, *map(_text, said)], node)
    if returned is not None and types.resolve(returned).kind != "VARCHAR":
        raise Refusal(f"JSON_QUERY returns STRING or ARRAY<STRING>, not {types.resolve(returned).text}", returned.span)
    return call_of("JSON QUERY", [*bound, *map(_text, said)], node)


def _json_exists(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    bound = [binder.bind(each) for each in arguments]
    plain = call_of("JSON_EXISTS", bound, node)
    if not clauses:
        return plain
    return call_of("JSON EXISTS", [*bound, _text(clauses["ERROR"])], node)


def _text(text: str) -> Expr:
    return Constant(types.VARCHAR.nullable(False), text)


def is_json(node: nodes.IsTest, operand: Expr, call_of: CallOf) -> Expr:
    """Returns `operand IS [NOT] JSON ...`. Raises `Refusal` if it is not text."""
    if operand.type.kind not in ("VARCHAR", "NULL"):
        raise Refusal(f"IS JSON tests text, and this is {operand.type.text}", node.operand.span)
    found = call_of(f"IS {node.what}", [operand], node)
    return Not(found.type, found) if node.is_negated else found


# ---- writing: the types of the values travel as constants ------------------------------------------------------------


def _json_string(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    if len(node.arguments) != 1:
        raise Refusal("JSON_STRING takes one argument", node.span)
    value = binder.bind(node.arguments[0])
    kind = types.VARCHAR.nullable(value.type.is_nullable)
    if isinstance(value, Operation) and value.name in MADE:  # it is JSON already, and in other JSON it is a text
        return Operation(kind, "JSON_STRING OF JSON", (value,))
    return Operation(kind, "JSON_STRING", (carried(value.type), value))


def _json_array(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    name = "JSON_ARRAY" if clauses.get("NULL", "ABSENT") == "ABSENT" else "JSON ARRAY WITH NULLS"
    return _json_of(name, [binder.bind(each) for each in arguments])


def _json_object(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    given: list[nodes.Expression] = []
    for each in arguments:
        given += (each.key, each.value) if isinstance(each, nodes.JsonPair) else (each,)
    items = [binder.bind(each) for each in given]
    if len(items) % 2:
        raise Refusal("JSON_OBJECT takes keys and values in turn, but one value is missing", node.span)
    for key, at in zip(items[::2], given[::2], strict=True):
        if key.type.kind != "VARCHAR":
            raise Refusal(f"a key of JSON_OBJECT must be STRING, not {key.type.text}", at.span)
    return _json_of("JSON_OBJECT" if clauses.get("NULL", "NULL") == "NULL" else "JSON OBJECT WITHOUT NULLS", items)


MADE: Final = ("JSON_ARRAY", "JSON ARRAY WITH NULLS", "JSON_OBJECT", "JSON OBJECT WITHOUT NULLS")


def _json_of(name: str, items: Sequence[Expr]) -> Expr:
    raw = frozenset(i for i, each in enumerate(items) if isinstance(each, Operation) and each.name in MADE)
    kinds = tuple(each.type for each in items)
    return Operation(types.VARCHAR.nullable(False), name, (carried(kinds), carried(raw), *items))


def carried(value: Any) -> Constant:
    """Returns what a function needs to know about its arguments, as one of them."""
    return Constant(SqlType("CARRIED", False), value)


JSON_CALLS: Final[dict[str, Special]] = {
    "JSON_VALUE": _json_value, "JSON_QUERY": _json_query, "JSON_EXISTS": _json_exists,
    "JSON_STRING": _json_string, "JSON_ARRAY": _json_array, "JSON_OBJECT": _json_object,
}  # fmt: skip
