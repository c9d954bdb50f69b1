"""Claim checks in a write: big bodies go to the folder before their messages are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqio.claims.check import ClaimCheck
from rmqio.claims.store import ClaimStore
from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.transforms.metrics import Count
from rmqio.transforms.writing.batches.elements import MadeBatch, topics_of


class ClaimedWrites:
    """Replaces messages with big bodies by references. Belongs to one DoFn instance."""

    def __init__(self, check: ClaimCheck) -> None:
        self._store = ClaimStore(check)
        self._written = Count("claims_written")

    def one(self, message: Message, topic: str) -> Message:
        """The message to send, whose object is complete. Raises as `ClaimStore.put`."""
        if not self._store.is_big(message):
            return message
        claimed = self._store.put(message)
        self._written.add(1, (topic,))
        return claimed

    def all(self, made: MadeBatch, fail: Callable[[int, Message, str, Exception], None]) -> MadeBatch:
        """The messages to send of a batch, without those that go to `fail`. Raises `ClaimStoreError`."""
        if not any(map(self._store.is_big, made.messages)):
            return made
        rows: list[tuple[Any, ...]] = []
        for message, topic, message_id, position in zip(
            made.messages, topics_of(made), made.ids, made.positions, strict=False
        ):
            try:
                rows.append((self.one(message, topic), topic, message_id, position))
            except LocalError as error:
                fail(position, message, topic, error)
        messages, topics, ids, positions = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])
        return MadeBatch(messages, made.topics if len(made.topics) == 1 else topics, ids, positions, made.failed)
