"""The plan of a rule set: its atoms, numbered, by field; and each rule as a condition over numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Kind, Not, Rule
from rmqio.rules.limits import Limits
from rmqio.rules.plan.atoms import BadAtom, canonical
from rmqio.rules.plan.nodes import Node, reduced

MEANING: Final = 2
"""Another number when the same rules find something else: it is in the version of rules, and in compiled ones."""
LATE_KINDS: Final = FIELD_KINDS | {Kind.SQL}
"""Atoms that no index of a field finds: they are asked for when a rule comes to them."""


class Plan:
    """Rules with numbers for atoms.

    Attributes:
      rules: in their order.
      nodes: the condition of each.
      atoms: by number.
      shown: each atom as a rule first wrote it.
      uses: how many rules use each atom.
    """

    def __init__(self, rules: Sequence[Rule], limits: Limits, check: Callable[[Atom], None]) -> None:
        """`check` raises `BadAtom` for an atom that no engine can run. Raises `RuleError` with all problems."""
        self.rules = tuple(rules)
        self.nodes: list[Node] = []
        self.atoms: list[Atom] = []
        self.shown: list[Atom] = []
        self.uses: list[int] = []
        self._limits = limits
        self._check = check
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._given: dict[tuple[Any, ...], int] = {}
        problems: list[Problem] = []
        seen: dict[str, Rule] = {}
        for at, rule in enumerate(self.rules):
            if at >= limits.max_rules:
                problems.append(_problem(rule, f"this is one rule more than max_rules, {limits.max_rules:,}"))
                break
            if rule.id in seen:
                first = seen[rule.id].place
                where = f" in {first.file}:{first.line}" if first.file else ""
                problems.append(_problem(rule, f"another rule has this id, too{where}"))
                continue
            seen[rule.id] = rule
            used: set[int] = set()
            try:
                self.nodes.append(reduced(rule.condition, lambda atom, used=used: self._number(atom, used)))  # type: ignore[misc]
            except BadAtom as error:
                problems.append(_problem(rule, str(error)))
                if len(self.atoms) > limits.max_atoms:
                    break
                continue
            for number in used:
                self.uses[number] += 1
        if problems:
            raise RuleError(tuple(problems))

    def exists(self, field: str) -> int:
        """The number of the atom that a field is there, which is added if no rule has it."""
        return self._numbered(Atom(field, Kind.EXISTS))

    def _number(self, atom: Atom, used: set[int]) -> int:
        given = _key(atom)
        number = self._given.get(given)
        if number is None:
            found = canonical(atom, self._limits)
            if _key(found) not in self._numbers:
                self._check(found)
            number = self._given[given] = self._numbered(found, atom)
            if len(self.atoms) > self._limits.max_atoms:
                raise BadAtom(f"more than {self._limits.max_atoms:,} conditions with this rule (max_atoms)")
        used.add(number)
        return number

    def _numbered(self, atom: Atom, shown: Atom | None = None) -> int:
        key = _key(atom)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(atom)
            self.shown.append(shown or atom)
            self.uses.append(0)
        return number


def version_of(rules: Sequence[Rule], limits: Limits) -> str:
    """The hash of all that decides what a rule set does: 16 hexadecimal digits. Not where the rules stand."""
    digest = hashlib.sha256(f"{MEANING} {limits!r}".encode())
    for rule in rules:
        digest.update(
            repr((rule.id, rule.title, rule.level, rule.tags, rule.source)).encode("utf-8", "backslashreplace")
        )
        rest = [rule.condition]
        while rest:  # in order, with counts: one text for each tree
            one = rest.pop()
            if isinstance(one, Atom):
                digest.update(repr(_key(one)).encode("utf-8", "backslashreplace"))
            elif isinstance(one, Not):
                digest.update(b"not ")
                rest.append(one.condition)
            else:
                digest.update(b"%s %d " % (b"and" if isinstance(one, And) else b"or", len(one.conditions)))
                rest += reversed(one.conditions)
    return digest.hexdigest()[:16]


def _key(atom: Atom) -> tuple[Any, ...]:
    """The atom, told apart from one whose value is equal and of another type: 1, 1.0 and true."""
    return atom.field, atom.kind, type(atom.value), atom.value, atom.ignore_case, atom.flags


def _problem(rule: Rule, reason: str) -> Problem:
    return Problem(rule.place.file, rule.place.line, rule.id, reason)
