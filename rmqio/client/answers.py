"""The answers to pulls as what a reader hands out."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqio.client.call import Call
from rmqio.client.read_ahead import ReadAhead
from rmqio.errors import CorruptMessage, OffsetOutOfRange, TransportError
from rmqio.model import MessageFilter, MessageQueue, PullStatus
from rmqio.seams import Fetched
from rmqio.wire import requests


class PullGroupReset(TransportError):
    """Somebody reset the group that we pull under, which is not the user's. The broker has forgotten it: ask again."""


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """The queue that is read: as the user names it, as the broker names it, and through which filter."""

    queue: MessageQueue
    wire_queue: MessageQueue
    message_filter: MessageFilter
    tags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", self.message_filter.tag_set)


def fetch(call: Call, plan: ReadAhead[Call], what: ReadQueue) -> Fetched:
    """Decode the answer at the plan's position and move on.

    Raises `OffsetOutOfRange`, `PullGroupReset`, `BrokerError`, `WireError`, `CorruptMessage` for lost framing, and
    `TransportError` for a call that failed; the position is then unchanged.
    """
    answer = call.result(0)
    position = plan.position
    try:
        result = requests.parse_pull(answer, what.wire_queue, position)
    except CorruptMessage as error:
        error.topic = what.queue.topic
        raise
    if result.status is PullStatus.OFFSET_ILLEGAL:
        if result.remark == "OFFSET_RESET":
            raise PullGroupReset(f"{what.queue}: the group that pulls go under was reset")
        raise OffsetOutOfRange(what.queue, position, result.min_offset, result.max_offset)
    taken = plan.take(result, len(answer.body))
    records = taken.records
    tags = what.tags
    if tags:
        # The broker compares hashes of tags, and different tags have the same ("Aa" and "BB").
        records = [record for record in records if record.tags in tags]
    if what.wire_queue is not what.queue:
        records = [record._replace(topic=what.queue.topic) for record in records]
        for bad in taken.corrupt:
            bad.topic = what.queue.topic
    return Fetched(records, taken.corrupt, plan.position, result.max_offset, taken.skipped, round(call.age_ms, 3))


def joined(first: Fetched, second: Fetched) -> Fetched:
    """One after the other as one; takes the first one's list over."""
    first.records.extend(second.records)
    return Fetched(
        first.records,
        first.corrupt + second.corrupt,
        second.next_offset,
        second.max_offset,
        first.skipped + second.skipped,
        max(first.latency_ms, second.latency_ms),
    )
