"""Constant expressions that always fail, such as 1 / 0, are refused where every row gets to them."""

from __future__ import annotations

from itertools import islice
from typing import Final

from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Expr, InputRef, walk
from rmqio.sql.syntax import nodes
from rmqio.sql.user.definition import UserCall

_MOST_PARTS: Final = 30
"""Parts of an expression that is computed: each level of a long chain is."""
_SOME: Final = ("COALESCE", "IFNULL", "NVL", "IF", "NULLIF")


def evaluates_some(node: nodes.Expression) -> bool:
    """Returns whether only some parts of an expression are computed for a row, or their errors are no errors."""
    match node:
        case nodes.Case():
            return True
        case nodes.Cast():
            return node.is_try
        case nodes.Binary():
            return node.operator in ("AND", "OR") or _is_of_rows(node)
        case nodes.Between():
            return True
        case nodes.InList():  # of literals, none can fail
            some = len(node.items) > 1 or isinstance(node.operand, nodes.Row)
            return some and not all(isinstance(each, nodes.Literal) for each in node.items)
        case nodes.Call():
            return node.function is None and node.name.text.upper() in _SOME
    return False


def computed_first(node: nodes.Expression) -> list[nodes.Expression]:
    """Returns parts of such an expression that are computed for every row all the same. Rows begin with their first.

    Not those of AND and OR: that the other side decides alone is found when the statement is planned.
    """
    match node:
        case nodes.Case(operand=None, whens=[(when, _), *_]):
            found = [when]
        case nodes.Case(operand=nodes.Expression() as operand, whens=[(when, _), *_]):
            found = [operand, when]
        case nodes.Binary() if _is_of_rows(node):
            found = [node.left, node.right]
        case nodes.Between(operand=operand, low=low):
            found = [operand, low]
        case nodes.InList(operand=operand, items=[item, *_]):
            found = [operand, item]
        case nodes.Call(arguments=arguments):
            found = [*arguments[: 2 if node.name.text.upper() == "NULLIF" else 1]]
        case _:
            found = []
    return [_first(each) for each in found]


def _is_of_rows(node: nodes.Binary) -> bool:
    """Whether it ends at the first value that differs."""
    return node.operator == "=" and isinstance(node.left, nodes.Row) and isinstance(node.right, nodes.Row)


def _first(node: nodes.Expression) -> nodes.Expression:
    while isinstance(node, nodes.Row) and node.items:
        node = node.items[0]
    return node


def check_failing(expression: Expr, node: nodes.Expression) -> None:
    """Raises `Refusal` for an expression of constants that always fails."""
    if not isinstance(node, nodes.Binary | nodes.Unary | nodes.Call | nodes.Cast):
        return
    parts = list(islice(walk(expression), _MOST_PARTS + 1))
    if len(parts) < 2 or len(parts) > _MOST_PARTS or any(isinstance(each, InputRef | UserCall) for each in parts):
        return
    if not any(isinstance(each, Constant) for each in parts) or not is_pure(expression):
        return
    if (reason := _failure(expression)) is not None:
        raise Refusal(f"this always fails: {reason}", node.span)


def _failure(expression: Expr) -> str | None:
    from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows  # the compiler imports the analysis
    from rmqio.sql.compile.fragment import compiled

    mapped = compiled(Fragment(FromRows(()), (Step(None, (expression,)),), ToRows()))([()])
    return next((str(each) for each in mapped.failed.values()), None)
