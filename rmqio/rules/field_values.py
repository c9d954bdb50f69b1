"""Values of fields, for expressions and correlations, as the engine sees them."""

from __future__ import annotations

from typing import Any

from rmqio.rules.plan.values import flat, values_at


def members(event: Any, path: str) -> list[Any]:
    """Returns the single values of a field: the members of a list at any depth. Objects have none."""
    return [each for value in values_at(event, path) or () for each in flat(value)]
