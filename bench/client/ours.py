"""Our client's side. Runs in a worker process; each function is one run and tells the seconds and what it did.

The clock covers what JavaPeer.java's clock covers: reading, from opening the readers to the last message; sending, from
making the first `Message` to the last acknowledgement. Connecting is not timed on either side.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from itertools import cycle
from operator import attrgetter
from typing import Any

from bench.common.rss import rss_mb
from bench.common.tally import offsets_sum
from rmqio.client.factory import RemotingClientFactory
from rmqio.interfaces import PendingSend
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.security import Security, Tls

_body, _offset, _crc = attrgetter("body"), attrgetter("queue_offset"), attrgetter("body_crc")
_STALLED_S = 30.0


@dataclass
class Sums:
    """The sums of `Tally`, as they grow."""

    count: int = 0
    bytes: int = 0
    offsets: int = 0
    crcs: int = 0

    def add(self, queue_id: int, records: list[Record]) -> None:
        """Messages of one queue. Fields are looked at in each record, as on the Java side."""
        self.count += len(records)
        self.bytes += sum(map(len, map(_body, records)))
        self.offsets += offsets_sum(queue_id, sum(map(_offset, records)) + len(records))
        self.crcs += sum(map(_crc, records))

    def answer(self, seconds: float) -> dict[str, Any]:
        sums = vars(self) | {"offsets": self.offsets & (1 << 64) - 1}
        return {"seconds": seconds} | sums


def body(number: int, size: int) -> bytes:
    """As JavaPeer.java makes it: the message's number in 12 digits, then x."""
    return (b"%012d" % number).ljust(size, b"x")


def _security(credentials: str | None, tls: bool) -> Security:
    """`tls` verifies nothing: see `bench.client.secured`."""
    return Security(credentials, Tls(insecure=True) if tls else None)


def pull(
    name_server: str,
    topic: str,
    count: int,
    begin: dict[str, int] | None = None,
    memory_every: int = 0,
    credentials: str | None = None,
    tls: bool = False,
) -> dict[str, Any]:
    """Pull and decode to `Record`, all queues from their start (or from `begin`, by queue id) until `count` are there.

    With `memory_every`, also the resident set after each so many messages.
    """
    options = ClientOptions(name_servers=name_server, security=_security(credentials, tls))
    client = RemotingClientFactory(options).queue_client()
    samples: list[float] = []
    try:
        queues = client.queues(topic)
        for queue in queues:
            client.max_offset(queue)
        sums = Sums()
        started = progress = time.perf_counter()
        readers = [
            client.open_reader(queue, (begin or {}).get(str(queue.queue_id), 0), message_filter=MessageFilter())
            for queue in queues
        ]
        while sums.count < count:
            idle = True
            for reader in readers:
                fetched = reader.poll()
                if fetched is not None:
                    idle = False
                    sums.add(reader.queue.queue_id, fetched.records)
            if memory_every and sums.count // memory_every > len(samples):
                samples.append(rss_mb())
            if not idle:
                continue
            now = time.perf_counter()
            if client.wait(readers, 1000):
                progress = now
            elif now - progress > _STALLED_S:
                break
        seconds = time.perf_counter() - started
        for reader in readers:
            reader.close()
    finally:
        client.close()
    return sums.answer(seconds) | {"rss_mb": samples}


def send(
    name_server: str,
    topic: str,
    count: int,
    size: int,
    batch: int,
    in_flight: int,
    credentials: str | None = None,
    tls: bool = False,
) -> dict[str, Any]:
    """Batches of `batch` messages to the queues in turn, with up to `in_flight` batches on their way."""
    bodies = [body(number, size) for number in range(count)]
    options = ClientOptions(
        name_servers=name_server,
        max_in_flight=in_flight,
        request_timeout_ms=30_000,
        security=_security(credentials, tls),
    )
    producer = RemotingClientFactory(options).producer("ours-send")
    try:
        targets = cycle(producer.queues(topic))
        pending: deque[PendingSend] = deque()
        total = 0
        started = time.perf_counter()
        for first in range(0, count, batch):
            part = bodies[first : first + batch]
            messages = [Message(b, tags="bench", keys=(f"k{i}",)) for i, b in enumerate(part, first)]
            total += sum(map(len, part))
            if len(pending) >= in_flight:
                pending.popleft().result()
            pending.append(producer.submit(messages, next(targets)))
        while pending:
            pending.popleft().result()
        seconds = time.perf_counter() - started
    finally:
        producer.close()
    return {"seconds": seconds, "count": count, "bytes": total}


def sync(
    name_server: str, topic: str, count: int, size: int, credentials: str | None = None, tls: bool = False
) -> dict[str, Any]:
    """One message at a time, each waited for."""
    bodies = [body(number, size) for number in range(count)]
    options = ClientOptions(name_servers=name_server, request_timeout_ms=30_000, security=_security(credentials, tls))
    producer = RemotingClientFactory(options).producer("ours-sync")
    try:
        producer.queues(topic)
        started = time.perf_counter()
        for number, content in enumerate(bodies):
            producer.send(Message(content, topic=topic, tags="bench", keys=(f"k{number}",)))
        seconds = time.perf_counter() - started
    finally:
        producer.close()
    return {"seconds": seconds, "count": count, "bytes": sum(map(len, bodies))}


def ends(name_server: str, topic: str) -> dict[str, int]:
    """The maximum offset of each queue, by queue id."""
    client = RemotingClientFactory(ClientOptions(name_servers=name_server)).queue_client()
    try:
        return {str(queue.queue_id): client.max_offset(queue) for queue in client.queues(topic)}
    finally:
        client.close()


def send_ticks(name_server: str, topic: str, broker: str, queue_id: int, count: int, every_ms: int) -> dict[str, Any]:
    """A message each `every_ms` to one queue, with the time of its sending (Unix nanoseconds) as its body."""
    producer = RemotingClientFactory(ClientOptions(name_servers=name_server)).producer("ours-ticks")
    try:
        for _ in range(count):
            producer.send(Message(b"%d" % time.time_ns()), MessageQueue(topic, broker, queue_id))
            time.sleep(every_ms / 1000)
    finally:
        producer.close()
    return {"count": count}
