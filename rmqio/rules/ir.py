"""The representation of rules that all formats share: a tree of conditions over the fields of an event.

Logic has two values: an atom matches or it does not. An atom on a field that the event does not have never matches, nor
does one whose value cannot be compared with the field's; `Not` of it does. A format whose logic has three values (SQL)
says so with further atoms (`EXISTS`), so that the plan need not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias


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


# A correlation rule, as a value that all formats can make.


class CorrelationKind(StrEnum):
    """The ways to correlate. The names are Sigma's."""

    EVENT_COUNT = "event_count"
    VALUE_COUNT = "value_count"  # distinct values of a field
    TEMPORAL = "temporal"  # each of the rules matches, in any order
    TEMPORAL_ORDERED = "temporal_ordered"  # each of the rules matches, in their order


OPERATORS: Final = ("gte", "gt", "lte", "lt", "eq", "neq")
_NOWHERE: Final = Place()


@dataclass(frozen=True, slots=True)
class CorrelationRule:
    """A rule over the matches of other rules, in one group, within a span of event time.

    Attributes:
      rules: the ids of the rules whose matches it takes; of `temporal_ordered`, in their order.
      group_by: fields of the event; matches whose fields have equal values are one group.
      timespan_ms: how long the span is.
      operator, count: how the number compares, for `event_count` and `value_count`: one of `OPERATORS`.
      field: the field whose values `value_count` counts.
      aliases: for a name in `group_by` or `field`, the field that it stands for in the events of a rule:
        ((name, rule id, field), ...); of several fields, the first that has a value.
      generate: whether matches of `rules` are reported by themselves, too.
    """

    id: str
    kind: CorrelationKind
    rules: tuple[str, ...]
    timespan_ms: int
    group_by: tuple[str, ...] = ()
    operator: str = "gte"
    count: int = 1
    field: str = ""
    aliases: tuple[tuple[str, str, str], ...] = ()
    title: str = ""
    level: str = "medium"
    tags: tuple[str, ...] = ()
    generate: bool = False
    place: Place = _NOWHERE

    def fields_of(self, name: str, rule_id: str) -> tuple[str, ...]:
        """Returns the fields that a name stands for in the events of a rule: the first that has a value is taken."""
        there = tuple(field for alias, rule, field in self.aliases if alias == name and rule == rule_id)
        return there or (name,)


# The fields of correlations, as they are in the events of each rule.


def with_fields(rule: CorrelationRule, fields_of: Callable[[str, str], Sequence[str]]) -> CorrelationRule:
    """Returns a correlation with the fields of the events.

    The names stay as they are, and what they are in the events of each rule becomes an alias. If a name is the same
    field for all rules, it is called as that field.

    Args:
      fields_of: of a field and the id of a rule: what that field is in the events of the rule.
    """
    names = dict.fromkeys([*rule.group_by, *([rule.field] if rule.field else [])])
    called: dict[str, str] = {}
    aliases: list[tuple[str, str, str]] = []
    for name in names:
        there = {
            rule_id: [each for given in rule.fields_of(name, rule_id) for each in fields_of(given, rule_id)]
            for rule_id in dict.fromkeys(rule.rules)
        }
        found = {each for fields in there.values() for each in fields}
        if len(found) == 1 and not any(alias == name for alias, _, _ in rule.aliases):
            called[name] = found.pop()
        else:
            aliases += [(name, rule_id, each) for rule_id, fields in there.items() for each in fields]
    group_by = tuple(called.get(name, name) for name in rule.group_by)
    return replace(rule, group_by=group_by, field=called.get(rule.field, rule.field), aliases=tuple(aliases))


# Walks over trees of conditions, without recursion: the depth of conditions is not limited.

ANYTHING: Final = And(())
NOTHING: Final = Or(())


def rebuilt(condition: Condition, change: Callable[[Atom], Condition]) -> Condition:
    """Returns the condition with each atom replaced, and made simpler where that is obvious.

    Lists of one condition are that condition, lists in lists of the same kind are one list, and what always or never
    matches (`ANYTHING`, `NOTHING`) is left out where it changes nothing.
    """
    root: list[Condition] = []
    todo: list[tuple[Condition, list[Condition], list[Condition] | None]] = [(condition, root, None)]
    while todo:
        one, into, parts = todo.pop()
        if isinstance(one, Atom):
            into.append(change(one))
        elif parts is not None:
            into.append(negation(parts[0]) if isinstance(one, Not) else _listed(one, parts))
        else:
            fresh: list[Condition] = []
            todo.append((one, into, fresh))
            inner = (one.condition,) if isinstance(one, Not) else one.conditions
            todo += [(each, fresh, None) for each in reversed(inner)]
    return root[0]


def simplified(condition: Condition) -> Condition:
    """Returns the same condition, simpler: see `rebuilt`."""
    return rebuilt(condition, lambda atom: atom)


def negation(condition: Condition) -> Condition:
    """Returns NOT of a condition; NOT of NOT is the condition."""
    if isinstance(condition, Not):
        return condition.condition
    if condition == ANYTHING:
        return NOTHING
    return ANYTHING if condition == NOTHING else Not(condition)


def all_of(*conditions: Condition) -> Condition:
    """Returns AND of conditions that are simple already."""
    return _listed(ANYTHING, conditions)


def any_of(*conditions: Condition) -> Condition:
    """Returns OR of conditions that are simple already."""
    return _listed(NOTHING, conditions)


def _listed(given: And | Or | Not, parts: tuple[Condition, ...] | list[Condition]) -> Condition:
    kind, neutral, final = (And, ANYTHING, NOTHING) if isinstance(given, And) else (Or, NOTHING, ANYTHING)
    flat: list[Condition] = []
    for each in parts:
        if isinstance(each, kind):
            flat += each.conditions
        elif isinstance(each, (And, Or)) and not each.conditions:
            return final
        else:
            flat.append(each)
    if len(flat) == 1:
        return flat[0]
    return kind(tuple(flat)) if flat else neutral


def unordered(condition: Condition) -> bytes:
    """Returns a digest that is the same for conditions that differ only in the order and the repeats of their parts."""
    done: list[bytes] = []
    todo: list[tuple[Condition, bool]] = [(condition, False)]
    while todo:
        one, is_open = todo.pop()
        if isinstance(one, Atom):
            done.append(_digest(text_of(one).encode("utf-8", "surrogatepass")))
            continue
        inner = (one.condition,) if isinstance(one, Not) else one.conditions
        if not is_open:
            todo.append((one, True))
            todo += [(each, False) for each in inner]
        else:
            parts = sorted({*done[len(done) - len(inner) :]})
            del done[len(done) - len(inner) :]
            done.append(_digest(type(one).__name__.encode() + b"".join(parts)))
    return done[0]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def text_of(condition: Condition) -> str:
    """Returns a text that is the same for equal conditions and for no others."""
    found: list[str] = []
    todo: list[Condition | str] = [condition]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, Atom):
            found.append(repr((one.field, one.kind.value, one.value, one.ignore_case, "".join(sorted(one.flags)))))
        elif isinstance(one, Not):
            todo += [")", one.condition, "not("]
        else:
            todo += [")", *reversed(one.conditions), "and(" if isinstance(one, And) else "or("]
    return "".join(found)


# Rules as plain lists, in the order in which a stack rebuilds them: conditions may be as deep as they like.


def write_rules(rules: Iterable[Rule]) -> list[list[Any]]:
    """Returns the rules as lists of plain values."""
    return [
        [
            rule.id, write_condition(rule.condition), rule.title, rule.level, list(rule.tags),
            [list(pair) for pair in rule.source], rule.place.file, rule.place.line,
        ]
        for rule in rules
    ]  # fmt: skip


def read_rules(rows: Iterable[Sequence[Any]]) -> tuple[Rule, ...]:
    """Returns the rules of `write_rules`."""
    return tuple(
        Rule(
            id,
            read_condition(condition),
            title,
            level,
            tuple(tags),
            tuple((name, value) for name, value in source),
            Place(file, line),
        )
        for id, condition, title, level, tags, source, file, line in rows
    )


def write_condition(condition: Condition) -> list[Any]:
    """Returns the nodes of a tree, each after those in it."""
    rest = [condition]
    made: list[Any] = []
    while rest:
        one = rest.pop()
        if isinstance(one, Atom):
            made.append([one.field, str(one.kind), one.value, one.ignore_case, one.flags])
        elif isinstance(one, Not):
            made.append("not")
            rest.append(one.condition)
        else:
            made.append(["and" if isinstance(one, And) else "or", len(one.conditions)])
            rest += one.conditions
    made.reverse()
    return made


def read_condition(nodes: Iterable[Any]) -> Condition:
    """Returns the tree of `write_condition`."""
    done: list[Condition] = []
    for node in nodes:
        if node == "not":
            done.append(Not(done.pop()))
        elif len(node) == 2:
            name, count = node
            members = tuple(done[len(done) - count :])
            del done[len(done) - count :]
            done.append(And(members) if name == "and" else Or(members))
        else:
            field, kind, value, ignore_case, flags = node
            done.append(Atom(field, Kind(kind), value, ignore_case, flags))
    (found,) = done
    return found
