"""Chooses a message's queue by the rules of Java's producers, so that both choose the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Q = TypeVar("Q")


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
