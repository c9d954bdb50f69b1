"""CREATE FUNCTION, and what calls of such functions mean: they are found once, before anything else is looked at.

So the expressions of tables and views keep the function that they were written with, wherever they are planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from rmqio.sql.analysis.values import binder as expressions
from rmqio.sql.analysis.values import functions
from rmqio.sql.analysis.values.aggregates import AGGREGATES
from rmqio.sql.analysis.values.elsewhere import AUXILIARY
from rmqio.sql.analysis.windows import windowing as windows
from rmqio.sql.catalog.tables import Catalog
from rmqio.sql.errors import Refusal
from rmqio.sql.functions import registry
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.user.creation import function_of
from rmqio.sql.user.definition import UserFunction

T = TypeVar("T")


def create(catalog: Catalog, statement: statements.CreateFunction, folders: Sequence[str]) -> None:
    """Adds a function. Raises `Refusal` if the name is taken, or the function is none that SQL can call."""
    name = statement.name.text.upper()
    if catalog.function_named(name) is not None:
        if statement.if_not_exists:
            return
        raise Refusal(f"there is a function {statement.name} already", statement.name.span)
    if _is_built_in(name):
        raise Refusal(f"{name} is a function of SQL: choose another name", statement.name.span)
    catalog.functions[statement.name.text] = function_of(statement, folders)


def _is_built_in(name: str) -> bool:
    return (
        name in registry.load()
        or name in AGGREGATES
        or name in functions.SPECIAL
        or name in expressions.WITHOUT_PARENTHESES
        or name in windows.WINDOW_FUNCTIONS
        or name in AUXILIARY
        or name in ("DESCRIPTOR", "UNNEST", "GROUPING")
    )


def resolved(node: T, functions: Mapping[str, UserFunction]) -> T:
    """Returns the part of a statement, where calls of the user's functions have them."""
    by_name = {name.upper(): each for name, each in functions.items()}
    return _resolved(node, by_name, tuple(functions)) if functions else node


def _resolved(node: Any, functions: Mapping[str, UserFunction], known: tuple[str, ...]) -> Any:
    if isinstance(node, tuple):
        found = [_resolved(each, functions, known) for each in node]
        return node if all(new is old for new, old in zip(found, node, strict=True)) else tuple(found)
    if not isinstance(node, nodes.Node):
        return node
    changes: dict[str, Any] = {}
    for each in fields(node):
        before = getattr(node, each.name)
        if isinstance(before, (tuple, nodes.Node)):
            after = _resolved(before, functions, known)
            if after is not before:
                changes[each.name] = after
    if isinstance(node, nodes.Call):
        changes |= {"function": functions.get(node.name.text.upper()), "known": known}
    return replace(node, **changes) if changes else node
