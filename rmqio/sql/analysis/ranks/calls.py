"""Calls of ROW_NUMBER() and of its relatives: where they can stand."""

from __future__ import annotations

from typing import Final, NoReturn

from rmqio.sql.analysis.ranks.limits import WAY_OUT
from rmqio.sql.errors import Refusal
from rmqio.sql.syntax import nodes

RANKINGS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")


def ranking(select: nodes.Select) -> nodes.Item | None:
    """Returns the item of a SELECT that is ROW_NUMBER(); None: there is none. Raises `Refusal` for others like it."""
    found = [
        each
        for each in select.items
        if isinstance(each, nodes.Item)
        and isinstance(each.expression, nodes.Call)
        and each.expression.over is not None
        and each.expression.name.text.upper() in RANKINGS
    ]
    if not found:
        return None
    first, *others = found
    assert isinstance(first.expression, nodes.Call)
    if first.expression.name.text.upper() != "ROW_NUMBER":
        refuse_ranking(first.expression)
    if others:
        raise Refusal("a query can have only one ROW_NUMBER(): put the other one into an outer query", others[0].span)
    if select.group_by or select.having is not None:
        raise Refusal(
            "ROW_NUMBER() cannot be combined with GROUP BY: put GROUP BY into a query of FROM", first.expression.span
        )
    if select.is_distinct:
        raise Refusal("numbered rows are distinct: remove DISTINCT", first.expression.span)
    return first


def refuse_ranking(node: nodes.Call) -> NoReturn:
    """Raises `Refusal`: what it is, if it stands where it cannot."""
    name = node.name.text.upper()
    if name == "ROW_NUMBER":
        raise Refusal(
            f"ROW_NUMBER() must be a column of its own in SELECT, as ROW_NUMBER() OVER (...) AS rn, with {WAY_OUT}",
            node.span,
        )
    raise Refusal(f"{name}() can be used only in SELECT, with OVER (...); an outer query can test it", node.span)
