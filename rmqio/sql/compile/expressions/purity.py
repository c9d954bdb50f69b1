"""Finds the expressions that give the same value each time."""

from __future__ import annotations

from rmqio.sql.expressions import Expr, Operation, walk
from rmqio.sql.functions import registry
from rmqio.sql.user.definition import UserCall


def is_pure(expression: Expr) -> bool:
    """Returns whether it is the same whenever it is computed."""
    functions = registry.load()
    return all(
        each.function.is_deterministic if isinstance(each, UserCall) else functions[each.name].is_pure
        for each in walk(expression)
        if isinstance(each, UserCall) or (isinstance(each, Operation) and each.name in functions)
    )
