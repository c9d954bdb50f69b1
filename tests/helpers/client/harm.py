"""Faults between a client and the real servers, and their permitted outcomes: the axes of the fault matrix."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import CorruptMessage, RequestTimeout, RmqioError, TransportError
from rmqio.interfaces import QueueReader
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.security import Security
from tests.helpers.client.proxy import Proxy, Side, faults
from tests.helpers.client.proxy.faults import Fault
from tests.helpers.client.raw_send import read_to, records_of, send_one
from tests.helpers.waiting import until
from tests.helpers.watchdog import within

T = TypeVar("T")

WATCHDOG_S = 20.0
"""Far longer than any permitted outcome takes."""
SHORT_MS, LONG_MS = 300, 10_000
"""Request timeouts: short for faults that only a timeout reveals, long for others, so that load does not matter."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Harm:
    """A fault and its permitted outcome."""

    fault: Fault
    side: Side = Side.ANSWER
    error: type[RmqioError] | None = TransportError
    """The error without a retry; None: the right result. With retries, the result is right or the error is final."""
    is_executed: bool | None = True
    """Whether the request takes effect despite the fault; None: it may, and late."""
    is_slow: bool = False
    """Whether the client only notices the fault by its timeout."""


HARMS = {
    "answer is late but in time": Harm(faults.delay(60), error=None),
    "answer comes after the timeout": Harm(faults.delay(1.5 * SHORT_MS), error=RequestTimeout, is_slow=True),
    "answer twice": Harm(faults.duplicate(), error=None),
    "cut before the request": Harm(faults.cut(), Side.REQUEST, is_executed=False),
    "cut within the request": Harm(faults.truncate(-5), Side.REQUEST, is_executed=False),
    "cut before the answer": Harm(faults.cut()),
    "reset before the answer": Harm(faults.cut(reset=True)),
    "cut within the lengths": Harm(faults.truncate(3)),
    "cut within the answer": Harm(faults.truncate(-5)),
    "hostile length": Harm(faults.corrupt("length", flip=0x40)),
    "negative length": Harm(faults.corrupt("length", flip=0x80)),
    "length too large": Harm(faults.announce(70_000), error=RequestTimeout, is_slow=True),
    "hostile header length": Harm(faults.corrupt("header length", flip=0x40)),
    "header length wrong by one": Harm(faults.corrupt("header length", 2, flip=0x01)),
    "header broken": Harm(faults.corrupt("header")),
    "request with a hostile length": Harm(faults.corrupt("length", flip=0x40), Side.REQUEST, is_executed=False),
    "request with a broken header": Harm(faults.corrupt("header"), Side.REQUEST, is_executed=False),
    "answer to nobody": Harm(faults.relabel(lambda n: n + 1_000_000), error=RequestTimeout, is_slow=True),
    "answer is lost": Harm(faults.swallow(), error=RequestTimeout, is_slow=True),
    "request stalls": Harm(faults.stall(), Side.REQUEST, RequestTimeout, is_executed=None, is_slow=True),
    "answer stalls": Harm(faults.stall(), error=RequestTimeout, is_slow=True),
}


@dataclass
class Net:
    """The real servers, each behind a proxy, and a client that bypasses the proxies."""

    rocketmq: LocalRocketMQ
    broker: Proxy
    name_server: Proxy
    direct: RemotingQueueClient
    topic: str
    group: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.rocketmq.name, 0)

    def options(self, harm: Harm, **changes: int) -> ClientOptions:
        values: dict[str, int] = {
            "request_timeout_ms": SHORT_MS if harm.is_slow else LONG_MS,
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 20,
            **changes,
        }
        security = Security(address_map={self.rocketmq.broker: self.broker.address})
        return ClientOptions(self.name_server.address, security=security, **values)  # type: ignore[arg-type]

    def heal(self) -> None:
        self.broker.heal()
        self.name_server.heal()

    def stored(self, begin: int, last: int) -> Counter[str]:
        """Returns how often each unique id is stored from one offset to another. The latter was acknowledged."""
        records = records_of(read_to(self.direct, self.queue, begin, last + 1))
        return Counter(record.message_id for record in records)


@contextmanager
def net_of(rocketmq: LocalRocketMQ) -> Iterator[Net]:
    """Yields the servers of the test run with a new topic and group."""
    topic, group = f"faults-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=1)
    with (
        Proxy(rocketmq.broker) as broker,
        Proxy(rocketmq.name_server) as name_server,
        closing(RemotingQueueClient(ClientOptions(rocketmq.name_server))) as direct,
    ):
        net = Net(rocketmq, broker, name_server, direct, topic, group)
        send_one(rocketmq.broker, net.queue, b"first")
        direct.commit_offset(group, net.queue, 1)
        # What a client keeps after its first use does not count as left behind: also the pipe of one that had to wait.
        net.stored(0, 0)
        with closing(direct.open_reader(net.queue, 1, message_filter=MessageFilter())) as reader:
            direct.wait([reader], 1)
        yield net


def recovered(work: Callable[[], T]) -> T:
    """Returns the result of the same objects when the fault is gone, or before it occurs.

    Without retries, the next request may meet what the fault has left behind. With a short timeout, a busy machine may
    be too slow.
    """
    for _ in range(4):
        with suppress(TransportError):
            return within(WATCHDOG_S, work)
    return within(WATCHDOG_S, work)


def new_ids(count: int) -> list[str]:
    """Returns unique ids, which are unique in this process."""
    return [f"{next(_numbers):032X}" for _ in range(count)]


def send(producer: RemotingProducer, queue: MessageQueue, way: str, ids: list[str]) -> list[int]:
    """Sends a message for each unique id. Returns the acknowledged queue offsets."""
    messages = [Message(message_id.encode()) for message_id in ids]
    if way == "send":
        results = [producer.send(messages[0], queue, message_id=ids[0])]
    else:
        results = producer.send_batch(messages, queue, message_ids=ids)
    assert [result.message_id for result in results] == ids
    return [result.queue_offset for result in results]


@dataclass
class Read:
    """The records that a reader returned, and the errors that it raised in between."""

    records: list[Record]
    corrupt: list[CorruptMessage]
    skipped: int
    errors: list[RmqioError]


def read_until(client: RemotingQueueClient, reader: QueueReader, end: int) -> Read:
    """Reads everything up to an offset, and continues after errors."""
    read = Read([], [], 0, [])

    def is_read() -> bool:
        if reader.position >= end:
            return True
        client.wait([reader], 5_000)
        try:
            fetched = reader.poll()
        except RmqioError as error:
            read.errors.append(error)
            assert len(read.errors) < 10, read.errors
            return False
        if fetched is not None:
            read.records += fetched.records
            read.corrupt += fetched.corrupt
            read.skipped += fetched.skipped
        return reader.position >= end

    until(is_read, f"offset {end}", progress=lambda: reader.position, details=lambda: (reader, read.errors), pause_s=0)
    return read
