"""Rules of a set of which some cannot be used: the others, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rmqio.rules.engine import Matcher, compile_rules
from rmqio.rules.errors import Problem, RuleError, without_problems
from rmqio.rules.ir import Rule
from rmqio.rules.limits import Limits
from rmqio.rules.match.patterns import DatabaseStore


def compile_usable(
    source: Any, *, limits: Limits | None = None, store: DatabaseStore | None = None, previous: Matcher | None = None
) -> tuple[Matcher, tuple[Problem, ...]]:
    """Returns the rules of a source that can be used, and what is wrong with the others.

    Args:
      source: a `RuleSet`; of another source, which has no more than `load`, rules that do not compile are left out.
      limits, store, previous: as for `compile_rules`.

    Raises: `RuleError` if there are rules, and none can be used, or if the source cannot be read.
    """
    rules: Iterable[Rule]
    if hasattr(source, "usable"):
        found = source.usable()
        rules, problems = found.rules, [*found.problems]
    else:
        rules, problems = source.load(), []
    while True:
        rules = tuple(rules)
        if problems and not rules:
            raise RuleError(tuple(problems))
        try:
            return compile_rules(rules, limits=limits, store=store, previous=previous), tuple(problems)
        except RuleError as error:
            problems += error.problems
            left = [*without_problems(rules, error.problems)]
            if len(left) == len(rules):
                raise
            rules = left
