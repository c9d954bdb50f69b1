"""Expressions as text, for EXPLAIN and for errors: as SQL would write them, with the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rmqio.sql.constant_text import constant_text
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
)
from rmqio.sql.spelling import json_value, moved_time, spelled
from rmqio.sql.user.definition import UserCall

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
