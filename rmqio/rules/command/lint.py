"""Remarks on rules without events: copies, conditions that never or always match, and what they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqio.rules.command.contradictions import contradictions, shown
from rmqio.rules.errors import Problem
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Condition, Kind, Not, Or, Rule, atoms
from rmqio.rules.trees import ANYTHING, NOTHING, simplified, unordered

ENGINES: Final = {
    Kind.EQUALS: "dictionary", Kind.CIDR: "networks", Kind.EXISTS: "presence", Kind.IS_NULL: "presence",
    Kind.SQL: "expression", **dict.fromkeys(FIELD_KINDS, "two fields"),
    **dict.fromkeys((Kind.LESS, Kind.AT_MOST, Kind.GREATER, Kind.AT_LEAST), "thresholds"),
    **dict.fromkeys((Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX), "patterns"),
}  # fmt: skip
"""By what each kind of condition is found."""
_CONFIRMED: Final = re.compile(r"\(\?(?:[=!>]|<[=!]|P=|\()|\\[1-9]|[*+?}]\+")
"""Lookaround, back-references, atomic groups and conditionals: a pattern database finds candidates only."""
_TOKENS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[^}]*\}|.", re.DOTALL)
_SHORT: Final = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a rule.

    Attributes:
      atoms: how many conditions of each kind.
      remarks: what makes it cost more than others.
    """

    atoms: Counter[Kind] = field(default_factory=Counter)
    remarks: tuple[str, ...] = ()


def warnings_of(rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yields what is likely to be a mistake."""
    first: dict[bytes, Rule] = {}
    for rule in rules:
        simple = simplified(rule.condition)
        other = first.setdefault(unordered(simple), rule)
        if other is not rule:
            place = f" ({other.place.file}:{other.place.line})" if other.place.file else ""
            yield _problem(rule, f"it has the same condition as the rule {other.id}{place}")
        if simple == NOTHING:
            yield _problem(rule, "it never matches: its condition is empty")
        elif simple == ANYTHING:
            yield _problem(rule, "it matches every event: its condition is empty")
        for reason in dict.fromkeys(_contradictions(simple)):
            yield _problem(rule, reason)


def _problem(rule: Rule, reason: str) -> Problem:
    return Problem(rule.place.file, rule.place.line, rule.id, reason)


def _contradictions(condition: Condition) -> Iterator[str]:
    todo: list[tuple[Condition, str]] = [(condition, "it never matches")]
    while todo:
        one, result = todo.pop()
        if isinstance(one, Not):
            todo.append((one.condition, "a part of it always matches" if "never" in result else "a part never matches"))
        elif isinstance(one, And):
            yield from (f"{result}: {reason}" for reason in contradictions(one.conditions))
            todo += [(each, result) for each in one.conditions]
        elif isinstance(one, Or):
            todo += [(each, "a part of it never matches") for each in one.conditions]


def cost_of(rule: Rule) -> Cost:
    """Returns what a rule costs."""
    counts = Counter(each.kind for each in atoms(rule.condition))
    remarks = []
    if not is_triggered(simplified(rule.condition)):
        remarks.append("runs on every event: no condition of it has to be met")
    for each in dict.fromkeys(atoms(rule.condition)):
        if each.kind is Kind.REGEX and _CONFIRMED.search(str(each.value)):
            remarks.append(f"{shown(each)}: what is found is confirmed, and look-behind or references may be refused")
        if ENGINES[each.kind] == "patterns" and literal_length(each) < _SHORT:
            remarks.append(f"{shown(each)}: has no text of {_SHORT} characters or more to look for")
    if counts[Kind.SQL]:
        number = counts[Kind.SQL]
        remarks.append(f"computes {number} expression{'s' * (number > 1)} for each event that gets so far")
    return Cost(counts, tuple(remarks))


def literal_length(atom: Atom) -> int:
    """Returns the length of the longest text that is certainly in what a pattern finds; of a regex, about so."""
    text = str(atom.value)
    if atom.kind is Kind.WILDCARD:
        return max(map(len, re.split(r"(?<!\\)[*?]", text)))
    if atom.kind is Kind.REGEX:
        return 0 if "|" in text else _longest_run(_TOKENS.findall(text))
    return len(text)


def _longest_run(tokens: Sequence[str]) -> int:
    longest = run = 0
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        is_plain = token not in ".^$|()*+?" if len(token) == 1 else token[0] == "\\" and not token[1].isalnum()
        run = run + 1 if is_plain and after not in ("*", "?") and not after.startswith("{0") else 0
        longest = max(longest, run)
    return longest


def is_triggered(condition: Condition) -> bool:
    """Returns whether some atom must be met for the condition to match."""
    return bool(triggers(condition))


def triggers(condition: Condition) -> list[Atom]:
    """Returns atoms of which one must be met if the condition matches: those by which a rule can be found; or none."""
    if isinstance(condition, Atom):
        return [condition]
    if isinstance(condition, Not):
        return []
    found = [triggers(each) for each in condition.conditions]
    if isinstance(condition, Or):
        return [atom for each in found for atom in each] if all(found) else []
    return min((each for each in found if each), key=_frequency, default=[])


def _frequency(some: Sequence[Atom]) -> tuple[float, int]:
    """How often one of the atoms is likely to be met, without events to look at: by kind and by length."""
    rank: dict[Kind, float] = {
        Kind.EQUALS: 1, Kind.CIDR: 2, Kind.ENDS_WITH: 2, Kind.STARTS_WITH: 2, Kind.CONTAINS: 2, Kind.WILDCARD: 3,
        Kind.REGEX: 3, **dict.fromkeys(FIELD_KINDS, 5), Kind.IS_NULL: 6, Kind.SQL: 7, Kind.EXISTS: 8,
    }  # fmt: skip
    each = [rank.get(atom.kind, 4) - min(literal_length(atom), 30) / 40 for atom in some]
    return max(each), len(some)
