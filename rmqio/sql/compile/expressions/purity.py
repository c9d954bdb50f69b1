"""Finds the expressions that give the same value each time."""

from __future__ import annotations

from rmqio.sql.expressions import Expr, Operation, noted
from rmqio.sql.functions import registry
from rmqio.sql.user.definition import UserCall


def is_pure(expression: Expr) -> bool:
    """Returns whether it is the same whenever it is computed."""
    functions = registry.load()

    def of(each: Expr, parts: list[bool]) -> bool:
        if isinstance(each, UserCall):
            return each.function.is_deterministic and all(parts)
        if isinstance(each, Operation) and each.name in functions:
            return functions[each.name].is_pure and all(parts)
        return all(parts)

    return noted(expression, "is_pure", of)  # type: ignore[no-any-return]
