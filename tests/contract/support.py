"""Reading whole queues."""

from __future__ import annotations

import time

from rmqio.interfaces import FetchedBatch, QueueClient
from rmqio.model import MessageFilter, MessageQueue, Record

ALL = MessageFilter()


def fetch(
    client: QueueClient, queue: MessageQueue, offset: int = 0, *, until: int, **options: object
) -> list[FetchedBatch]:
    """Everything from `offset` up to the offset `until`."""
    message_filter = options.pop("message_filter", ALL)
    assert isinstance(message_filter, MessageFilter)
    assert not options
    reader = client.open_reader(queue, offset, message_filter=message_filter)
    got: list[FetchedBatch] = []
    deadline = time.monotonic() + 30
    try:
        while reader.position < until:
            assert time.monotonic() < deadline, f"{queue} came to {reader.position} of {until} only: {got!r:.2000}"
            client.wait([reader], 1_000)
            fetched = reader.poll()
            if fetched is not None:
                got.append(fetched)
        return got
    finally:
        reader.close()


def read(client: QueueClient, queue: MessageQueue, offset: int = 0, *, until: int, **options: object) -> list[Record]:
    """The records from `offset` up to the offset `until`."""
    return [record for fetched in fetch(client, queue, offset, until=until, **options) for record in fetched.records]
