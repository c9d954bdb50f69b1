"""The meaning of conditions: by the reference, a walk of the tree, and by the engine, which must say the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rmqio.rules.engine import compile_rules
from rmqio.rules.errors import Limits
from rmqio.rules.ir import Atom, Condition, Not, Or, Rule
from rmqio.rules.reference import meets
from tests.helpers.rules.regexes import find_by_re


def matching(rules: Iterable[Rule], event: Mapping[str, Any], *, limits: Limits | None = None) -> list[Rule]:
    """Returns the rules that an event matches, in their order."""
    return [rule for rule in rules if holds(rule.condition, event, limits=limits)]


def holds(condition: Condition, event: Mapping[str, Any], *, limits: Limits | None = None) -> bool:
    """Whether an event meets a condition."""
    if isinstance(condition, Atom):
        return meets(condition, event, limits=limits or Limits(), find=find_by_re)
    if isinstance(condition, Not):
        return not holds(condition.condition, event, limits=limits)
    found = (holds(each, event, limits=limits) for each in condition.conditions)
    return any(found) if isinstance(condition, Or) else all(found)


def both_hold(condition: Condition, event: Mapping[str, Any]) -> bool:
    """Whether an event meets a condition; fails if the engine says otherwise than the reference."""
    found = holds(condition, event)
    hits = compile_rules([Rule("r", condition)]).match(dict(event))
    assert bool(hits) == found, (condition, event, hits)
    return found
