"""How SQL writes the operations that have another name here: nobody has written EXTRACT HOUR OF TIME."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from rmqio.sql import types
from rmqio.sql.constant_text import constant_text
from rmqio.sql.expressions import Conditional, Constant, Expr, Operation, walk
from rmqio.sql.values import DAY_US

_PHRASES: Final = {
    "ARRAY": "ARRAY[{all}]", "MAP": "MAP[{all}]", "BYTES OF BASE64": "CAST(FROM_BASE64({0}) AS BYTES)",
    "JSON ITEM": "{0}", "JSON ITEM OR NULL": "{0} NULL ON NULL",
    "JSON MEMBER": "KEY {0} VALUE {1} ABSENT ON NULL", "JSON MEMBER OR NULL": "KEY {0} VALUE {1}",
    "JSON ARRAY WITH NULLS": "JSON_ARRAY({all} NULL ON NULL)",
    "JSON OBJECT WITHOUT NULLS": "JSON_OBJECT({all} ABSENT ON NULL)",
    "JSON TEXT": "JSON_VALUE({0}, {1})", "JSON STATE": "JSON_VALUE({0}, {1})",
    "JSON EXISTS": "JSON_EXISTS({0}, {1} {word2} ON ERROR)", "JSON_STRING OF JSON": "JSON_STRING({0})",
    "JSON VALUE FAILED": "JSON_VALUE({0}, {1} ERROR ON {word2})",
    # what is written nowhere
    "LOCAL OF INSTANT": "{0}", "ONE NAN": "{0}", "DISTINCT NANS": "{0}",
    "LAST INSTANT": "{0} - INTERVAL '0.001' SECOND", "TIME OF ARRIVAL": "PROCTIME()",
    "OFFSET OF MESSAGE": "queue_offset", "ROW ID": "id of ROW({all})",
}  # fmt: skip
_SHAPES: Final = [
    (re.compile(pattern), phrase)
    for pattern, phrase in (
        (r"EXTRACT (\w+) OF \w+", "EXTRACT({unit} FROM {0})"),
        (r"(FLOOR|CEIL) OF \w+", "{unit}({part1} TO {word0})"),
        (r"(GREATEST|LEAST) OF \w+", "{unit}({all})"),
        (r"ITEM OF \w+", "{0}[{1}]"),
        (r"(IS JSON( \w+)?)", "{0} {unit}"),
    )
]
_UNITS: Final = {
    1000: "MILLISECOND", 1_000_000: "SECOND", 60_000_000: "MINUTE", 3_600_000_000: "HOUR", DAY_US: "DAY",
    7 * DAY_US: "WEEK", 1: "MONTH", 3: "QUARTER", 12: "YEAR",
}  # fmt: skip
"""By what an operation has for it: microseconds, or months."""


def spelled(expression: Operation, arguments: Sequence[str]) -> str:
    """Returns the operation with the texts of its arguments; empty: it is a call of the function of its name."""
    name = expression.name
    if name.endswith(" BETWEEN"):
        return f"TIMESTAMPDIFF({_UNITS[int(arguments[0])]}, {arguments[1]}, {arguments[2]})"
    if name.startswith("JSON QUERY"):
        return _json_query(expression, arguments)
    words = {f"word{at}": each.strip("'") for at, each in enumerate(arguments)}
    words |= {f"part{at}": f"({each})" if " " in each else each for at, each in enumerate(arguments)}
    if name in _PHRASES:
        return _PHRASES[name].format(*arguments, **words, all=", ".join(arguments))
    for pattern, phrase in _SHAPES:
        if found := pattern.fullmatch(name):
            unit = found[1].removesuffix(" VALUE") if pattern.groups else ""
            return phrase.format(*arguments, **words, unit=unit, all=", ".join(arguments))
    return ""


def moved_time(expression: Operation, arguments: Sequence[str]) -> str:
    """Returns a time plus or minus what is no interval by its type, as TIMESTAMPADD makes it; empty: it is another."""
    if not expression.name.startswith(("TIME ", "TIMESTAMP + ", "DATE + ")):
        return ""
    by = expression.arguments[1]
    unit, number = "MONTH", arguments[1]
    if isinstance(by, Operation) and by.name == "NEGATE" and by.type.kind in types.INTERVALS:
        return f"{arguments[0]} - {number.removeprefix('-')}"
    if not expression.name.endswith("MONTHS"):
        if expression.type.kind == "DATE":
            unit = "DAY"
        elif isinstance(by, Operation) and by.name == "INTEGER *" and by.arguments[0].type.kind in types.INTEGERS:
            factor = by.arguments[1]
            unit, number = _UNITS.get(getattr(factor, "value", None) or 0, ""), arguments[1].rpartition(" * ")[0]
        else:
            return ""
    if isinstance(by, Constant) and by.value is not None:
        kind, size = (types.INTERVAL_MONTH, 1) if unit == "MONTH" else (types.INTERVAL_DAY, DAY_US)
        sign = "-" if expression.name.endswith("-") else "+"
        return f"{arguments[0]} {sign} {constant_text(by.value * size, kind)}"
    if by.type.kind == "INTERVAL_MONTH":
        return f"{arguments[0]} + {arguments[1]}"
    return f"TIMESTAMPADD({unit}, {number}, {arguments[0]})" if unit else ""


_WRAPPERS: Final = {"'CONDITIONAL'": " WITH CONDITIONAL ARRAY WRAPPER", "'ALL'": " WITH ARRAY WRAPPER"}


def _json_query(expression: Operation, arguments: Sequence[str]) -> str:
    value, path, wrapper, empty, error = arguments
    returned = " RETURNING ARRAY<STRING>" if expression.name.endswith("ARRAY") else ""
    said = "".join(
        f" {each.strip(chr(39))} ON {event}" for each, event in ((empty, "EMPTY"), (error, "ERROR")) if each != "'NULL'"
    )
    return f"JSON_QUERY({value}, {path}{returned}{_WRAPPERS.get(wrapper, '')}{said})"


def json_value(expression: Conditional, arguments: Sequence[str], text_of: Callable[[Expr], str]) -> str:
    """Returns the call of JSON_VALUE that a CASE over what is found at the path stands for."""
    _, empty, _, error, value = expression.parts
    returned = f" RETURNING {expression.type.text}" if isinstance(value, Conditional) else ""
    said = "".join(_outcome(each, event, text_of) for each, event in ((empty, "EMPTY"), (error, "ERROR")))
    return f"JSON_VALUE({', '.join(arguments)}{returned}{said})"


def _outcome(result: Expr, event: str, text_of: Callable[[Expr], str]) -> str:
    if isinstance(result, Constant) and result.value is None:
        return ""
    if any(isinstance(each, Operation) and each.name == "JSON VALUE FAILED" for each in walk(result)):
        return f" ERROR ON {event}"
    return f" DEFAULT {text_of(result)} ON {event}"
