"""Look-ups of values: the atoms that a value meets, and the rules that these trigger, remembered by value.

The memory of a field is bounded together with that of all fields, and switches itself off while it seldom pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rmqio.rules.match.field import FieldIndex
from rmqio.rules.plan.values import flat

_ENTRY_BYTES: Final = 120
_LONGEST_KEPT: Final = 512
_WINDOW: Final = 4_096
_LEAST_RATE: Final = 0.25
_PAUSE: Final = 65_536


class Found(NamedTuple):
    """Atoms, and the rules that they trigger."""

    atoms: tuple[int, ...]
    rules: tuple[int, ...]


class Budget:
    """The bytes that the memories of all fields may take. When they are used up, all are forgotten."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.caches: list[Cache] = []

    def take(self, size: int) -> None:
        self.used += size
        if self.used > self.limit:
            for cache in self.caches:
                cache.clear()
            self.used = 0


class Cache(dict[Any, "Found | None"]):
    """From texts and integers to what they lead to; computes what is missing."""

    __slots__ = ("_compute", "_left", "budget", "is_on", "misses", "seen")

    def __init__(self, compute: Callable[[Any], Found | None], budget: Budget) -> None:
        super().__init__()
        self._compute = compute
        self.budget = budget
        budget.caches.append(self)
        self.is_on = budget.limit > 0
        self.misses = 0
        self.seen = 0
        self._left = 0

    def __missing__(self, value: Any) -> Found | None:
        if value is msgspec.UNSET:  # a row without the field
            self[value] = None
            return None
        found = self._compute(value)
        self.misses += 1
        if not self.is_on:
            self.rest(1)
            return found
        size = len(value) if value.__class__ is str else 8
        if size <= _LONGEST_KEPT:
            self[value] = found
            self.budget.take(size + _ENTRY_BYTES)
        if self.misses >= _WINDOW and self.seen >= _WINDOW:
            if 1 - self.misses / self.seen < _LEAST_RATE:
                self.is_on, self._left = False, _PAUSE
                self.clear()
            self.misses = self.seen = 0
        return found

    def rest(self, count: int) -> None:
        """Notes values that were looked up while the memory is off; after so many, it tries again."""
        self._left -= count
        if self._left <= 0 and self.budget.limit:
            self.is_on, self.misses, self.seen = True, 0, 0


class Lookup:
    """The index of a field, with what its atoms trigger."""

    def __init__(self, index: FieldIndex, triggered: Mapping[int, tuple[int, ...]], budget: Budget) -> None:
        self.index = index
        self._triggered = triggered
        self._made: dict[tuple[int, ...], Found] = {}
        self.cache = Cache(self._of_one, budget)

    def of(self, value: Any) -> Found | None:
        """Returns what any value leads to, also a list or an object; None: nothing."""
        kind = value.__class__
        if kind is str or kind is int:
            return self.cache[value]
        if isinstance(value, (list, tuple, Mapping)):
            met = dict.fromkeys(self.index.exists)
            for each in flat(value):
                met.update(dict.fromkeys(self.atoms_of(each)))
            return self._found(tuple(met))
        return self._of_one(value)

    def atoms_of(self, value: Any) -> tuple[int, ...]:
        """Returns the atoms that a single value meets."""
        if value.__class__ not in (str, int):
            return self.index.of(value)
        found = self.cache[value]
        return () if found is None else found.atoms

    def _of_one(self, value: Any) -> Found | None:
        atoms = self.index.of(value)
        return self._found(atoms) if atoms else None

    def _found(self, atoms: tuple[int, ...]) -> Found | None:
        if not atoms:
            return None
        found = self._made.get(atoms)
        if found is None:
            if len(self._made) >= _WINDOW:
                self._made.clear()
            triggered = self._triggered
            rules = dict.fromkeys(rule for atom in atoms for rule in triggered.get(atom, ()))
            found = self._made[atoms] = Found(atoms, tuple(rules))
        return found
