"""Sending by bare requests, for tests of the client that come below the producer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence

from rmqio.client.connection import Connection
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.seams import Fetched, QueueClient
from rmqio.wire import requests
from rmqio.wire.batch import BatchBuilder

_numbers = itertools.count()


def send_one(broker: str, queue: MessageQueue, body: bytes, *, properties: str = "") -> int:
    """Send one message; its offset."""
    connection = Connection(broker)
    try:
        command = requests.send("raw", queue, body, properties=properties, born_ms=int(time.time() * 1000))
        return requests.parse_send(connection.request(command, 10_000), "send")[2]
    finally:
        connection.close()


def send_all(broker: str, queue: MessageQueue, messages: Iterable[Message]) -> None:
    """Send messages in batches, in order."""
    connection = Connection(broker)
    try:
        for body in _batches(messages):
            command = requests.send("raw", queue, body, born_ms=int(time.time() * 1000), batch=True)
            requests.parse_send(connection.request(command, 10_000), "send")
    finally:
        connection.close()


def _batches(messages: Iterable[Message]) -> Iterator[bytes]:
    builder = BatchBuilder(max_messages=1000)
    for message in messages:
        message_id = f"{next(_numbers):032x}"
        if not builder.add(message, message_id):
            yield builder.encode()
            builder = BatchBuilder(max_messages=1000)
            assert builder.add(message, message_id)
    if not builder.is_empty:
        yield builder.encode()


def read_to(
    client: QueueClient,
    queue: MessageQueue,
    begin: int,
    end: int,
    *,
    message_filter: MessageFilter | None = None,
    timeout_s: float = 60.0,
) -> list[Fetched]:
    """All that a reader gives until it stands at `end`."""
    reader = client.open_reader(queue, begin, message_filter=message_filter or MessageFilter())
    parts: list[Fetched] = []
    deadline = time.monotonic() + timeout_s
    try:
        while reader.position < end:
            assert time.monotonic() < deadline, f"{reader!r} has not come to {end} in {timeout_s} s"
            part = reader.poll()
            if part is None:
                client.wait([reader], 1000)
            else:
                parts.append(part)
    finally:
        reader.close()
    return parts


def records_of(parts: Sequence[Fetched]) -> list[Record]:
    return [record for part in parts for record in part.records]
