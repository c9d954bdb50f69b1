"""The sides that run in this process: the engine, plain Python, and decoding alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rmqio.rules.engine import compile_rules
from rmqio.rules.errors import Limits
from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Rule

Run = Callable[[Sequence[bytes]], list[list[str]]]
"""From bodies to the ids of the rules that each matches."""


def matcher_run(rules: Sequence[Rule], engine: Any = "auto", **limits: int) -> Run:
    matcher = compile_rules(rules, engine=engine, limits=Limits(**limits))

    def run(bodies: Sequence[bytes]) -> list[list[str]]:
        found, _ = matcher.find(bodies)
        return [[hit.rule.id for hit in found[at]] if at in found else [] for at in range(len(bodies))]

    return run


def closures_run(rules: Sequence[Rule], *, with_re: bool) -> Run:
    """Each rule a closure over the event, as one would write it; with `re`, its texts are one expression."""
    tests = [(rule.id, _closure(rule.condition, with_re=with_re)) for rule in rules]
    decode = msgspec.json.decode

    def run(bodies: Sequence[bytes]) -> list[list[str]]:
        found = []
        for body in bodies:
            event = decode(body)
            found.append([rule_id for rule_id, test in tests if test(event)])
        return found

    return run


def _closure(condition: Condition, *, with_re: bool) -> Callable[[dict[str, Any]], bool]:
    if isinstance(condition, Atom):
        return _atom_closure(condition)
    if isinstance(condition, Not):
        inner = _closure(condition.condition, with_re=with_re)
        return lambda event: not inner(event)
    if with_re and isinstance(condition, Or) and (joined := _joined(condition)) is not None:
        return joined
    members = [_closure(each, with_re=with_re) for each in condition.conditions]
    if isinstance(condition, And):
        return lambda event: all(member(event) for member in members)
    return lambda event: any(member(event) for member in members)


def _joined(condition: Or) -> Callable[[dict[str, Any]], bool] | None:
    atoms = [each for each in condition.conditions if isinstance(each, Atom) and isinstance(each.value, str)]
    if len(atoms) < len(condition.conditions) or len({atom.field for atom in atoms}) != 1:
        return None
    ends = {Kind.CONTAINS: "{}", Kind.STARTS_WITH: r"\A{}", Kind.ENDS_WITH: r"{}\Z"}
    if any(atom.kind not in ends for atom in atoms):
        return None
    pattern = "|".join(ends[atom.kind].format(re.escape(str(atom.value))) for atom in atoms)
    search = re.compile(pattern, re.IGNORECASE if atoms[0].ignore_case else 0).search
    name = str(atoms[0].field)
    return lambda event: isinstance(text := event.get(name), str) and search(text) is not None


def _atom_closure(atom: Atom) -> Callable[[dict[str, Any]], bool]:
    name, wanted = str(atom.field), atom.value
    if atom.kind is Kind.REGEX:
        search = re.compile(str(wanted), re.IGNORECASE).search
        return lambda event: isinstance(text := event.get(name), str) and search(text) is not None
    if not isinstance(wanted, str):
        if atom.kind is Kind.GREATER:
            return lambda event: isinstance(value := event.get(name), int) and value > wanted  # type: ignore[operator]
        return lambda event: event.get(name) == wanted
    if atom.ignore_case:
        wanted = wanted.lower()
    test = {
        Kind.CONTAINS: str.__contains__, Kind.STARTS_WITH: str.startswith, Kind.ENDS_WITH: str.endswith,
        Kind.EQUALS: str.__eq__,
    }[atom.kind]  # fmt: skip
    if atom.ignore_case:
        return lambda event: isinstance(text := event.get(name), str) and test(text.lower(), wanted)
    return lambda event: isinstance(text := event.get(name), str) and test(text, wanted)


def decode_run(bodies: Sequence[bytes]) -> list[list[str]]:
    decode = msgspec.json.decode
    for body in bodies:
        decode(body)
    return []
