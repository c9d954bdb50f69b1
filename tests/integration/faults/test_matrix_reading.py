"""Faults on the way to a real broker while a queue is read: every record comes once, in order, as stored.

What fails its checksum is reported in its place, and what cannot be cut into messages is an error and read again.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

import rmqio.client.reader as reader_module
from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import ConnectionPool
from rmqio.client.producer import RemotingProducer
from rmqio.errors import CorruptMessage, RequestTimeout, TransportError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.wire.command import RequestCode
from tests.helpers.client.harm import (
    HARMS,
    LONG_MS,
    SHORT_MS,
    WATCHDOG_S,
    Harm,
    Net,
    Read,
    net_of,
    new_ids,
    read_until,
    recovered,
    send,
)
from tests.helpers.client.proxy import Proxy, Side, faults
from tests.helpers.client.proxy.faults import Fault, Passage
from tests.helpers.client.raw_send import send_all, send_one
from tests.helpers.servers.guarded import Guarded
from tests.helpers.waiting import until
from tests.helpers.watchdog import nothing_is_left, within

pytestmark = pytest.mark.broker
BACKLOG = 400
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture(scope="module")
def net(rocketmq: LocalRocketMQ) -> Iterator[Net]:
    with net_of(rocketmq) as net:
        yield net


@pytest.fixture(autouse=True)
def healed(net: Net) -> Iterator[None]:
    yield
    net.heal()


@pytest.fixture(scope="module")
def backlog(net: Net) -> MessageQueue:
    """A queue that nobody adds to any more."""
    topic = f"faults-{uuid.uuid4().hex[:12]}"
    net.rocketmq.create_topic(topic, queues=1)
    queue = MessageQueue(topic, net.rocketmq.name, 0)
    send_all(net.rocketmq.broker, queue, (Message(b"body %d" % n, keys=(f"k{n}",)) for n in range(BACKLOG)))
    return queue


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gives a broker 5 s more than a request's timeout, a held pull 10: too long for a test, not for use."""
    monkeypatch.setattr(reader_module, "_BROKER_PATIENCE_MS", 0)
    monkeypatch.setattr(reader_module, "_LONG_POLL_GRACE_MS", 300)


def _backlog_through(net: Net, queue: MessageQueue, harm: Harm, **changes: int) -> Read:
    options = net.options(harm, pull_depth=4, **changes)
    with nothing_is_left(), closing(RemotingQueueClient(options)) as client:
        reader = client.open_reader(queue, 0, message_filter=MessageFilter())
        read = within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG))
        net.heal()
        reader.seek(BACKLOG - 1)
        assert len(within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG)).records) == 1
    return read


def _is_backlog(records: list[Record], *without: int) -> bool:
    """Whether these are all of them in order, each as it is stored."""
    found = [(record.queue_offset, record.body, record.keys) for record in records]
    return found == [(n, b"body %d" % n, (f"k{n}",)) for n in range(BACKLOG) if n not in without]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", HARMS)
def test_pulls(net: Net, backlog: MessageQueue, name: str) -> None:
    harm = HARMS[name]
    hits = net.broker.hits
    net.broker.on(harm.fault, harm.side, PULL, skip=3)
    read = _backlog_through(net, backlog, harm)
    assert net.broker.hits == hits + 1
    assert _is_backlog(read.records)
    assert (read.corrupt, read.skipped, read.errors) == ([], 0, [])


@pytest.mark.parametrize("place", ["body", "checksum"])
def test_pulled_bytes_that_fail_their_checksum_are_never_good_data(net: Net, backlog: MessageQueue, place: str) -> None:
    # The last message of an answer is broken. A stored message has its sum in bytes 8 to 11, its body from byte 88 on.
    before_body = {"body": 0, "checksum": 88 - 11}[place]
    net.broker.on(_corrupt_at(lambda data: data.rindex(b"body ") - before_body), Side.ANSWER, PULL, skip=3)
    read = _backlog_through(net, backlog, Harm(faults.cut()))
    (corrupt,) = read.corrupt
    assert (corrupt.topic, corrupt.broker, corrupt.queue_id) == (backlog.topic, backlog.broker, 0)
    assert "CRC" in corrupt.reason
    assert corrupt.queue_offset > 32
    assert _is_backlog(read.records, corrupt.queue_offset)
    assert (read.skipped, read.errors) == (0, [])


def _corrupt_at(at: Callable[[bytes], int]) -> Fault:
    async def fault(passage: Passage) -> None:
        data = passage.frame.data
        index = at(data)
        await passage.forward(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])

    return fault


FRAMING: dict[str, Fault] = {
    "size of a message": faults.corrupt("body", 3, flip=0x10),
    "magic of a message": faults.corrupt("body", 4),
    "frame ends early": faults.announce(-3),
    "length of the topic": faults.corrupt("body", 2, flip=0x40),
}


@pytest.mark.parametrize("name", FRAMING)
def test_pulled_bytes_that_cannot_be_cut_are_an_error_and_read_again(
    net: Net, backlog: MessageQueue, name: str
) -> None:
    hits = net.broker.hits
    net.broker.on(FRAMING[name], Side.ANSWER, PULL, skip=3)
    read = _backlog_through(net, backlog, Harm(faults.cut()))
    assert net.broker.hits == hits + 1
    assert _is_backlog(read.records)
    # None when the connection was found broken before the answer was looked at.
    assert {type(error) for error in read.errors} <= {CorruptMessage}
    assert len(read.errors) <= 1
    assert (read.corrupt, read.skipped) == ([], 0)


DISORDER: dict[str, tuple[Fault, int]] = {
    "one behind the next": (faults.reorder(), 1),
    "each third behind two": (faults.reorder(2), 4),
    "all twice": (faults.duplicate(), 1_000),
    "one as that of the next": (faults.relabel(lambda opaque: opaque + 1), 1),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", DISORDER)
def test_answers_to_pulls_in_disorder(net: Net, backlog: MessageQueue, name: str) -> None:
    fault, times = DISORDER[name]
    hits = net.broker.hits
    net.broker.on(fault, Side.ANSWER, PULL, skip=3, times=times)
    read = _backlog_through(net, backlog, Harm(fault, is_slow=True))
    assert net.broker.hits >= hits + min(times, 4)
    assert _is_backlog(read.records)
    assert (read.corrupt, read.skipped, read.errors) == ([], 0, [])


@pytest.mark.usefixtures("impatient")
def test_an_answer_under_the_opaque_of_an_earlier_pull_is_never_a_silent_loss(net: Net, backlog: MessageQueue) -> None:
    """It looks as if the messages in between had been removed, and is counted as that."""
    net.broker.on(faults.relabel(lambda opaque: opaque - 1), Side.ANSWER, PULL, skip=3)
    read = _backlog_through(net, backlog, Harm(faults.cut(), is_slow=True))
    offsets = [record.queue_offset for record in read.records]
    assert offsets == sorted(set(offsets))
    assert len(offsets) + read.skipped == BACKLOG
    assert (read.corrupt, read.errors) == ([], [])


def test_pulls_that_go_on_failing_are_an_error_and_nothing_is_lost_when_they_work_again(
    net: Net, backlog: MessageQueue
) -> None:
    net.broker.on(faults.cut(), Side.ANSWER, PULL, skip=3, times=1_000)
    options = net.options(Harm(faults.cut()), pull_depth=4, max_retries=1, outage_timeout_ms=100)
    with nothing_is_left(), closing(RemotingQueueClient(options)) as client:
        reader = client.open_reader(backlog, 0, message_filter=MessageFilter())

        first: list[Record] = []

        def has_failed() -> bool:
            client.wait([reader], 5_000)
            try:
                fetched = reader.poll()
            except TransportError:
                return True
            if fetched is not None:
                first.extend(fetched.records)
            return False

        within(WATCHDOG_S, lambda: until(has_failed, "its error", progress=lambda: len(first), pause_s=0))
        assert reader.position == len(first)
        net.heal()
        rest = within(WATCHDOG_S, lambda: read_until(client, reader, BACKLOG))
        assert _is_backlog(first + rest.records)


# ---- the end of a queue ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", HARMS)
def test_long_polls(net: Net, name: str) -> None:
    harm = HARMS[name]
    hits, begin = net.broker.hits, net.direct.max_offset(net.queue)
    options = net.options(harm, long_poll_ms=100 if harm.is_slow else LONG_MS)
    with nothing_is_left(), closing(RemotingQueueClient(options)) as client:
        if harm.side is Side.REQUEST:
            net.broker.on(harm.fault, harm.side, PULL, when=lambda frame: int(frame.ext["sysFlag"]) & 2 > 0)
        reader = client.open_reader(net.queue, begin, message_filter=MessageFilter())
        until(lambda: within(WATCHDOG_S, lambda: client.wait([reader], 10)) or reader.is_at_end, "the end", pause_s=0)
        if harm.side is Side.ANSWER:
            net.broker.on(harm.fault, harm.side, PULL)
        body = uuid.uuid4().bytes
        offset = send_one(net.rocketmq.broker, net.queue, body)
        read = within(WATCHDOG_S, lambda: read_until(client, reader, offset + 1))
        assert net.broker.hits == hits + 1
        net.heal()
        assert [(record.queue_offset, record.body) for record in read.records] == [(offset, body)]
        assert (read.corrupt, read.skipped, read.errors) == ([], 0, [])


# ---- TLS: what no checksum covers in plain text is noticed, wherever a byte is changed -------------------------------

CIPHERED: dict[str, Harm] = {
    "first byte of an answer": Harm(faults.corrupt_record(0)),
    "length of an answer": Harm(faults.corrupt_record(3, flip=0x80)),
    "middle of an answer": Harm(faults.corrupt_record(60)),
    "end of an answer": Harm(faults.corrupt_record(-1)),
    "middle of a request": Harm(faults.corrupt_record(60), Side.REQUEST, is_executed=False),
    "cut within an answer": Harm(faults.truncate(-5)),
    "cut before the request": Harm(faults.cut(), Side.REQUEST, is_executed=False),
    "answer stalls": Harm(faults.stall(), error=RequestTimeout, is_slow=True),
}


@pytest.fixture(scope="module")
def ciphered(guarded: Guarded) -> Iterator[tuple[Proxy, MessageQueue]]:
    topic = guarded.create_topic(f"faults-{uuid.uuid4().hex[:12]}")
    with Proxy(guarded.broker.broker, tls=True) as proxy:
        yield proxy, MessageQueue(topic, guarded.broker.name, 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", CIPHERED)
def test_tls(guarded: Guarded, ciphered: tuple[Proxy, MessageQueue], name: str) -> None:
    (proxy, queue), harm = ciphered, CIPHERED[name]
    security = replace(guarded.security, address_map={guarded.broker.broker: proxy.address})
    timeout_ms = 2 * SHORT_MS if harm.is_slow else LONG_MS
    options = guarded.options(security, request_timeout_ms=timeout_ms, max_retries=0)
    ids, before, after = new_ids(1), new_ids(1), new_ids(1)
    with nothing_is_left():
        with closing(ConnectionPool(options)) as pool, RemotingProducer(options, "faulty", pool=pool) as producer:
            (begin,) = recovered(lambda: send(producer, queue, "send", before))
            hits, connection = proxy.hits, pool.connection(guarded.broker.broker)

            def is_answered() -> bool:
                session = connection.session
                if session is not None:
                    session.pump(10)
                return session is not None and not session.calls_in_flight

            # A new connection sends a heartbeat. Its answer would be the one to be cut: the proxy cannot tell.
            until(is_answered, "the answer to the heartbeat", details=lambda: connection, pause_s=0)
            proxy.on(harm.fault, harm.side)
            with pytest.raises(TransportError) as caught:
                within(WATCHDOG_S, lambda: send(producer, queue, "send", ids))
            assert caught.type is harm.error
            assert proxy.hits == hits + 1
            proxy.heal()
            (last,) = recovered(lambda: send(producer, queue, "send", after))
        with closing(RemotingQueueClient(replace(options, max_retries=5))) as client:
            reader = client.open_reader(queue, begin, message_filter=MessageFilter())
            within(WATCHDOG_S, lambda: client.wait([reader], LONG_MS))
            proxy.on(harm.fault, harm.side)
            reader.seek(begin)
            read = within(WATCHDOG_S, lambda: read_until(client, reader, last + 1))
            assert proxy.hits == hits + 2
            proxy.heal()
    stored = Counter(record.message_id for record in read.records)
    assert stored[ids[0]] == (1 if harm.is_executed else 0)
    assert [record.queue_offset for record in read.records] == list(range(begin, last + 1))
    assert all(record.body == record.message_id.encode() for record in read.records)
    assert (read.corrupt, read.skipped, read.errors) == ([], 0, [])
