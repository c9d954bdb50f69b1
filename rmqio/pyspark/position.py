"""How far a stream has read: what Spark keeps of it in its checkpoint, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqio.model import MessageQueue
from rmqio.pyspark.options import QueueNumbers, queue_numbers

_NEW: Final = "(new)"
_FIRST: Final = "(first)"
_BEGAN: Final = "(began)"
_WAITING: Final = "(waiting)"
_MARKS: Final = (_NEW, _FIRST, _BEGAN, _WAITING)
"""Beside topics, none of which has such a name."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading goes on in each queue, and what is needed to say so of queues that are found later."""

    numbers: QueueNumbers
    began_ms: int | None = None
    """When the stream began, Unix milliseconds; None: with an older version."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that were there then, and whose broker has not answered since."""
    is_new: bool = False
    """Whether the stream begins here."""
    first: QueueNumbers | None = None
    """At the end of the first micro-batch: where that began. Spark asks anew for the beginning until it is done."""

    @classmethod
    def of(cls, offsets: Mapping[str, Any]) -> Position:
        """From Spark's JSON. Raises `LocalError` for what is not of this format."""
        complaint = f"the checkpoint's offsets {offsets} are not of the format rocketmq"

        def numbers(found: Mapping[str, Any]) -> QueueNumbers:
            return queue_numbers(found, complaint)

        return cls(
            numbers({name: value for name, value in offsets.items() if name not in _MARKS}),
            offsets.get(_BEGAN),
            frozenset(numbers(offsets.get(_WAITING, {}))),
            bool(offsets.get(_NEW)),
            numbers(offsets[_FIRST]) if _FIRST in offsets else None,
        )

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        found = as_json(self.numbers)
        if self.began_ms is not None:
            found[_BEGAN] = self.began_ms
        if self.waiting:
            found[_WAITING] = as_json(dict.fromkeys(self.waiting, 0))
        if self.is_new:
            found[_NEW] = True
        if self.first is not None:
            found[_FIRST] = as_json(self.first)
        return found


def as_json(numbers: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """From topic to broker to queue to offset, as startingOffsets takes it."""
    found: dict[str, Any] = {}
    for queue, number in sorted(numbers.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = number
    return found
