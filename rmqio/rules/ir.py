"""The representation of rules that all formats share: a tree of conditions over the fields of an event.

Logic has two values: an atom matches or it does not. An atom on a field that the event does not have never matches, nor
does one whose value cannot be compared with the field's; `Not` of it does. A format whose logic has three values (SQL)
says so with further atoms (`EXISTS`), so that the plan need not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias


class Kind(StrEnum):
    """How an atom compares the value of a field."""

    EQUALS = "equals"
    LESS = "less"
    AT_MOST = "at_most"
    GREATER = "greater"
    AT_LEAST = "at_least"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    WILDCARD = "wildcard"  # `*` any text, `?` one character, a backslash before either, or before itself: the character
    REGEX = "regex"  # found anywhere in the text
    CIDR = "cidr"  # an IPv4 or IPv6 address in a network
    EXISTS = "exists"  # the event has the field, be it null
    IS_NULL = "is_null"  # the event has the field, and it is null
    FIELD = "field"  # equal to the value of the field that `value` names
    CONTAINS_FIELD = "contains_field"  # contains it, begins with it, ends with it
    STARTS_WITH_FIELD = "starts_with_field"
    ENDS_WITH_FIELD = "ends_with_field"
    SQL = "sql"  # an expression of RocketMQ SQL in `value`, true for the event; it has no field


FIELD_KINDS: Final = frozenset({Kind.FIELD, Kind.CONTAINS_FIELD, Kind.STARTS_WITH_FIELD, Kind.ENDS_WITH_FIELD})
"""Comparisons of two fields."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One comparison of one field.

    `field` is a path of names joined by dots (a name with a dot in it is tried first, as one name); None is any text
    in the event, for keywords. A list in the event matches if one of its members does. `ignore_case` is for text.
    `flags` are those of a `REGEX`: some of "ims".
    """

    field: str | None
    kind: Kind
    value: str | int | float | bool | None = None
    ignore_case: bool = False
    flags: str = ""


@dataclass(frozen=True, slots=True)
class And:
    """All of the conditions match; without conditions, it matches."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the conditions or more match; without conditions, it does not match."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not match."""

    condition: Condition


Condition: TypeAlias = Atom | And | Or | Not


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a rule: its file (or topic), and the line of it that begins the rule, from 1."""

    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it is called, and the condition under which an event matches it.

    `level` is Sigma's: informational, low, medium, high or critical. `source` is the log source that the rule is for,
    such as (("category", "process_creation"), ("product", "windows")); a mapping of the set makes conditions of it.
    """

    id: str
    condition: Condition
    title: str = ""
    level: str = "medium"
    tags: tuple[str, ...] = ()
    source: tuple[tuple[str, str], ...] = ()
    place: Place = Place()


def atoms(condition: Condition) -> Iterator[Atom]:
    """Returns the atoms of a condition, in order, with repeats. The depth of conditions is not limited."""
    rest = [condition]
    while rest:
        one = rest.pop()
        if isinstance(one, Atom):
            yield one
        elif isinstance(one, Not):
            rest.append(one.condition)
        else:
            rest.extend(reversed(one.conditions))
