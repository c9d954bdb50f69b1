"""What goes wrong between a client and the real servers, and what may come of it: the axes of the fault matrix."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from rmqio.client.client import RemotingQueueClient
from rmqio.client.sending.producer import RemotingProducer
from rmqio.errors import CorruptMessage, RequestTimeout, RmqioError, TransportError
from rmqio.interfaces import QueueReader
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.security import Security
from tests.helpers.proxy import Proxy, Side, faults
from tests.helpers.proxy.faults import Fault
from tests.helpers.raw_send import read_to, records_of, send_one
from tests.helpers.watchdog import within

T = TypeVar("T")

WATCHDOG_S = 20.0
"""Far more than any permitted outcome takes."""
SHORT_MS, LONG_MS = 300, 10_000
"""Timeouts of requests: for faults that are noticed by them, and for those that are not: load then plays no part."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Harm:
    """A fault, and what may come of it."""

    fault: Fault
    side: Side = Side.ANSWER
    error: type[RmqioError] | None = TransportError
    """Without a retry; None: the right result. With retries the result is right, or the error final."""
    is_executed: bool | None = True
    """Whether the request takes effect all the same; None: it may, and late."""
    is_slow: bool = False
    """Whether the client notices by its timeout only."""


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
    """The real servers behind a proxy each, and a client that goes round them."""

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
        """How often each unique id is stored from an offset to another, which was acknowledged."""
        records = records_of(read_to(self.direct, self.queue, begin, last + 1))
        return Counter(record.message_id for record in records)


@contextmanager
def net_of(rocketmq: LocalRocketMQ) -> Iterator[Net]:
    """The servers of the run with a topic and a group of its own."""
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
        net.stored(0, 0)  # what a client keeps from its first use on is not counted as left behind
        yield net


def recovered(work: Callable[[], T]) -> T:
    """What the same objects give once the fault is gone, or before it comes.

    Without retries the next request may find what it left; and with a short timeout a busy machine may be too slow.
    """
    for _ in range(4):
        with suppress(TransportError):
            return within(WATCHDOG_S, work)
    return within(WATCHDOG_S, work)


def new_ids(count: int) -> list[str]:
    """Unique ids, unique in this process."""
    return [f"{next(_numbers):032X}" for _ in range(count)]


def send(producer: RemotingProducer, queue: MessageQueue, way: str, ids: list[str]) -> list[int]:
    """Send a message for each unique id; the queue offsets that were acknowledged."""
    messages = [Message(message_id.encode()) for message_id in ids]
    if way == "send":
        results = [producer.send(messages[0], queue, message_id=ids[0])]
    else:
        results = producer.send_batch(messages, queue, message_ids=ids)
    assert [result.message_id for result in results] == ids
    return [result.queue_offset for result in results]


@dataclass
class Read:
    """What a reader gave, and what it raised in between."""

    records: list[Record]
    corrupt: list[CorruptMessage]
    skipped: int
    errors: list[RmqioError]


def read_until(client: RemotingQueueClient, reader: QueueReader, end: int) -> Read:
    """All up to an offset, through errors."""
    read = Read([], [], 0, [])
    while reader.position < end:
        client.wait([reader], 5_000)
        try:
            fetched = reader.poll()
        except RmqioError as error:
            read.errors.append(error)
            assert len(read.errors) < 10, read.errors
            continue
        if fetched is not None:
            read.records += fetched.records
            read.corrupt += fetched.corrupt
            read.skipped += fetched.skipped
    return read
