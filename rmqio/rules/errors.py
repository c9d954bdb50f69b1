"""Problems of rules: each with its file, line, rule and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rmqio.errors import LocalError

_SHOWN = 100


class Problem(NamedTuple):
    """One thing that is wrong."""

    file: str
    """The file or topic; empty: unknown."""
    line: int
    """The line, from 1; 0: unknown."""
    rule_id: str
    """Empty if the file as a whole is wrong."""
    reason: str
    shown: str = ""
    """The line of the file with a caret below the place, if that is known."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return f"{place}rule {self.rule_id}: {self.reason}" if self.rule_id else f"{place}{self.reason}"


class RuleError(LocalError):
    """Rules that cannot be used. Its message has a line for each problem."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        lines = [str(each) for each in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"and {len(problems) - _SHOWN} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[RuleError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def without_problems(rules: Iterable[Any], problems: Iterable[Problem]) -> Iterator[Any]:
    """Yields the rules that no problem is about."""
    bad = {(each.file, each.line, each.rule_id) for each in problems}
    return (each for each in rules if (each.place.file, each.place.line, each.id) not in bad)
