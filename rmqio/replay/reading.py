"""The letters of a dead-letter topic, from a start to an end that is fixed before, all queues in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rmqio.errors import CorruptMessage
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.seams import QueueClient
from rmqio.start import StartFrom, StopAt

_WAIT_MS: Final = 1_000


class Part(NamedTuple):
    """Consecutive messages of one queue."""

    queue: MessageQueue
    records: list[Record]
    corrupt: list[CorruptMessage]
    next_offset: int


def ranges_of(
    client: QueueClient, topic: str, start: StartFrom, stop: StopAt, group: str | None
) -> dict[MessageQueue, range]:
    """What is to be read of each queue."""
    found = {}
    for queue in client.queues(topic):
        end = stop.resolve(queue, client)
        if end is None:
            continue
        # Retention may have deleted what the group has not got to.
        begin = start.resolve(queue, client, group=group, on_out_of_range="earliest")
        found[queue] = range(begin, max(begin, end))
    return found


def read_ranges(client: QueueClient, ranges: Mapping[MessageQueue, range]) -> Iterator[Part]:
    """Everything in the ranges. Raises `RmqioError`, after the retries that the client's options permit."""
    readers = {
        queue: client.open_reader(queue, each.start, message_filter=MessageFilter())
        for queue, each in ranges.items()
        if each
    }
    try:
        while readers:
            is_idle = True
            for queue, reader in list(readers.items()):
                fetched = reader.poll()
                if fetched is None:
                    continue
                is_idle = False
                stop = ranges[queue].stop
                yield Part(
                    queue,
                    [record for record in fetched.records if record.queue_offset < stop],
                    [error for error in fetched.corrupt if error.queue_offset < stop],
                    min(fetched.next_offset, stop),
                )
                if fetched.next_offset >= stop:
                    readers.pop(queue).close()
            if is_idle:
                client.wait(readers.values(), _WAIT_MS)
    finally:
        for reader in readers.values():
            reader.close()
