"""The meaning of conditions: by the reference, and by the engine, which must say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqio.rules.engine import compile_rules
from rmqio.rules.ir import Condition, Rule
from rmqio.rules.limits import Limits
from rmqio.rules.match import reference


def holds(condition: Condition, event: Mapping[str, Any]) -> bool:
    """Whether an event meets a condition."""
    return reference.holds(condition, event, limits=Limits())


def both_hold(condition: Condition, event: Mapping[str, Any]) -> bool:
    """Whether an event meets a condition; fails if the engine says otherwise than the reference."""
    found = holds(condition, event)
    hits = compile_rules([Rule("r", condition)]).match(dict(event))
    assert bool(hits) == found, (condition, event, hits)
    return found
