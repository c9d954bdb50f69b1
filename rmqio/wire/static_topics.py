"""Static topics: queues that keep their numbers and offsets while they move from broker to broker.

A route names their queues after no broker (`__syslo__global__`) and says which broker has each now. Requests name a
queue by that number, and brokers translate it, and their answers too, all but the bytes of stored messages
(ClientMetadata.java, TopicQueueMappingUtils.java, PullAPIWrapper.java).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rmqio.errors import CorruptMessage
from rmqio.model import MessageQueue, PullStatus, Record
from rmqio.wire.stored import Decoded

_PREFIX: Final = "__syslo__"
_GLOBAL_SCOPE: Final = "__global__"


def is_logical(queue: MessageQueue) -> bool:
    """Whether a queue is one of a static topic."""
    return queue.broker.startswith(_PREFIX)


def owners(route: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """From a route's JSON: the queues of a static topic (name in place of a broker, number), and who has each now.

    Where two brokers claim a queue, the later epoch is right. Raises what malformed JSON values raise.
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
    """What is to be added to the offsets of stored messages in the answer to a pull. Raises ValueError."""
    return int(ext.get("offsetDelta") or 0) if is_logical(queue) else 0


def is_border(queue: MessageQueue, status: PullStatus, next_offset: int, min_offset: int) -> bool:
    """Whether an answer says that the queue goes on with the first offset of another broker.

    A broker that takes a queue over leaves room in front of its own offsets; the one before it may still be writing.
    """
    return is_logical(queue) and status is PullStatus.NO_MATCH and next_offset == min_offset


def as_logical(decoded: Decoded, queue: MessageQueue, delta: int) -> Decoded:
    """What a pull from a static topic's queue gave, as of that queue: stored messages tell where they are stored."""
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
