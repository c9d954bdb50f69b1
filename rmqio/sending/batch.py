"""A batch: messages for one queue, sent together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from rmqio.model import Message, MessageQueue


class ProducerBatch:
    """Messages for one queue, with the elements that they come from.

    `ids` holds None for a message without a stable id. `origins` is passed to `Outcomes` with the elements. `keyed`:
    the queue follows from a sharding key.
    """

    __slots__ = ("elements", "ids", "keyed", "limit", "messages", "numbers", "origins", "queue", "since", "size")

    def __init__(self, queue: MessageQueue, *, keyed: bool) -> None:
        self.queue = queue
        self.keyed = keyed
        self.messages: list[Message] = []
        self.ids: list[str | None] = []
        self.numbers: Sequence[str] | None = None
        """Ids of all messages, if none has a stable one and it was numbered when it was sent."""
        self.elements: list[Any] = []
        self.origins: list[Any] = []
        self.size = 0
        """Approximate number of bytes on the wire."""
        self.limit = 0
        """Its size until it asks for more memory."""
        self.since = 0.0
        """When it was begun."""

    @property
    def message_ids(self) -> Sequence[str]:
        """The ids of all messages, which all have one by now."""
        return self.ids if self.numbers is None else self.numbers  # type: ignore[return-value]

    def add(self, message: Message, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """Add a message; the caller checks whether it fits."""
        self.messages.append(message)
        self.ids.append(message_id)
        self.elements.append(element)
        self.origins.append(origin)
        self.size += size

    def extend(
        self,
        messages: Sequence[Message],
        ids: Sequence[str | None],
        elements: Sequence[Any],
        origin: Any,
        size: int,
    ) -> None:
        """Add messages of one origin, of `size` bytes altogether; the caller checks whether they fit."""
        self.messages += messages
        self.ids += ids
        self.elements += elements
        self.origins += [origin] * len(messages)
        self.size += size

    def halves(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Return two batches with the same messages in the same order."""
        count = len(self.messages)
        return self.parted([position < count // 2 for position in range(count)])

    def parted(self, is_first: Sequence[bool]) -> tuple[ProducerBatch, ProducerBatch]:
        """Return two batches in the same order: the messages marked as first, and the others."""
        parts = (ProducerBatch(self.queue, keyed=self.keyed), ProducerBatch(self.queue, keyed=self.keyed))
        for part, selectors in zip(parts, (is_first, [not each for each in is_first]), strict=True):
            part.messages, part.ids = [*compress(self.messages, selectors)], [*compress(self.ids, selectors)]
            if self.numbers is not None:
                part.numbers = [*compress(self.numbers, selectors)]
            part.elements, part.origins = [*compress(self.elements, selectors)], [*compress(self.origins, selectors)]
        return parts
