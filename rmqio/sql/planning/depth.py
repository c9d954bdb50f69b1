"""How deep expressions are: what is too deep for a worker is refused here, and what travels to one is flat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Conditional, Expr, Logical

DEEPEST: Final = 1000
"""Levels of an expression. Each takes several calls of Python, and a worker's thread has the stack for these."""
MOST_BLOCKS: Final = 25
"""Levels of AND, OR and CASE within each other. Each is a block of Python or two, of which there are 100 at most."""


def leaves_first(*roots: Any) -> list[Expr]:
    """Returns the expressions in a tree of dataclasses and tuples, each after those that it is made of.

    Pickled in this order, no expression is deep: those within it are there already.
    """
    found: list[Expr] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(each, False) for each in roots]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            found.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Expr):
                stack.append((node, True))
            stack.extend((each, False) for each in _parts(node))
    return found


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, Expr):
        yield from node.children()
    elif isinstance(node, tuple):
        yield from node
    elif is_dataclass(node) and not isinstance(node, type):
        for each in fields(node):
            yield getattr(node, each.name, None)


def check_depth(plan: Any) -> None:
    """Raises `Refusal` if an expression of the plan is too deep."""
    depths: dict[int, int] = {}
    blocks: dict[int, int] = {}
    for each in leaves_first(plan):
        children = each.children()
        depth = depths[id(each)] = 1 + max((depths[id(child)] for child in children), default=0)
        if depth > DEEPEST:
            raise Refusal(
                f"an expression is nested more than {DEEPEST} levels deep: shorten it. Each operator of a chain, "
                "such as a || b || c, is a level",
                None,
            )
        opens = isinstance(each, (Logical, Conditional))
        block = blocks[id(each)] = max(
            (blocks[id(child)] + (opens and not _is_else_case(each, child)) for child in children), default=0
        )
        if block > MOST_BLOCKS:
            raise Refusal(f"AND, OR and CASE are nested more than {MOST_BLOCKS} levels deep", None)


def _is_else_case(each: Expr, child: Expr) -> bool:
    """Whether the child is one more WHEN."""
    return isinstance(each, Conditional) and isinstance(child, Conditional) and child is each.parts[-1]
