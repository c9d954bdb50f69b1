"""Reads the letters of a dead-letter topic from a start to an end that is fixed in advance, all queues in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rmqio.errors import CorruptMessage, OffsetOutOfRange
from rmqio.interfaces import QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.start import StartFrom, StopAt

_WAIT_MS: Final = 1_000


class Part(NamedTuple):
    """Consecutive messages of one queue."""

    queue: MessageQueue
    begin: int
    """The offset at which it starts, even if there is no message."""
    records: list[Record]
    corrupt: list[CorruptMessage]
    next_offset: int
    skipped: int
    """Offsets that are lost on the broker, as in `FetchedBatch.skipped`; some may be after `next_offset`."""


def ranges_of(
    client: QueueClient, topic: str, start: StartFrom, stop: StopAt, group: str | None
) -> dict[MessageQueue, range]:
    """The range to read of each queue. It includes offsets after the group's that retention has deleted, to count them.

    Raises `OffsetOutOfRange` for a start after the end.
    """
    found = {}
    for queue in client.queues(topic):
        end = stop.resolve(queue, client)
        if end is None:
            continue
        try:
            begin = start.resolve(queue, client, group=group)
        except OffsetOutOfRange as error:
            if error.wanted > error.maximum:  # beyond the end: everything in the recreated topic would be sent again
                raise
            begin = min(error.wanted, error.minimum)
        found[queue] = range(begin, max(begin, end))
    return found


def read_ranges(client: QueueClient, ranges: Mapping[MessageQueue, range]) -> Iterator[Part]:
    """Reads everything in the ranges. Offsets that retention has deleted are a part with only `skipped`.

    Raises `RmqioError` after the retries that the client's options permit.
    """
    readers = {
        queue: client.open_reader(queue, each.start, message_filter=MessageFilter())
        for queue, each in ranges.items()
        if each
    }
    try:
        while readers:
            is_idle = True
            for queue, reader in list(readers.items()):
                part = _next_part(reader, ranges[queue].stop)
                if part is None:
                    continue
                is_idle = False
                yield part
                if part.next_offset >= ranges[queue].stop:
                    readers.pop(queue).close()
            if is_idle:
                client.wait(readers.values(), _WAIT_MS)
    finally:
        for reader in readers.values():
            reader.close()


def _next_part(reader: QueueReader, stop: int) -> Part | None:
    begin = reader.position
    try:
        fetched = reader.poll()
    except OffsetOutOfRange as error:
        if error.minimum <= begin:  # beyond the end: the topic was recreated, and nothing is ahead
            raise
        reader.seek(error.minimum)
        target = min(error.minimum, stop)
        return Part(reader.queue, begin, [], [], target, target - begin)
    if fetched is None:
        return None
    return Part(
        reader.queue,
        begin,
        [record for record in fetched.records if record.queue_offset < stop],
        [error for error in fetched.corrupt if error.queue_offset < stop],
        min(fetched.next_offset, stop),
        fetched.skipped,
    )
