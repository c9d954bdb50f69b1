"""Problems that a set has as a whole, and those of rules that a program made: no format has looked at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rmqio.near_names import did_you_mean
from rmqio.rules.correlation.rule import OPERATORS, CorrelationKind, CorrelationRule
from rmqio.rules.errors import Problem
from rmqio.rules.formats.base import LEVELS, Parsed, level_refused
from rmqio.rules.ir import Rule

AnyRule = Rule | CorrelationRule
_MOST_TIMESPAN_MS: Final = 36_525 * 86_400_000
"""A hundred years: the end of a span must be a time that Beam has."""


def problems_of(found: Parsed) -> Iterator[Problem]:
    """Yields what is wrong with the rules together."""
    yield from _repeated([*found.rules, *found.correlations])
    for correlation in found.correlations:
        yield from _of_numbers(correlation)
    if not found.rules:  # correlations of rules that another set has
        return
    known = {each.id for each in found.rules}
    invalid = {each.rule_id for each in found.problems}
    for each in found.correlations:
        for rule_id in dict.fromkeys(each.rules):
            if rule_id not in known and rule_id not in invalid:
                near = did_you_mean(rule_id, known)
                yield _problem(each, f"it takes matches of the rule {rule_id!r}, and there is none{near}")


def problems_of_values(rules: Iterable[AnyRule]) -> Iterator[Problem]:
    """Yields what is wrong with the parts of rules but their conditions."""
    for each in rules:
        if not isinstance(each.id, str) or not each.id:
            yield _problem(each, f"its id is {each.id!r}; it must be text that is not empty")
        if each.level not in LEVELS:
            yield _problem(each, level_refused(each.level))
        if isinstance(each, CorrelationRule):
            yield from _of_correlation(each)


def _of_correlation(rule: CorrelationRule) -> Iterator[Problem]:
    kinds = [each.value for each in CorrelationKind]
    for name, value, known in (("kind", rule.kind, kinds), ("operator", rule.operator, OPERATORS)):
        if value not in known:
            near = did_you_mean(str(value), known)
            yield _problem(rule, f"{name}: {value!r} is not one of {', '.join(known)}{near}")
    if not rule.rules or not isinstance(rule.rules, tuple):
        yield _problem(rule, f"rules is {rule.rules!r}; it must be a tuple with the ids of one rule or more")
    yield from _of_numbers(rule)
    if rule.kind == CorrelationKind.VALUE_COUNT and not rule.field:
        yield _problem(rule, "value_count needs a field")


def _of_numbers(rule: CorrelationRule) -> Iterator[Problem]:
    for name, number, least in (("timespan_ms", rule.timespan_ms, 1), ("count", rule.count, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            yield _problem(rule, f"{name} is {number!r}; it must be a whole number of at least {least}")
        elif name == "timespan_ms" and number > _MOST_TIMESPAN_MS:
            yield _problem(rule, f"the timespan of {number:,} ms is too long: the most is a hundred years")


def _repeated(rules: Sequence[AnyRule]) -> Iterator[Problem]:
    """Ids that two rules have: a match would not say which one it is."""
    first: dict[str, AnyRule] = {}
    for each in rules:
        other = first.setdefault(each.id, each)
        if other is not each:
            place = f"{other.place.file}:{other.place.line}" if other.place.file else "another rule"
            yield _problem(each, f"{place} has the same id")


def _problem(rule: AnyRule, reason: str) -> Problem:
    return Problem(rule.place.file, rule.place.line, str(rule.id), reason)
