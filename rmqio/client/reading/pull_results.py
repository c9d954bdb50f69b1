"""Turns the answers to pulls into the batches that a reader returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqio.client.connections.session import Call
from rmqio.client.reading.read_ahead import ReadAhead
from rmqio.errors import CorruptMessage, OffsetOutOfRange, RmqioError, TransportError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter, MessageQueue, PullResult, PullStatus, Record
from rmqio.wire import requests
from rmqio.wire.messages.stored import MAX_PULL_BYTES


class PullGroupReset(TransportError):
    """Somebody reset our pull group, which is not the user's. The broker has consumed the reset: pull again."""


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """The queue being read: its user's name, its broker's name, and its filter."""

    queue: MessageQueue
    wire_queue: MessageQueue
    message_filter: MessageFilter
    tags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", self.message_filter.tag_set)


def fetch(plan: ReadAhead[Call], what: ReadQueue, most: int) -> tuple[FetchedBatch, int] | None:
    """Decode up to `most` answers from the plan's position and advance it; None when the first has not arrived.

    Also returns the id of the broker that the last answer suggests for the next pulls.

    Stops earlier once the decompressed bodies reach the limit of one pull.

    Raises `OffsetOutOfRange`, `PullGroupReset`, `BrokerError`, `WireError`, `CorruptMessage` for lost framing, and
    `TransportError` for a call that failed; the position is then unchanged. Messages before such an answer are returned
    first: the next call raises.
    """
    records: list[Record] = []
    corrupt: tuple[CorruptMessage, ...] = ()
    answers = skipped = max_offset = decompressed_bytes = suggested = 0
    latency_ms = 0.0
    while answers < most and decompressed_bytes < MAX_PULL_BYTES:
        head = plan.head
        if head is None or head.call is None or not head.call.is_done:
            break
        try:
            result, body_bytes = _found(head.call, plan.position, what)
            taken = plan.take(result, body_bytes)
        except RmqioError:
            if answers:
                break
            raise
        if answers:
            records += taken.records
        else:
            records = taken.records
            latency_ms = head.call.age_ms  # the oldest call's age: one clock reading for all
        for call in taken.given_up:
            call.forget()
        corrupt += taken.corrupt
        skipped += taken.skipped
        max_offset, suggested = result.max_offset, result.suggested_broker_id
        decompressed_bytes += result.decompressed_bytes
        answers += 1
    if not answers:
        return None
    fetched = FetchedBatch(
        _as_the_user_sees(records, corrupt, what), corrupt, plan.position, max_offset, skipped, round(latency_ms, 3)
    )
    return fetched, suggested


def _found(call: Call, position: int, what: ReadQueue) -> tuple[PullResult, int]:
    answer = call.result(0)
    try:
        result = requests.parse_pull(answer, what.wire_queue, position)
    except CorruptMessage as error:
        error.topic = what.queue.topic
        raise
    if result.status is PullStatus.OFFSET_ILLEGAL:
        if result.remark == "OFFSET_RESET":
            raise PullGroupReset(f"{what.queue}: the pull group (ClientOptions.pull_group) was reset")
        raise OffsetOutOfRange(what.queue, position, result.min_offset, result.max_offset)
    return result, len(answer.body)


def _as_the_user_sees(records: list[Record], corrupt: tuple[CorruptMessage, ...], what: ReadQueue) -> list[Record]:
    tags, topic = what.tags, what.queue.topic
    if tags:
        # The broker compares hashes of tags, and different tags can share one ("Aa" and "BB").
        records = [record for record in records if record.tags in tags]
    if what.wire_queue is not what.queue:
        records = [record._replace(topic=topic) for record in records]
        for bad in corrupt:
            bad.topic = topic
    return records
