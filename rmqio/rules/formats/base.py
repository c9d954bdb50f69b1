"""Text in, rules out: what the formats have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rmqio.near_names import did_you_mean
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.errors import Problem
from rmqio.rules.ir import Rule

LEVELS: Final = ("informational", "low", "medium", "high", "critical")


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
    """Returns a line of the text with carets under a part of it; line and column count from 1."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return ""
    shown = lines[line - 1].rstrip("\r")
    start = min(max(column, 1), len(shown) + 1) - 1
    indent = "".join("\t" if each == "\t" else " " for each in shown[:start])
    return f"  {shown}\n  {indent}{'^' * max(1, min(width, len(shown) - start))}"


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Returns the place of a character, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
