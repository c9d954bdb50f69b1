"""Text in, rules out: what the formats have in common."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rmqio.carets import line_with_carets
from rmqio.near_names import did_you_mean
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.errors import Problem
from rmqio.rules.ir import Rule

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
