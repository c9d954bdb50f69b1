"""How far a stream has read, as Spark keeps it in its checkpoint: JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqio.model import MessageQueue
from rmqio.pyspark.options.read import QueueNumbers, queue_numbers

_NEW: Final = "(new)"
_FIRST: Final = "(first)"
_BEGAN: Final = "(began)"
_WAITING: Final = "(waiting)"
_MARKS: Final = (_NEW, _FIRST, _BEGAN, _WAITING)
"""Names beside those of topics; no topic can have such a name."""


@dataclass(frozen=True, slots=True)
class Position:
    """The offset at which reading resumes in each queue, and the rule for queues that are found later."""

    numbers: QueueNumbers
    began_ms: int | None = None
    """When the stream began, in Unix milliseconds; None: the checkpoint is of an older version."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that existed then, and whose broker has not answered since."""
    is_new: bool = False
    """Whether the stream begins here."""
    first: QueueNumbers | None = None
    """At the end of the first micro-batch: where it began. Spark asks for the beginning again until it is done."""

    @classmethod
    def of(cls, offsets: Mapping[str, Any]) -> Position:
        """Reads Spark's JSON. Raises `LocalError` for JSON that is not of this format."""
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
        """Returns the JSON that Spark keeps."""
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
    """Returns offsets by topic, broker and queue id, as startingOffsets takes them."""
    found: dict[str, Any] = {}
    for queue, number in sorted(numbers.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = number
    return found
