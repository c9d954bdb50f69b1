"""Chooses a message's queue by the rules of Java's producers, so that both choose the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from rmqio.model import MessageQueue

Q = TypeVar("Q")

_MAX_KEYS: Final = 10_000
"""Sharding keys whose queue is remembered; the hash of one costs as much as the rest of a send."""


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: base 31 over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(raw[::2], raw[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def queue_index_for_key(key: str, count: int) -> int:
    """Return the index that SelectMessageQueueByHash.java of 5.x gives a key: `abs(hashCode % count)`.

    Older versions took the absolute value first, which fails for a hash of -2^31 and agrees for all others.
    """
    return abs(java_string_hash(key)) % count


def queue_for_key(queues: Sequence[Q], key: str) -> Q:
    """Return the queue of a sharding key among a topic's writable queues, which must be in the route's sorted order."""
    return queues[queue_index_for_key(key, len(queues))]


def interleaved(queues: Sequence[tuple[str, str, int]]) -> list[int]:
    """Return the positions of the queues in an order that changes the broker at each step as long as possible."""
    turn: dict[str, int] = {}
    ranked: list[tuple[int, int]] = []
    for position, (_, broker, _) in enumerate(queues):
        rank = turn.get(broker, 0)
        turn[broker] = rank + 1
        ranked.append((rank, position))
    return [position for _, position in sorted(ranked)]


class WritableQueues:
    """The writable queues of a topic: the order of their turns, and the queue of each sharding key.

    Args:
      queues: in the route's sorted order.
    """

    __slots__ = ("_keys", "_turns", "queues")

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self.queues = tuple(queues)
        self._turns = tuple(self.queues[position] for position in interleaved(self.queues))
        self._keys: dict[str, MessageQueue] = {}

    def in_turn(self, number: int) -> MessageQueue:
        """Return the queue of a turn. Turns that follow each other are on different brokers as long as possible."""
        return self._turns[number % len(self._turns)]

    def turns_from(self, number: int) -> list[MessageQueue]:
        """Return all queues, beginning with that of a turn."""
        first = number % len(self._turns)
        return [*self._turns[first:], *self._turns[:first]]

    def for_key(self, key: str) -> MessageQueue:
        """Return the queue of a sharding key, by the rule of Java's producers."""
        queue = self._keys.get(key)
        if queue is None:
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            queue = self._keys[key] = queue_for_key(self.queues, key)
        return queue
