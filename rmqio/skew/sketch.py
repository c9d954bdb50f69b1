"""The heaviest keys of a stream, in memory that does not grow: the sketch of Misra and Gries."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Heavy(NamedTuple):
    """A key and between which two numbers its count lies."""

    key: Hashable
    at_least: int
    at_most: int


class HeavyKeys:
    """Counts keys. Every key with more than `total / capacity` elements is among the counted ones.

    A count is never too high, and too low by at most `error`, which is at most `total / capacity`.

    Args:
      capacity: keys that are kept; up to twice as many are in memory.
    """

    __slots__ = ("_capacity", "counts", "error", "total")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.counts: dict[Hashable, int] = {}
        self.error = 0
        self.total = 0

    def add(self, key: Hashable, count: int = 1) -> int:
        """Count a key, and return its count so far. Raises `TypeError` for a key that cannot be in a dict."""
        counts = self.counts
        found = counts.get(key, 0) + count
        counts[key] = found
        self.total += count
        if found == count and len(counts) > 2 * self._capacity:
            self._prune()
        return found

    def _prune(self) -> None:
        """Take from all keys what the heaviest that has to go has: so often, capacity + 1 different keys came."""
        counts = self.counts
        less = sorted(counts.values(), reverse=True)[self._capacity]
        self.counts = {key: count - less for key, count in counts.items() if count > less}
        self.error += less

    def merge(self, other: HeavyKeys) -> None:
        """Add another sketch of the same capacity; the errors add up, too."""
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.total += other.total
        self.error += other.error
        if len(self.counts) > 2 * self._capacity:
            self._prune()

    def halve(self) -> None:
        """Let the past count half, so that a key that is no longer hot is forgotten."""
        self.counts = {key: count >> 1 for key, count in self.counts.items() if count > 1}
        self.total >>= 1
        self.error >>= 1

    def heaviest(self, number: int) -> list[Heavy]:
        """Return the heaviest keys, the first one first."""
        found = sorted(self.counts.items(), key=lambda item: -item[1])[:number]
        return [Heavy(key, count, count + self.error) for key, count in found]
