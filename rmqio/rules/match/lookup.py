"""Look-ups of values: the atoms that a value meets, and the rules that these trigger, remembered by value.

The memory of a field is bounded together with that of all fields, and switches itself off while it seldom pays. To
store a value costs as much as to compute what it leads to. So a memory that does not pay at once is on trial: it stores
a few values only, and notes for a sample of the others by their hashes whether they come again.
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
_FIRST_WINDOW: Final = 2_048
_TRUSTED_WINDOW: Final = 32_768
"""For a memory whose trial went well: it has to fill before it is judged."""
_LEAST_RATE: Final = 0.25
_PAUSE: Final = 65_536
_FEW: Final = 256
"""Values that a memory on trial stores: fields with few values need no more."""
_ONE_OF: Final = 13
"""A value in so many is in the sample, always or never. A prime, because the hashes of integers are these."""
_SAMPLED: Final = 96
"""Values of the sample between judgements."""
_LEAST_SAMPLED: Final = 384
_MOST_SAMPLED: Final = 1_056
_MOST_HASHES: Final = 4_096
_SURE_RATE: Final = 0.5
_HOPELESS_RATE: Final = 0.1


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

    _STATE = ("_again", "_hashes", "_is_tried", "_left", "_sampled", "_window", "is_on", "misses", "seen")
    __slots__ = (*_STATE, "_compute", "budget")

    def __init__(self, compute: Callable[[Any], Found | None], budget: Budget) -> None:
        super().__init__()
        self._compute = compute
        self.budget = budget
        budget.caches.append(self)
        self.is_on = budget.limit > 0
        self.misses = 0
        self.seen = 0
        self._left = 0
        self._window = _FIRST_WINDOW
        self._is_tried = False
        self._sampled = self._again = 0
        self._hashes: set[int] = set()

    def __missing__(self, value: Any) -> Found | None:
        if value is msgspec.UNSET:  # a row without the field
            self[value] = None
            return None
        found = self._compute(value)
        self.misses += 1
        if not self.is_on:
            self.rest(1)
            return found
        if self._is_tried and len(self) >= _FEW:
            if (number := hash(value)) % _ONE_OF == 0:
                self._sample(number)
            return found
        size = len(value) if value.__class__ is str else 8
        if size <= _LONGEST_KEPT:
            self[value] = found
            self.budget.take(size + _ENTRY_BYTES)
        if not self._is_tried and self.misses >= self._window <= self.seen:
            if 1 - self.misses / self.seen < _LEAST_RATE:
                self._try()
            self._window, self.misses, self.seen = _WINDOW, 0, 0
        return found

    def copy_of(self, other: Cache, changed: Callable[[Found], Found | None]) -> None:
        """Takes what another memory of the same field has, and how it fared."""
        there = dict.copy(other)  # other threads may add values meanwhile
        self.update((value, None if found is None else changed(found)) for value, found in there.items())
        for name in self._STATE:
            setattr(self, name, getattr(other, name))

    def _try(self) -> None:
        self.is_on = self._is_tried = True
        self._sampled = self._again = 0  # the hashes stay: values can come again after a while
        self.clear()

    def _sample(self, number: int) -> None:
        """Notes a value by its hash, and judges now and then whether values come again."""
        self._sampled += 1
        if number in self._hashes:
            self._again += 1
        else:
            if len(self._hashes) >= _MOST_HASHES:
                self._hashes.clear()
            self._hashes.add(number)
        if self._sampled % _SAMPLED:
            return
        rate, is_last = self._again / self._sampled, self._sampled >= _MOST_SAMPLED
        if rate >= (_LEAST_RATE if is_last else _SURE_RATE):
            self._hashes.clear()
            self._is_tried, self._window, self.misses, self.seen = False, _TRUSTED_WINDOW, 0, 0
        elif is_last or (rate < _HOPELESS_RATE and self._sampled >= _LEAST_SAMPLED):
            self._pause()

    def _pause(self) -> None:
        self.is_on, self._left = False, _PAUSE
        self.clear()

    def rest(self, count: int) -> None:
        """Notes values that were looked up while the memory is off; after so many, it tries again."""
        self._left -= count
        if self._left <= 0 and self.budget.limit:
            self._try()


class Lookup:
    """The index of a field, with what its atoms trigger."""

    def __init__(self, index: FieldIndex, triggered: Mapping[int, tuple[int, ...]], budget: Budget) -> None:
        self.index = index
        self._triggered = triggered
        self._made: dict[tuple[int, ...], Found] = {}
        self.cache = Cache(self._of_one, budget)

    def carry(self, other: Lookup) -> None:
        """Takes the memory of another look-up of the same index, whose atoms trigger other rules."""
        self.cache.copy_of(other.cache, lambda found: self._found(found.atoms))

    def of(self, value: Any) -> Found | None:
        """Returns what any value leads to, also a list or an object; None: nothing."""
        kind = value.__class__
        if kind is str or kind is int:
            return self.cache[value]
        if isinstance(value, (list, tuple, Mapping)):
            met = dict.fromkeys(self.index.exists)
            for each in self.index.cuts.values(flat(value)):
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
