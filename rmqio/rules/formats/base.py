"""Text in, rules out: what the formats have in common."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rmqio.hints import did_you_mean, line_with_carets
from rmqio.rules.errors import Problem
from rmqio.rules.ir import OPERATORS, CorrelationKind, CorrelationRule, Rule

LEVELS: Final = ("informational", "low", "medium", "high", "critical")
_NEAR: Final = 500
"""Characters on either side of a place, of which a part is shown."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """One file of rules, or one message of a topic: its name, for errors, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rules of some texts, and what is wrong with the others. A rule with a problem is not among the rules."""

    rules: tuple[Rule, ...] = ()
    correlations: tuple[CorrelationRule, ...] = ()
    problems: tuple[Problem, ...] = ()


def level_refused(level: object) -> str:
    """Returns why a level is refused."""
    near = did_you_mean(str(level).lower(), LEVELS)
    return f"level: {level!r} is not one of {', '.join(LEVELS)}{near}"


def joined(parts: Iterable[Parsed]) -> Parsed:
    """Returns all of them as one."""
    rules: list[Rule] = []
    correlations: list[CorrelationRule] = []
    problems: list[Problem] = []
    for each in parts:
        rules += each.rules
        correlations += each.correlations
        problems += each.problems
    return Parsed(tuple(rules), tuple(correlations), tuple(problems))


def line_with_caret(text: str, line: int, column: int = 1, width: int = 1) -> str:
    """Returns a line of the text with carets under a part of it; line and column count from 1.

    If the line is long, as in a file without line breaks, only the surroundings of the place are shown.
    """
    starts = _line_starts(text)
    if not 0 < line <= len(starts):
        return ""
    end = text.find("\n", starts[line - 1])
    begin, end = starts[line - 1], len(text) if end < 0 else end
    if text.endswith("\r", begin, end):
        end -= 1
    at = min(begin + max(column, 1), end + 1) - 1
    # A file can be one line, with a mistake in each of its rules: only what can be shown is copied.
    near = max(begin, at - _NEAR)
    return line_with_carets(text[near : min(end, at + _NEAR)], at - near, width)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Returns the place of a character, both from 1."""
    starts = _line_starts(text)
    line = bisect.bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1


@functools.lru_cache(maxsize=2)
def _line_starts(text: str) -> list[int]:
    """The offsets of the lines. A text can have a hundred thousand rules, whose places are asked for one by one."""
    return [0, *(each.end() for each in re.finditer("\n", text))]


# Problems that a set has as a whole, and those of rules that a program made: no format has looked at them.

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
