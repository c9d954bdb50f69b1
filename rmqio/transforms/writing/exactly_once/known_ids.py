"""Many message ids and where each is stored: 24 bytes each when sorted in, 24 to 37 with the newest ones in a dict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from rmqio.model import MessageQueue

_OFFSET_BITS: Final = 48
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_MANY: Final = 65_536
"""Minimum number of ids in the dict before they are moved to the arrays."""


class KnownIds:
    """The offsets of ids, by two of Python's hashes: 128 bits, with a random key unless PYTHONHASHSEED fixes it.

    For an id that is stored several times, the place that was added first counts.
    """

    def __init__(self) -> None:
        self._sorted: tuple[Any, Any, Any] = tuple(np.empty(0, np.int64) for _ in range(3))  # type: ignore[assignment]
        self._waiting: list[tuple[Any, Any, Any]] = []
        self._count = 0
        self._new: dict[str, int] = {}
        self._queues: list[MessageQueue] = []
        self._numbers: dict[MessageQueue, int] = {}

    def __len__(self) -> int:
        return self._count + len(self._new)

    def add(self, queue: MessageQueue, places: Iterable[tuple[int, str]]) -> None:
        """Add offsets, and the ids that are stored there."""
        number = self._numbers.get(queue)
        if number is None:
            number = self._numbers[queue] = len(self._queues)
            self._queues.append(queue)
        base, keep = number << _OFFSET_BITS, self._new.setdefault
        for offset, message_id in places:
            keep(message_id, base | offset)
        if len(self._new) >= max(_MANY, self._count >> 3):
            self._put_away()

    def find(self, ids: Sequence[str]) -> list[tuple[MessageQueue, int] | None]:
        """The queue and offset of each id, or None."""
        found: list[tuple[MessageQueue, int] | None] = [None] * len(ids)
        for position, place in self._places(ids).items():
            found[position] = self._queues[place >> _OFFSET_BITS], place & _OFFSET
        return found

    def _places(self, ids: Sequence[str]) -> dict[int, int]:
        """The encoded places of known ids, by position in `ids`."""
        places: dict[int, int] = {}
        if self._new:
            new = self._new.get
            places.update((position, place) for position, each in enumerate(ids) if (place := new(each)) is not None)
        if self._waiting:
            self._sort_in()
        high, low, place_of = self._sorted
        if len(high) and ids:
            wanted = np.fromiter(map(hash, ids), np.int64, len(ids))
            starts = np.searchsorted(high, wanted)
            for position in np.flatnonzero(high[np.minimum(starts, len(high) - 1)] == wanted).tolist():
                at, second = int(starts[position]), _second(ids[position])
                while at < len(high) and high[at] == wanted[position]:
                    if low[at] == second:
                        places[position] = int(place_of[at])
                        break
                    at += 1
        return places

    def _put_away(self) -> None:
        new, count = self._new, len(self._new)
        self._waiting.append(
            (
                np.fromiter(map(hash, new), np.int64, count),
                np.fromiter(map(_second, new), np.int64, count),
                np.fromiter(new.values(), np.int64, count),
            )
        )
        self._count += count
        self._new = {}

    def _sort_in(self) -> None:
        high, low, places = (np.concatenate(each) for each in zip(self._sorted, *self._waiting, strict=True))
        self._waiting.clear()
        order = np.argsort(high, kind="stable")
        self._sorted = high[order], low[order], places[order]


def _second(message_id: str) -> int:
    return hash(message_id + "\n")
