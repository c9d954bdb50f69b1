"""Remarks on rules without events: copies, conditions that never or always match, and what they cost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.rules.errors import Limits, Problem
from rmqio.rules.ir import (
    ANYTHING,
    FIELD_KINDS,
    NOTHING,
    And,
    Atom,
    Condition,
    Kind,
    Not,
    Or,
    Rule,
    atoms,
    simplified,
    unordered,
)
from rmqio.rules.match.atoms import is_number, text_of
from rmqio.rules.reference import meets

# Conditions that cannot all be met, as far as that is cheap to see: each against one value of its field.

_BELOW: Final = (Kind.LESS, Kind.AT_MOST)
_ABOVE: Final = (Kind.GREATER, Kind.AT_LEAST)
_UNTRIED: Final = FIELD_KINDS | {Kind.SQL, Kind.REGEX}
"""Conditions that need more than the value, or that only an engine looks for."""
_LIMITS: Final = Limits()
_MOST_PAIRS: Final = 10_000


def contradictions(parts: Iterable[Condition]) -> Iterator[str]:
    """Yields reasons why all of the parts cannot match. A list can have several values, so that most say so."""
    yes = [each for each in parts if isinstance(each, Atom)]
    no = {each.condition for each in parts if isinstance(each, Not) and isinstance(each.condition, Atom)}
    one_of = [each.conditions for each in parts if isinstance(each, Or)]
    for each in yes:
        if each in no:
            yield f"{shown(each)}, and not {shown(each)}"
        elif each.kind not in (Kind.EXISTS, Kind.SQL) and Atom(each.field, Kind.EXISTS) in no:
            yield f"{each.field} is not there, and {shown(each)}"
    by_field: dict[str, list[Atom]] = {}
    for each in yes:
        if each.field is not None:
            by_field.setdefault(each.field, []).append(each)
    for name, some in by_field.items():
        yield from _of_values(name, some, no, one_of)
        yield from _of_bounds(name, some)


def _of_values(
    name: str, some: Sequence[Atom], no: Iterable[Atom], one_of: Sequence[Sequence[Condition]]
) -> Iterator[str]:
    """Reasons by the values that the field has to have: each other condition is tried on them."""
    values = [each for each in some if each.kind is Kind.EQUALS and each.value is not None]
    if not values:
        return
    given, left = values[0], _MOST_PAIRS
    for each in some:
        if each is not given and not _can_meet(given, (each,)):
            yield f"{shown(given)} and {shown(each)}, unless {name} is a list"
            return
    for each in no:
        if each.field == name and each != given and each.kind is not Kind.EXISTS and _must_meet(given, each):
            yield f"{shown(given)}, and not {shown(each)}"
            return
    for members in one_of:
        left -= len(members)
        found = [each for each in members if isinstance(each, Atom) and each.field == name]
        if left > 0 and len(found) == len(members) and not _can_meet(given, found):
            yield f"{shown(given)} and one of {len(found)} other conditions, unless {name} is a list"
            return


def _of_bounds(name: str, some: Sequence[Atom]) -> Iterator[str]:
    above = [each for each in some if each.kind in _ABOVE and is_number(each.value)]
    below = [each for each in some if each.kind in _BELOW and is_number(each.value)]
    if not above or not below:
        return
    low, is_open_below = max((float(each.value), each.kind is Kind.GREATER) for each in above)  # type: ignore[arg-type]
    high, is_closed = min((float(each.value), each.kind is Kind.AT_MOST) for each in below)  # type: ignore[arg-type]
    if low > high or (low == high and (is_open_below or not is_closed)):
        yield f"{name} is above {low:g} and below {high:g}, unless it is a list"


def _can_meet(given: Atom, others: Iterable[Atom]) -> bool:
    """Whether a value that equals the given one can meet one of the others; True also if that is not tried."""
    return any(_is_met(given, each, any_of=True) for each in others)


def _must_meet(given: Atom, other: Atom) -> bool:
    return other.kind not in _UNTRIED and _is_tried(given, other) and _is_met(given, other, any_of=False)


def _is_tried(given: Atom, other: Atom) -> bool:
    """Other spellings of a text that ignores case can meet what the text itself does not."""
    return other.kind not in _UNTRIED and (
        other.ignore_case or not given.ignore_case or other.kind in (Kind.EXISTS, Kind.IS_NULL)
    )


def _is_met(given: Atom, other: Atom, *, any_of: bool) -> bool:
    if not _is_tried(given, other):
        return any_of
    value = given.value
    spellings: list[Any] = [value]  # of a number: 5, 5.0 and "5" are equal to it
    if is_number(value):
        spellings += [text_of(value), float(value)]
    try:
        found = [meets(other, {str(given.field): each}, limits=_LIMITS) for each in spellings]
    except (TypeError, ValueError, OverflowError):  # a condition that makes no sense; compiling says so
        return any_of
    return any(found) if any_of else all(found)


def shown(atom: Atom) -> str:
    """Returns a condition on one line, in words."""
    value: Any = atom.value
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    if len(text) > 60:
        text = f"{text[:57]}..."
    name = "any text" if atom.field is None else atom.field
    kind = atom.kind.value.replace("_", " ")
    if atom.kind is Kind.SQL:
        return str(value)
    if atom.kind in (Kind.EXISTS, Kind.IS_NULL):
        return f"{name} {kind}"
    if atom.kind in FIELD_KINDS:
        return f"{name} {kind.removesuffix(' field') if atom.kind is not Kind.FIELD else 'equals'} the field {value}"
    case = " (any case)" if atom.ignore_case else ""
    return f"{name} {kind} {text}{f' (flags {atom.flags})' if atom.flags else ''}{case}"


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
