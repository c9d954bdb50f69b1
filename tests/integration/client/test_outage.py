"""The queue client while its broker is killed, restarted or hangs. These have brokers of their own."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.reader import PipelinedReader
from rmqio.errors import RequestTimeout, TransportError
from rmqio.interfaces import QueueReader
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.client.raw_send import send_all, send_one
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalRocketMQ]:
    with LocalRocketMQ(name="mortal") as broker:
        yield broker


@pytest.fixture
def client(own_broker: LocalRocketMQ) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(ClientOptions(own_broker.name_server, request_timeout_ms=2_000))
    yield client
    client.close()


def test_reader_rides_out_a_killed_broker(own_broker: LocalRocketMQ, client: RemotingQueueClient) -> None:
    own_broker.create_topic("killed", queues=1)
    queue = MessageQueue("killed", "mortal", 0)
    send_all(own_broker.broker, queue, (Message(b"%d" % n) for n in range(20_000)))
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    offsets: list[int] = []
    restarted: threading.Thread | None = None

    def is_read() -> bool:
        nonlocal restarted
        if reader.position >= 5_000 and restarted is None:
            own_broker.kill()
            restarted = threading.Thread(target=own_broker.restart)
            restarted.start()
        part = reader.poll()
        if part is None:
            client.wait([reader], 500)
        else:
            assert part.skipped == 0
            offsets.extend(record.queue_offset for record in part.records)
        return reader.position >= 20_000

    until(is_read, "all", progress=lambda: reader.position, details=lambda: reader, still_s=120, pause_s=0)
    assert restarted is not None
    restarted.join()
    assert offsets == list(range(20_000))
    # At the end of the queue, too: the long poll is lost with the broker and begun again.
    until(lambda: _is_at_end(client, reader), "the end", details=lambda: reader, pause_s=0)
    own_broker.kill()
    until(lambda: not _is_at_end(client, reader), "the end of the long poll", details=lambda: reader, pause_s=0)
    own_broker.restart()
    send_one(own_broker.broker, queue, b"after")
    assert _read_one(client, reader) == b"after"


def test_reader_rides_out_a_paused_broker(own_broker: LocalRocketMQ, client: RemotingQueueClient) -> None:
    own_broker.create_topic("paused", queues=1)
    queue = MessageQueue("paused", "mortal", 0)
    send_all(own_broker.broker, queue, (Message(b"%d" % n) for n in range(10_000)))
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    assert isinstance(reader, PipelinedReader)
    offsets: list[int] = []
    is_paused = was_paused = False

    def is_read() -> bool:
        nonlocal is_paused, was_paused
        if reader.position >= 3_000 and not was_paused:
            own_broker.pause()
            is_paused = was_paused = True
        if is_paused and reader.retries > 0:  # a pull has timed out
            own_broker.resume()
            is_paused = False
        part = reader.poll()
        if part is None:
            client.wait([reader], 500)
        else:
            offsets.extend(record.queue_offset for record in part.records)
        return reader.position >= 10_000

    try:
        until(is_read, "all", progress=lambda: reader.position, details=lambda: reader, still_s=120, pause_s=0)
    finally:
        if is_paused:
            own_broker.resume()
    assert reader.retries > 0
    assert offsets == list(range(10_000))


def test_requests_to_a_paused_broker_time_out_and_work_again_afterwards(
    own_broker: LocalRocketMQ, client: RemotingQueueClient
) -> None:
    own_broker.create_topic("hung", queues=1)
    queue = MessageQueue("hung", "mortal", 0)
    assert client.max_offset(queue) == 0
    patient = RemotingQueueClient(
        ClientOptions(own_broker.name_server, request_timeout_ms=500, max_retries=1, retry_backoff_ms=10)
    )
    assert patient.max_offset(queue) == 0
    own_broker.pause()
    try:
        with pytest.raises(RequestTimeout, match="no answer"):
            patient.max_offset(queue)
    finally:
        own_broker.resume()
    assert patient.max_offset(queue) == 0
    patient.close()


def test_a_dead_broker_does_not_hold_up_the_readers_of_another(
    own_broker: LocalRocketMQ, rocketmq: LocalRocketMQ, client: RemotingQueueClient
) -> None:
    topic = f"two-{uuid.uuid4().hex[:12]}"
    own_broker.create_topic(topic, queues=1)
    rocketmq.create_topic(topic, queues=1)
    alive_queue, dead_queue = MessageQueue(topic, rocketmq.name, 0), MessageQueue(topic, "mortal", 0)
    other = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    alive = other.open_reader(alive_queue, 0, message_filter=MessageFilter())
    dead = client.open_reader(dead_queue, 0, message_filter=MessageFilter())
    until(lambda: _is_at_end(client, dead) and _is_at_end(other, alive), "the ends", details=lambda: (alive, dead))

    def bodies() -> list[bytes]:
        if (part := alive.poll()) is not None:
            return [record.body for record in part.records]
        assert dead.poll() is None
        assert client.wait([alive, dead], 60_000), "the other broker's answer ends the wait"
        return []

    own_broker.kill()
    try:
        for n in range(20):
            send_one(rocketmq.broker, alive_queue, b"%d" % n)
            assert until(bodies, "a message", details=lambda: alive, pause_s=0) == [b"%d" % n]
    finally:
        own_broker.restart()
        other.close()


def test_offsets_of_a_dead_broker_fail_as_unreachable_not_as_unknown(
    own_broker: LocalRocketMQ, client: RemotingQueueClient
) -> None:
    own_broker.create_topic("gone", queues=1)
    queue = MessageQueue("gone", "mortal", 0)
    own_broker.kill()
    try:
        with pytest.raises(TransportError):
            client.max_offset(queue)
    finally:
        own_broker.restart()
    assert client.max_offset(queue) == 0


def _is_at_end(client: RemotingQueueClient, reader: QueueReader) -> bool:
    client.wait([reader], 200)
    part = reader.poll()
    assert part is None or not part.records
    return reader.is_at_end


def _read_one(client: RemotingQueueClient, reader: QueueReader) -> bytes:
    def bodies() -> list[bytes]:
        part = reader.poll()
        if part is not None and part.records:
            return [record.body for record in part.records]
        client.wait([reader], 500)
        return []

    return until(bodies, "a message", details=lambda: reader, pause_s=0)[0]
