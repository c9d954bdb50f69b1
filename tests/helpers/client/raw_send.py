"""Sends with bare requests, for tests of the client at a level below the producer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing

from rmqio.client.connection import Connection
from rmqio.interfaces import FetchedBatch, QueueClient, QueueReader
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.wire import requests
from rmqio.wire.batch import BatchBuilder
from tests.helpers.check import read_topic
from tests.helpers.waiting import until, until_found

_numbers = itertools.count()


def send_one(broker: str, queue: MessageQueue, body: bytes, *, properties: str = "") -> int:
    """Sends one message and returns its offset."""
    connection = Connection(broker)
    try:
        command = requests.send("raw", queue, body, properties=properties, born_ms=int(time.time() * 1000))
        return requests.parse_send(connection.request(command, 10_000), "send")[2]
    finally:
        connection.close()


def send_all(broker: str, queue: MessageQueue, messages: Iterable[Message]) -> None:
    """Sends messages in batches, in order. Returns when they can be read, which is after their acknowledgement."""
    connection = Connection(broker)
    end = 0
    try:
        for body, count in _batches(messages):
            command = requests.send("raw", queue, body, born_ms=int(time.time() * 1000), batch=True)
            end = requests.parse_send(connection.request(command, 10_000), "send")[2] + count

        def have() -> int:
            return requests.parse_offset(connection.request(requests.get_max_offset(queue), 10_000), "end")

        until(lambda: have() >= end, f"{queue} to have {end} messages", progress=have, details=have)
    finally:
        connection.close()


def _batches(messages: Iterable[Message]) -> Iterator[tuple[bytes, int]]:
    """Yields encoded batches, and how many messages each one holds."""
    builder, count = BatchBuilder(max_messages=1000), 0
    for message in messages:
        message_id = f"{next(_numbers):032x}"
        if not builder.add(message, message_id):
            yield builder.encode(), count
            builder, count = BatchBuilder(max_messages=1000), 0
            assert builder.add(message, message_id)
        count += 1
    if count:
        yield builder.encode(), count


def read_to(
    client: QueueClient,
    queue: MessageQueue,
    begin: int,
    end: int,
    *,
    message_filter: MessageFilter | None = None,
) -> list[FetchedBatch]:
    """Returns everything that a reader reads until its position is `end`."""
    with closing(client.open_reader(queue, begin, message_filter=message_filter or MessageFilter())) as reader:
        return read_on(client, reader, end)


def read_on(client: QueueClient, reader: QueueReader, end: int) -> list[FetchedBatch]:
    """Returns everything that an open reader reads until its position is `end`."""
    parts: list[FetchedBatch] = []

    def has_reached() -> bool:
        if reader.position < end:
            part = reader.poll()
            if part is None:
                client.wait([reader], 1000)
            else:
                parts.append(part)
        return reader.position >= end

    until(has_reached, f"offset {end}", progress=lambda: reader.position, details=lambda: reader, pause_s=0)
    return parts


def stored(client: QueueClient, topic: str, bodies: Collection[bytes]) -> list[Record]:
    """Returns all records of a topic, queue by queue in order, as soon as there are as many as these bodies.

    A broker shows messages a moment after it has acknowledged them.
    """
    found: list[Record] = []

    def stored_bodies() -> list[bytes]:
        found[:] = read_topic(client, topic)
        return [record.body for record in found]

    until_found(stored_bodies, bodies)
    return found


def records_of(parts: Sequence[FetchedBatch]) -> list[Record]:
    return [record for part in parts for record in part.records]
