"""Problems of rules, each with its file, line, rule and reason; and the bounds on what rules and events can cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from rmqio.errors import LocalError

# Bounds on what rules and events can cost. Rules beyond them are an error that names the rule.


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a rule set and of the work for an event.

    Args:
      max_rules: rules in a set.
      max_atoms: different conditions of all rules together.
      max_pattern_bytes: the length of the constant of a condition.
      max_wildcards: `*` and `?` in a wildcard.
      max_field_names: names in a path of a field.
      max_regex_bytes: the size of one regular expression after compiling.
      max_pattern_parts: of one field, the characters of all regular expressions, with repeats of up to 15 written out,
        and the `*` and `?` of all wildcards. Each takes up to a millisecond to compile.
      max_database_bytes: the size of all patterns of one field after compiling.
      max_value_bytes: what is looked at of a text in an event; the rest is cut off.
      max_values: values of a field that are looked at in an event, members of lists on its path, and pairs of values of
        two fields; of an event, for conditions without a field. The others are left out.
      max_hit_atoms: how many conditions a hit names.
      cache_bytes: what the values that are remembered may take, of all fields together.
    """

    max_rules: int = 100_000
    max_atoms: int = 1_000_000
    max_pattern_bytes: int = 8_192
    max_wildcards: int = 64
    max_field_names: int = 16
    max_regex_bytes: int = 4 << 20
    max_pattern_parts: int = 100_000
    max_database_bytes: int = 256 << 20
    max_value_bytes: int = 65_536
    max_values: int = 10_000
    max_hit_atoms: int = 64
    cache_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "cache_bytes" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise LocalError(f"{field.name} is {value!r}; it must be a number of at least {least}")


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
