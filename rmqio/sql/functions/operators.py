"""Operators: comparisons, arithmetic, what SQL writes as operators, and functions that no statement can name."""

from __future__ import annotations

import datetime
import hashlib
import math
import re
import time
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.functions.registry import define
from rmqio.sql.regexes import Pattern, compiled
from rmqio.sql.rows import key_bytes, once, pack_group, with_distinct_nans
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure, shown

# Ids of rows, for the planner: no statement can name it.


def row_id(*parts: Any) -> str:
    """Returns 32 upper-case hexadecimal digits, like RocketMQ's ids, that depend on the values only."""
    try:
        data = key_bytes(parts)
    except (OverflowError, TypeError):  # an integer of more than 64 bits
        data = pack_group((), [parts])
    return hashlib.blake2b(data, digest_size=16).hexdigest().upper()


define("ROW ID", "any ...", row_id, is_strict=False, returns=lambda given: types.VARCHAR.nullable(False))


# Functions that have no name for a script: what the order of arrival is computed by.

_last_ns = 0


def arrival() -> int:
    """Returns the nanoseconds of now, more than ever before in this process."""
    global _last_ns
    _last_ns = max(_last_ns + 1, time.time_ns())
    return _last_ns


define("TIME OF ARRIVAL", "-> l", arrival, is_pure=False)
define("OFFSET OF MESSAGE", "-> l", inline="getattr(record, 'queue_offset', 0)")  # rows of Python have none


# ---- comparisons: both sides have one type --------------------------------------------------------------------------

for _name, _python in (("=", "=="), ("<>", "!="), ("<", "<"), ("<=", "<="), (">", ">"), (">=", ">=")):
    define(_name, "any any -> b", inline=f"{{0}} {_python} {{1}}")
define("IS NOT DISTINCT FROM", "any any -> b", inline="{0} == {1}", is_strict=False,
       returns=lambda _: types.BOOLEAN.nullable(False))  # fmt: skip

for _name, _made in (
    ("ONE NAN", once),
    ("DISTINCT NANS", with_distinct_nans),
):  # before Python has keys, or compares arrays and rows
    define(_name, "any", _made, returns=lambda given: given[0])

# ---- arithmetic: the planner picks one by the types -----------------------------------------------------------------


def divide(left: int, right: int) -> int:
    """Returns the quotient without its fraction. Raises `ValueFailure` for a division by zero."""
    if not right:
        raise ValueFailure("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int, right: int) -> int:
    """Returns the remainder, with the sign of the dividend. Raises `ValueFailure` for a division by zero."""
    if not right:
        raise ValueFailure("division by zero")
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def divide_doubles(left: float, right: float) -> float:
    """Returns the quotient by IEEE 754: a division by zero is infinite, or NaN."""
    if right:
        return left / right
    if not left or left != left:
        return float("nan")
    return float("inf") if (left > 0) == (str(right)[0] != "-") else float("-inf")


def divide_decimals(left: Decimal, right: Decimal) -> Decimal:
    """Returns the quotient with 76 digits. Raises `ValueFailure` for a division by zero."""
    if not right:
        raise ValueFailure("division by zero")
    return values.DECIMALS.divide(left, right)


def remainder_decimals(left: Decimal, right: Decimal) -> Decimal:
    """Returns the remainder, with the sign of the dividend. Raises `ValueFailure` for a division by zero."""
    if not right:
        raise ValueFailure("division by zero")
    return values.DECIMALS.remainder(left, right)


def remainder_doubles(left: float, right: float) -> float:
    """Returns the remainder by IEEE 754."""
    return math.fmod(left, right) if right and abs(left) != float("inf") else float("nan")


def _same(arguments: Sequence[SqlType]) -> SqlType:
    return arguments[0]


for _name in "+-*":
    define(f"INTEGER {_name}", "i i", inline=f"{{0}} {_name} {{1}}", returns=_same)
    define(f"DOUBLE {_name}", "n n", inline=f"{{0}} {_name} {{1}}", returns=_same)
for _name, _method in (("+", "add"), ("-", "subtract"), ("*", "multiply")):
    define(f"DECIMAL {_name}", "n n", getattr(values.DECIMALS, _method), returns=_same)
define("INTEGER /", "i i", divide, returns=_same)
define("INTEGER %", "i i", remainder, returns=_same)
define("DOUBLE /", "n n", divide_doubles, returns=_same)
define("DOUBLE %", "n n", remainder_doubles, returns=_same)
define("DECIMAL /", "n n", divide_decimals, returns=_same)
define("DECIMAL %", "n n", remainder_decimals, returns=_same)
define("NEGATE", "n", inline="-{0}", returns=_same)
define("TIME +", "any any", inline="{0} + {1}", returns=_same)
define("TIME -", "any any", inline="{0} - {1}", returns=_same)


def add_months(micros: int, months: int) -> int:
    """Returns a timestamp so many months later; a day that the month lacks becomes its last one."""
    days, rest = divmod(micros, values.DAY_US)
    return add_months_to_date(days, months) * values.DAY_US + rest


def add_months_to_date(days: int, months: int) -> int:
    """Returns a date so many months later; a day that the month lacks becomes its last one."""
    found = values.date_of(days)
    year, month = divmod(found.year * 12 + found.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueFailure(f"the year {year} is out of range")
    last = (datetime.date(year + month // 11, (month + 1) % 12 + 1, 1) - datetime.timedelta(days=1)).day if (
        year < 9999 or month < 11
    ) else 31  # fmt: skip
    return datetime.date(year, month + 1, min(found.day, last)).toordinal() - _EPOCH


_EPOCH = datetime.date(1970, 1, 1).toordinal()
define("TIMESTAMP + MONTHS", "any any", add_months, returns=_same)
define("DATE + MONTHS", "any any", add_months_to_date, returns=_same)

# ---- text -----------------------------------------------------------------------------------------------------------

define("GREATEST OF ALL", "any ...", inline="max(*)", returns=_same)
define("LEAST OF ALL", "any ...", inline="min(*)", returns=_same)


def greatest_number(*numbers: float) -> float:
    """Returns the greatest number; a NaN is larger than all others."""
    return max(numbers, key=values.in_order)


def least_number(*numbers: float) -> float:
    """Returns the least number; a NaN is larger than all others."""
    return min(numbers, key=values.in_order)


define("GREATEST OF FLOATS", "n ...", greatest_number, returns=_same)
define("LEAST OF FLOATS", "n ...", least_number, returns=_same)
define("||", "s s -> s", inline="{0} + {1}")


def _check_escape(escape: str | None) -> None:
    if escape is not None and len(escape) != 1:
        raise ValueFailure(f"{escape!r} must be one character, as the argument of ESCAPE")


@lru_cache(maxsize=1000)
def like_pattern(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    """Returns the regular expression of a LIKE pattern: % is any text, _ is one character.

    An escape character makes itself, % and _ characters. Without one, a backslash is a character like others.

    It never goes back over a % but the last one, so that it takes linear time at each.
    """
    _check_escape(escape)
    segments = [""]
    characters = iter(pattern)
    for each in characters:
        if each == escape:
            quoted = next(characters, "")
            if quoted not in ("%", "_", escape) or not quoted:
                raise ValueFailure(f"{shown(pattern)}: %, _ or {escape} must follow {escape}")
            segments[-1] += re.escape(quoted)
        elif each == "%":
            segments.append("")
        else:
            segments[-1] += "." if each == "_" else re.escape(each)
    first, *rest = segments
    middle = "".join(f"(?>.*?{each})" for each in rest[:-1] if each)
    return re.compile(f"{first}{middle}.*{rest[-1]}" if rest else first, re.DOTALL)


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Returns whether the text matches a LIKE pattern."""
    return like_pattern(pattern, escape).fullmatch(text) is not None


_SPECIAL: Final = "[]()|^-+*_%?{}"
_CLASSES: Final = {
    "ALPHA": "a-zA-Z", "UPPER": "A-Z", "LOWER": "a-z", "DIGIT": "0-9", "ALNUM": "a-zA-Z0-9", "SPACE": " ",
    "WHITESPACE": r"\s",
}  # fmt: skip
_CLASS: Final = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]", re.IGNORECASE)


@lru_cache(maxsize=1000)
def similar_pattern(pattern: str, escape: str | None = None) -> Pattern:
    """Returns the regular expression of a pattern of SIMILAR TO. Raises `ValueFailure`.

    Only the special characters of SQL are special: a backslash and a `$` are characters like others.
    """
    _check_escape(escape)
    found, at, in_set = "", 0, False
    while at < len(pattern):
        each = pattern[at]
        at += 1
        if each == escape:
            quoted = pattern[at : at + 1]
            if not quoted or quoted not in _SPECIAL + escape:
                raise ValueFailure(f"{shown(pattern)}: one of {_SPECIAL} or {escape} must follow {escape}")
            found += re.escape(quoted)
            at += 1
        elif in_set and (name := _CLASS.match(pattern, at - 1)):
            found += _CLASSES[name[1].upper()]
            at = name.end()
        elif each in "\\$" or (in_set and each in "[&|~"):
            found += f"\\{each}"
        else:
            in_set = each == "[" or (in_set and each != "]")
            found += each if in_set else {"%": ".*", "_": "."}.get(each, each)
    return compiled(found, re.DOTALL | re.ASCII, pattern, kind="pattern of SIMILAR TO", to_end=True)


def similar(text: str, pattern: str, escape: str | None = None) -> bool:
    """Returns whether the text matches a pattern of SIMILAR TO: a regular expression with % and _ of LIKE."""
    return similar_pattern(pattern, escape).fullmatch(text) is not None


define("LIKE", "s s [s] -> b", like)
define("SIMILAR TO", "s s [s] -> b", similar)

# ---- collections ----------------------------------------------------------------------------------------------------


def item_of_array(array: list[Any], position: int) -> Any:
    """Returns the element at a position that counts from 1; None: there is none."""
    return array[position - 1] if 1 <= position <= len(array) else None


def item_of_floats(found: dict[Any, Any], key: Any) -> Any:
    """Returns the value of a key; None: there is none. No key is equal to a NaN."""
    return found.get(with_distinct_nans(key))


def _value_of(given: Sequence[SqlType]) -> SqlType:
    return given[0].elements[1]


def _pairs(given: Sequence[SqlType]) -> Sequence[SqlType] | None:
    return None if len(given) % 2 or not all(map(types.is_key, given[::2])) else given


def _check_position(position: int) -> None:
    if position < 1:
        raise ValueFailure(f"positions in an array count from 1, but this is {position}")


define("ITEM OF ARRAY", "a i", item_of_array, returns=lambda given: given[0].elements[0], can_be_null=True,
       constants={1: _check_position})  # fmt: skip
define("ITEM OF MAP", "m any", inline="{0}.get({1})", returns=_value_of, can_be_null=True)
define("ITEM OF FLOATS", "m any", item_of_floats, returns=_value_of, can_be_null=True)
define("ARRAY", "any ...", inline="[*]", is_strict=False, returns=lambda given: types.array_of(given[0], False))
define("MAP", "any any ...", inline="{*}", is_strict=False, takes=_pairs,
       returns=lambda given: SqlType("MAP", False, elements=tuple(given[:2])))  # fmt: skip
