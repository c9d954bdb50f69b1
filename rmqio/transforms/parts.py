"""The parts of our transforms, for transforms on top of them: batches, failures, metrics, coders, elements that wait.

Packages on top of `rmqio.transforms` import its public names and these, and none of its other modules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from rmqio.transforms.coders import DECODE_ERRORS, ENCODE_ERRORS, BatchConstraint, RecordCoder, ValueCoder
from rmqio.transforms.failures import failed_of, failure_of_record, failure_of_value
from rmqio.transforms.map_records import HandlesFailures
from rmqio.transforms.metrics import Count, Latency, Share, observe_process
from rmqio.transforms.reading.in_process import is_in_process
from rmqio.transforms.reading.options import factory_of
from rmqio.transforms.reading.record_batches import ERRORS_TAG, failure_of_member, located, located_at, located_member
from rmqio.transforms.reading.restriction import (
    Claim,
    QueueRange,
    QueueRangeCoder,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
    beam_timestamp,
)
from rmqio.transforms.writing.elements import check_sendable
from rmqio.wire.batch import copy_of
from rmqio.wire.properties import is_reserved

# Elements that wait in Beam's state until the watermark passes their event times.
#
# Source: the hierarchical timing wheel of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987).

GRAIN_US: Final = 1_000_000
"""Elements of one second come out together: a timer for each element would read the state of its key each time."""
WAITING_LEVELS: Final = 5
_BASE: Final = 16
_WIDTHS_US: Final = tuple(GRAIN_US * _BASE**level for level in range(WAITING_LEVELS))
_TIME: Final = struct.Struct(">q")
"""The time of an element, before its bytes."""


class Bag(Protocol):
    """The bag state of Beam, of bytes."""

    def read(self) -> Iterable[bytes]: ...
    def add(self, value: bytes) -> None: ...
    def clear(self) -> None: ...


class Waiting:
    """The waiting elements of one key, in `WAITING_LEVELS` bags by how long they wait.

    A single bag is read whole each time that a second passes: after a pause, when hours of elements wait, that is
    quadratic. The first bag has the elements of the current 16 seconds, the second those of the current 256 seconds,
    and so on. The second is read when another 16 seconds begin: an element is read at most 16 times for each level.

    Args:
      bags: the states of the levels, the shortest wait first. All that has waited under an earlier version is in the
        first one, which is right for any element.
      used: a state of integers: a bit for each bag above the first that can have elements.
      done_us: all before this time has come out, in microseconds; None: nothing has yet.
    """

    def __init__(self, bags: Sequence[Bag], used: Any, done_us: int | None) -> None:
        self._bags, self._used, self._done_us = bags, used, done_us

    def add(self, time_us: int, element: bytes) -> None:
        """Adds an element whose time is not before `done_us`."""
        self._add(_TIME.pack(time_us) + element, self._level(time_us))

    def take(self, until_us: int) -> tuple[list[tuple[int, bytes]], int | None]:
        """Removes the elements before a time.

        Returns: them with their times, in no order, and the earliest time that waits now.
        """
        before_us, self._done_us = self._done_us, until_us
        taken: list[tuple[int, bytes]] = []
        left: list[tuple[int, bytes]] = []
        levels = self._levels(before_us, until_us)
        for level in levels:
            for packed in self._bags[level].read():
                (time_us,) = _TIME.unpack_from(packed)
                if time_us < until_us:
                    taken.append((time_us, packed[_TIME.size :]))
                else:
                    left.append((time_us, packed))
        for level in levels:
            self._bags[level].clear()
        self._forget(levels)
        for time_us, packed in left:
            self._add(packed, self._level(time_us))
        if left:
            return taken, min(time_us for time_us, _ in left)
        return taken, self._earliest()

    def clear(self) -> None:
        """Forgets everything."""
        for level in self._filled():
            self._bags[level].clear()
        self._used.clear()

    def _level(self, time_us: int) -> int:
        if self._done_us is None:
            return 0
        for level, width_us in enumerate(_WIDTHS_US[1:]):
            if time_us // width_us == self._done_us // width_us:
                return level
        return WAITING_LEVELS - 1

    def _add(self, packed: bytes, level: int) -> None:
        self._bags[level].add(packed)
        if level and not (used := self._used.read() or 0) >> level & 1:
            self._used.write(used | 1 << level)

    def _filled(self) -> list[int]:
        used = self._used.read() or 0
        return [0, *(level for level in range(1, WAITING_LEVELS) if used >> level & 1)]

    def _levels(self, before_us: int | None, until_us: int) -> list[int]:
        """The bags that can have elements before a time, or whose elements have to go into lower ones."""
        return [
            level
            for level in self._filled()
            if level == 0 or before_us is None or before_us // _WIDTHS_US[level] != until_us // _WIDTHS_US[level]
        ]

    def _forget(self, levels: list[int]) -> None:
        used = self._used.read() or 0
        if kept := used & ~sum(1 << level for level in levels):
            if kept != used:
                self._used.write(kept)
        elif used:
            self._used.clear()

    def _earliest(self) -> int | None:
        """Each element of a bag is later than those of the bags before it."""
        for level in self._filled()[1:]:
            if times := [_TIME.unpack_from(packed)[0] for packed in self._bags[level].read()]:
                return int(min(times))
        return None


def second_after(time_us: int) -> int:
    """Returns the end of the second that a time is in."""
    return (time_us // GRAIN_US + 1) * GRAIN_US


__all__ = [
    "DECODE_ERRORS",
    "ENCODE_ERRORS",
    "ERRORS_TAG",
    "WAITING_LEVELS",
    "BatchConstraint",
    "Claim",
    "Count",
    "HandlesFailures",
    "Latency",
    "QueueRange",
    "QueueRangeCoder",
    "QueueRangeTracker",
    "QueueWatermark",
    "QueueWatermarks",
    "RecordCoder",
    "Share",
    "ValueCoder",
    "Waiting",
    "beam_timestamp",
    "check_sendable",
    "copy_of",
    "factory_of",
    "failed_of",
    "failure_of_member",
    "failure_of_record",
    "failure_of_value",
    "is_in_process",
    "is_reserved",
    "located",
    "located_at",
    "located_member",
    "observe_process",
    "second_after",
]
