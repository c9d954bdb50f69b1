"""Static topics: queues that keep their numbers and offsets while they move between brokers.

A route uses `__syslo__global__` in place of a broker for their queues and maps each to its current broker. Requests use
these queue numbers. Brokers translate them, and also their answers, except for the bytes of stored messages
(ClientMetadata.java, TopicQueueMappingUtils.java, PullAPIWrapper.java).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rmqio.errors import CorruptMessage
from rmqio.model import MessageQueue, PullStatus, Record
from rmqio.wire.messages.stored import Decoded

_PREFIX: Final = "__syslo__"
_GLOBAL_SCOPE: Final = "__global__"


def is_logical(queue: MessageQueue) -> bool:
    """Return whether a queue belongs to a static topic."""
    return queue.broker.startswith(_PREFIX)


def owners(route: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """Return the current brokers of a static topic's queues, from a route's JSON: (name in place of a broker, number).

    The later epoch wins if two brokers claim a queue. Raises the errors that malformed JSON values cause.
    """
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for broker, mapping in (route.get("topicQueueMappingByBroker") or {}).items():
        scope, epoch = mapping.get("scope"), int(mapping.get("epoch") or 0)
        if scope is None:
            continue
        name = _PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)
        for number in mapping.get("currIdMap") or {}:
            key = name, int(number)
            if key not in found or found[key][0] <= epoch:
                found[key] = epoch, str(mapping.get("bname") or broker)
    return {key: broker for key, (_, broker) in found.items()}


def offset_delta(queue: MessageQueue, ext: Mapping[str, str]) -> int:
    """Return the number to add to the offsets of stored messages in the answer to a pull. Raises ValueError."""
    return int(ext.get("offsetDelta") or 0) if is_logical(queue) else 0


def is_border(queue: MessageQueue, status: PullStatus, next_offset: int, min_offset: int) -> bool:
    """Return whether an answer says that the queue continues with the first offset of another broker.

    A broker that takes over a queue leaves a gap before its own offsets; the previous one may still be writing.
    """
    return is_logical(queue) and status is PullStatus.NO_MATCH and next_offset == min_offset


def as_logical(decoded: Decoded, queue: MessageQueue, delta: int) -> Decoded:
    """Convert the result of a pull from a static topic's queue: stored messages contain the location of the storage."""
    records = [_record(record, queue, delta) for record in decoded.records]
    return Decoded(records, tuple(_corrupt(bad, queue, delta) for bad in decoded.corrupt))


def _record(record: Record, queue: MessageQueue, delta: int) -> Record:
    return record._replace(queue_id=queue.queue_id, queue_offset=record.queue_offset + delta)


def _corrupt(bad: CorruptMessage, queue: MessageQueue, delta: int) -> CorruptMessage:
    moved = CorruptMessage(
        bad.reason,
        topic=bad.topic,
        broker=bad.broker,
        queue_id=queue.queue_id,
        queue_offset=bad.queue_offset + delta,
        raw=bad.raw,
        next_offset=None if bad.next_offset is None else bad.next_offset + delta,
    )
    moved.__cause__ = bad.__cause__
    return moved
