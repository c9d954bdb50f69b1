"""Conditions that cannot all be met, as far as that is cheap to see: each against one value of its field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rmqio.rules.ir import FIELD_KINDS, Atom, Condition, Kind, Not, Or
from rmqio.rules.limits import Limits
from rmqio.rules.match.reference import meets
from rmqio.rules.plan.values import is_number, text_of

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
