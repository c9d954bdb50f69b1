"""Rules as plain lists, in the order in which a stack rebuilds them: conditions may be as deep as they like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Place, Rule


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
