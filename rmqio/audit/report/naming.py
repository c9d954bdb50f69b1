"""Looks up the ids of messages at places: rows have only their hashes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rmqio.dead_letters.reading import read_ranges
from rmqio.errors import RmqioError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

_TOGETHER: Final = 32
"""Offsets that one pull can have."""


def ids_at(
    client: QueueClient, places: Iterable[tuple[MessageQueue, int]]
) -> dict[tuple[MessageQueue, int], dict[str, Any]]:
    """Return id and keys of the messages that are still there."""
    by_queue: dict[MessageQueue, list[int]] = {}
    for queue, offset in sorted(set(places)):
        by_queue.setdefault(queue, []).append(offset)
    found: dict[tuple[MessageQueue, int], dict[str, Any]] = {}
    for queue, offsets in by_queue.items():
        while offsets:
            first = offsets[0]
            some = [each for each in offsets if each < first + _TOGETHER]
            offsets = offsets[len(some) :]
            wanted = set(some)
            try:
                parts = list(read_ranges(client, {queue: range(first, some[-1] + 1)}))
            except RmqioError:  # the queue is gone meanwhile; the place alone is still right
                continue
            for record in (record for part in parts for record in part.records):
                if record.queue_offset in wanted:
                    found[queue, record.queue_offset] = {"message_id": record.message_id, "keys": list(record.keys)}
    return found
