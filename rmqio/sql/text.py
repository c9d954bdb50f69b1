"""Expressions as text, for EXPLAIN and for errors: as SQL would write them, with the names of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.expressions import (
    IN_QUERY,
    SET_NUMBER,
    Conditional,
    Constant,
    Conversion,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    NotNull,
    Operation,
    walk,
)
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import UserCall
from rmqio.sql.values import DAY_US

# Constants as SQL writes them, and durations.


def constant_text(value: Any, kind: SqlType) -> str:
    """Returns a constant as SQL writes it."""
    if value is None:
        return "NULL"
    match kind.kind:
        case "VARCHAR":
            return "'" + str(value).replace("'", "''") + "'"
        case "VARBINARY":
            return f"X'{value.hex()}'"
        case "BOOLEAN":
            return str(value).upper()
        case "DATE":
            return f"DATE '{values.text_of_date(value)}'"
        case "TIME":
            return f"TIME '{values.text_of_time(value, kind.precision)}'"
        case "TIMESTAMP_LTZ":
            return f"TIMESTAMP_LTZ '{values.text_of_timestamp(value, kind.precision)}Z'"
        case "TIMESTAMP":
            return f"TIMESTAMP '{values.text_of_timestamp(value, kind.precision)}'"
        case "INTERVAL_DAY":
            return _interval(value, _SIZES)
        case "INTERVAL_MONTH":
            return _interval(value, (("YEAR", 12), ("MONTH", 1)))
    return str(value)


_SIZES: Final = (
    ("DAY", values.DAY_US), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000),
)  # fmt: skip


def _interval(value: int, sizes: Sequence[tuple[str, int]]) -> str:
    """The interval in its largest unit of which it has a whole number; else in the smallest one."""
    unit, size = next((each for each in sizes if value and value % each[1] == 0), sizes[-1])
    return f"INTERVAL '{format(Decimal(value) / size, 'f')}' {unit}"


def duration(milliseconds: int) -> str:
    """Returns `1 h 30 min`."""
    parts, rest = [], milliseconds
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


# How SQL writes the operations that have another name here: nobody has written EXTRACT HOUR OF TIME.

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


_BINARY: Final = {
    "=", "<>", "<", "<=", ">", ">=", "||", "LIKE", "RLIKE", "REGEXP", "SIMILAR TO", "IS NOT DISTINCT FROM",
}  # fmt: skip


def text_of(expression: Expr, names: Sequence[str]) -> str:
    """Returns the expression as SQL. `names`: those of the columns that it reads."""

    def of(each: Expr) -> str:
        return text_of(each, names)

    def inner(each: Expr) -> str:
        text = of(each)
        return f"({text})" if isinstance(each, Logical) else text

    match expression:
        case InputRef():
            name = names[expression.index]
            return name if name != SET_NUMBER else "grouping set"
        case Constant():
            return constant_text(expression.value, expression.type)
        case Operation():
            given = [each for each in expression.arguments if each.type.kind != "CARRIED"]
            return _operation(expression, [inner(each) for each in given])
        case UserCall():
            return f"{expression.function.name}({', '.join(map(of, expression.arguments))})"
        case Logical():
            return f" {expression.operator} ".join(map(inner, expression.operands))
        case Not():
            return _negated(expression.operand, inner)
        case Is():
            return f"{inner(expression.operand)} IS {_truth(expression.value)}"
        case Conversion():
            cast = "TRY_CAST" if expression.is_try else "CAST"
            return f"{cast}({of(expression.operand)} AS {expression.type.text})"
        case NotNull():
            return of(expression.operand)
        case Membership():
            return f"{inner(expression.operand)} IN ({', '.join(map(of, expression.values))})"
        case Conditional():
            if shown := _meant(expression, names):
                return shown if isinstance(shown, str) else of(shown)
            *parts, otherwise = expression.parts
            whens = " ".join(
                f"WHEN {of(condition)} THEN {of(result)}"
                for condition, result in zip(parts[::2], parts[1::2], strict=True)
            )
            return f"CASE {whens} ELSE {of(otherwise)} END"
    return "?"


def _meant(expression: Conditional, names: Sequence[str]) -> str | Expr | None:
    """Returns what a query says where the optimizer has written a CASE: a column of a grouping set, and IN of a query,
    which is NULL if the value or one of the rows is NULL and no row has the value.
    """
    condition, result, *others = expression.parts
    match condition:
        case Membership(operand=InputRef(index=index)) if names[index] == SET_NUMBER:
            return others[0] if isinstance(result, Constant) and result.value is None else None
        case InputRef(index=index) if names[index].endswith(IN_QUERY) and len(expression.parts) == 7:
            return names[index]
        case Operation(name="=", arguments=(Operation(name="JSON STATE", arguments=given), *_)):
            return json_value(expression, [text_of(each, names) for each in given], lambda each: text_of(each, names))
    return None


def _operation(expression: Operation, arguments: list[str]) -> str:
    name = expression.name
    if name.startswith(("FIELD ", "ITEM ")) and isinstance(expression.arguments[0], Conditional):
        arguments = [f"({arguments[0]})", *arguments[1:]]
    if name.startswith("FIELD "):
        row = expression.arguments[0].type
        return f"{arguments[0]}.{row.names[int(name[6:])]}"
    operator = name.rpartition(" ")[2]
    if operator in ("+", "-", "*", "/", "%", "MONTHS") and (moved := moved_time(expression, arguments)):
        return moved
    if operator in ("+", "-", "*", "/", "%") or name in _BINARY:
        given = zip(expression.arguments, arguments, strict=True)
        shown = arguments if name in _BINARY else [_enclosed(*each) for each in given]
        escape = f" ESCAPE {arguments[2]}" if len(arguments) > 2 else ""
        return f" {operator if name not in _BINARY else name} ".join(shown[:2]) + escape
    if name == "NEGATE":
        return _negative(expression.arguments[0], arguments[0])
    return spelled(expression, arguments) or f"{name}({', '.join(arguments)})"


def _enclosed(expression: Expr, text: str) -> str:
    return f"({text})" if " " in text and not isinstance(expression, Constant) else text


def _negative(expression: Expr, text: str) -> str:
    return f"-({text})" if text[0] == "-" else f"-{_enclosed(expression, text)}"  # two of them begin a comment


def _negated(operand: Expr, inner: Any) -> str:
    if isinstance(operand, Is):
        return f"{inner(operand.operand)} IS NOT {_truth(operand.value)}"
    text = inner(operand)
    if isinstance(operand, Operation) and operand.name.startswith("IS JSON"):
        return " IS NOT JSON".join(text.rsplit(" IS JSON", 1))
    if isinstance(operand, Operation) and operand.name == "IS NOT DISTINCT FROM":
        return " IS DISTINCT FROM ".join(map(inner, operand.arguments))
    if isinstance(operand, Membership) or text.endswith(IN_QUERY):
        return str(text.replace(" IN (", " NOT IN (", 1))
    return f"NOT {text}"


def _truth(value: bool | None) -> str:
    return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
