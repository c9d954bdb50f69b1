"""Constants with which a call can only fail are refused when the statement is planned, and not with every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Expr
from rmqio.sql.functions import operators
from rmqio.sql.functions.registry import Function
from rmqio.sql.syntax import nodes
from rmqio.sql.values import ValueFailure


def check_constants(function: Function, arguments: Sequence[Expr], node: nodes.Node) -> None:
    """Raises `Refusal`, at its place, for the first constant that the function can only fail with."""
    for position, check in function.constants.items():
        at = position % len(arguments) if position < 0 else position
        given = arguments[at] if at < len(arguments) else None
        if isinstance(given, Constant) and given.value is not None:
            try:
                check(given.value)
            except ValueFailure as error:
                raise Refusal(str(error), _place(node, at).span) from None


def check_pattern(node: nodes.Like, operands: Sequence[Expr]) -> None:
    """Raises `Refusal` for a pattern, with or without an escape character, that nothing can be compared with."""
    given = [each.value for each in operands if isinstance(each, Constant) and each.value is not None]
    if node.kind not in _PATTERNS or len(given) < len(operands):
        return
    try:
        _PATTERNS[node.kind](*given)
    except ValueFailure as error:
        at = node.pattern if node.escape is None or len(given[1]) == 1 else node.escape
        raise Refusal(str(error), at.span) from None


_PATTERNS: Final[dict[str, Callable[..., object]]] = {
    "LIKE": operators.like_pattern,
    "SIMILAR TO": operators.similar_pattern,
}


def _place(node: nodes.Node, position: int) -> nodes.Node:
    """The argument, if the node is a call that has it where the function does."""
    if isinstance(node, nodes.Call) and position < len(node.arguments):
        return node.arguments[position]
    match node:
        case nodes.Like() if position == 1:
            return node.pattern
        case nodes.Subscript() if position == 1:
            return node.index
    return node
