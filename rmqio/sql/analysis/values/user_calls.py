"""Calls of the user's functions: arguments are counted, and become the types of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis.values.conversions import converted
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, Operation
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.syntax import nodes
from rmqio.sql.text import text_of
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import AGGREGATE, SCALAR, TABLE, UserCall, UserFunction


def bound(node: nodes.Call, binder: Any) -> Expr:
    """Returns the call in an expression. Raises `Refusal` if it cannot be used there or does not take the arguments."""
    function: UserFunction = node.function
    if node.over is not None:
        _refuse(f"{function.name} is a function of your own, which cannot be used with OVER", node.over.span)
    if function.kind == TABLE:
        _refuse(
            f"{function.name} is a table function, which is used in FROM: FROM t, LATERAL TABLE({function.name}(...))",
            node.span,
        )
    if function.kind == AGGREGATE:
        if binder.aggregate is None:
            place = binder.place or "here"
            _refuse(f"{function.name} is an aggregate function, which cannot be used {place}", node.span)
        found: Expr = binder.aggregate(node)
        return found
    arguments = _arguments(node, binder)
    kind = function.result.nullable(function.result.is_nullable or _can_be_skipped(function, arguments))
    return UserCall(kind, function, arguments, _shown(function, arguments, binder))


def rows(node: nodes.Call, binder: Any) -> UserCall:
    """Returns the call of a table function in FROM. Raises `Refusal`."""
    function: UserFunction = node.function
    if function.kind != TABLE:
        what = "a scalar function" if function.kind == SCALAR else "an aggregate function"
        _refuse(
            f"{function.name} is {what}, but FROM takes a table function, with the hint Iterator[...] or the "
            "decorator @udtf",
            node.span,
        )
    arguments = _arguments(node, binder)
    kind = types.array_of(function.result, _can_be_skipped(function, arguments))
    return UserCall(kind, function, arguments, _shown(function, arguments, binder))


def aggregate(
    node: nodes.Call, binder: Any, check: Callable[[Expr, Span], None]
) -> tuple[AggregateCall, Expr | None, Expr | None]:
    """Returns the call of an aggregate function with its argument, the ROW of all, and its condition."""
    function: UserFunction = node.function
    condition = None if node.filter is None else replace(binder, place="in FILTER").condition(node.filter)
    if node.is_star:
        _refuse(f"{function.name}(*) has no meaning: it is {function.usage()}", node.span)
    is_distinct = node.quantifier == "DISTINCT"
    arguments = _arguments(node, replace(binder, place="in another one"))
    for each, at in zip(arguments, node.arguments, strict=True):
        check(each, at.span)
        if is_distinct and not types.is_key(each.type):
            _refuse(f"{function.name}(DISTINCT ...) cannot be {each.type.text}: use JSON_STRING of it", at.span)
    call = AggregateCall(
        function.name, function.result.nullable(), is_distinct=is_distinct and bool(arguments), function=function
    )
    if not arguments:
        return call, None, condition
    names = tuple(f"EXPR${i}" for i in range(len(arguments)))
    row = SqlType("ROW", False, elements=tuple(each.type for each in arguments), names=names)
    return call, Operation(row, "ROW", arguments), condition


def _arguments(node: nodes.Call, binder: Any) -> tuple[Expr, ...]:
    function: UserFunction = node.function
    if function.kind != AGGREGATE and (node.filter is not None or node.quantifier is not None or node.is_star):
        _refuse(f"DISTINCT, FILTER and * belong to aggregate functions, but {function.name} is not one", node.span)
    count = len(node.arguments)
    if count < function.required or (count > len(function.parameters) and not function.is_variadic):
        _refuse(f"{function.name} does not take {count} arguments; it is {function.usage()}", node.span)
    found = []
    for position, each in enumerate(node.arguments):
        given = binder.bind(each)
        wanted = function.parameter(position).type
        try:
            found.append(converted(given, wanted.nullable(given.type.is_nullable), each))
        except Refusal as refusal:
            if refusal.message.endswith("is needed: use CAST"):
                refusal = Refusal(
                    f"argument {position + 1} of {function.usage()} must be {wanted.text}, not {given.type.text}: "
                    "use CAST",
                    each.span,
                )
            raise refusal from None
    return tuple(found)


def _can_be_skipped(function: UserFunction, arguments: tuple[Expr, ...]) -> bool:
    """Whether an argument can be NULL with which the function is not called: the result is NULL then."""
    return any(
        each.type.is_nullable and not function.parameter(position).type.is_nullable
        for position, each in enumerate(arguments)
    )


def _shown(function: UserFunction, arguments: tuple[Expr, ...], binder: Any) -> str:
    """The call with the names of columns, for messages about a row."""
    names = {each.expression.index: each.name for each in binder.scope.columns if isinstance(each.expression, InputRef)}
    try:
        listed = [names.get(position, "?") for position in range(max(names, default=-1) + 1)]
        return f"{function.name}({', '.join(text_of(each, listed) for each in arguments)})"[:200]
    except IndexError:  # over groups the columns have other places
        return f"{function.name}(...)"


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
