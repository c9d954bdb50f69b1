"""The queue client against a real broker: reading."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import LocalError, OffsetOutOfRange, SubscriptionParseFailed, TopicNotExist
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.security import Security
from rmqio.wire.command import RequestCode
from tests.helpers.client.proxy import Frame, Proxy, Side, faults
from tests.helpers.client.raw_send import read_on, read_to, records_of, send_all, send_one
from tests.helpers.waiting import at_most, until

pytestmark = pytest.mark.broker


@pytest.fixture
def client(rocketmq: LocalRocketMQ) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    yield client
    client.close()


@pytest.fixture
def queue(rocketmq: LocalRocketMQ) -> MessageQueue:
    topic = f"client-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=1)
    return MessageQueue(topic, rocketmq.name, 0)


def test_route_gives_readable_queues(rocketmq: LocalRocketMQ, client: RemotingQueueClient) -> None:
    topic = f"client-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=3)
    assert client.queues(topic) == tuple(MessageQueue(topic, rocketmq.name, n) for n in range(3))


def test_unknown_topic_raises_topic_not_exist(client: RemotingQueueClient) -> None:
    with pytest.raises(TopicNotExist):
        client.queues("no-such-topic")


def test_topics_are_users_topics_only(client: RemotingQueueClient, queue: MessageQueue) -> None:
    topics = client.topics()
    assert queue.topic in topics
    own = ("TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest")
    assert not set(topics) & set(own)
    assert not [topic for topic in topics if topic.lower().startswith(("rmq_sys_", "%"))]


def test_pipelined_read_of_mixed_sizes_loses_and_reorders_nothing(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    chance = random.Random(7)
    sizes = [chance.choice((10, 100, 1_000, 20_000)) if n % 100 < 5 else 60 for n in range(25_000)]
    bodies = [b"%08d" % n + b"." * size for n, size in enumerate(sizes)]
    send_all(rocketmq.broker, queue, (Message(body) for body in bodies))
    parts = read_to(client, queue, 0, 25_000)
    records = records_of(parts)
    assert [record.queue_offset for record in records] == list(range(25_000))
    assert [record.body for record in records] == bodies
    assert sum(part.skipped for part in parts) == 0
    assert parts[-1].max_offset == 25_000
    assert all(record.topic == queue.topic and record.broker == rocketmq.name for record in records)


def test_large_messages_that_come_one_a_pull_are_all_read(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    bodies = [bytes([n]) * 700_000 for n in range(40)]
    for body in bodies:
        send_one(rocketmq.broker, queue, body)
    assert [record.body for record in records_of(read_to(client, queue, 0, 40))] == bodies


def test_read_from_the_middle(rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue) -> None:
    send_all(rocketmq.broker, queue, (Message(b"%d" % n) for n in range(500)))
    records = records_of(read_to(client, queue, 123, 500))
    assert [record.queue_offset for record in records] == list(range(123, 500))


def test_seek_goes_back_and_drops_what_was_read_ahead(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"%d" % n) for n in range(1_000)))
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    read_on(client, reader, 200)
    reader.seek(10)
    assert reader.position == 10
    assert client.wait([reader], 5_000)
    part = reader.poll()
    assert part is not None
    assert part.records[0].queue_offset == 10


def test_tag_filter_drops_tags_with_the_same_hash(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    tags = ["Aa", "BB", "other"]  # the first two have the same hash in Java, and the broker compares hashes
    send_all(rocketmq.broker, queue, (Message(b"%d" % n, tags=tags[n % 3]) for n in range(9_000)))
    parts = read_to(client, queue, 0, 9_000, message_filter=MessageFilter("Aa"))
    assert [record.queue_offset for record in records_of(parts)] == list(range(0, 9_000, 3))
    assert sum(part.skipped for part in parts) == 0


def test_rare_tag_is_found_across_long_gaps(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    wanted = [0, 1, 4_000, 9_998]
    send_all(
        rocketmq.broker, queue, (Message(b"%d" % n, tags="rare" if n in wanted else "common") for n in range(10_000))
    )
    parts = read_to(client, queue, 0, 10_000, message_filter=MessageFilter("rare || never"))
    assert [record.queue_offset for record in records_of(parts)] == wanted


def test_sql_filter(rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x", properties={"n": str(n)}) for n in range(300)))
    parts = read_to(client, queue, 0, 300, message_filter=MessageFilter("n BETWEEN 100 AND 109", sql=True))
    assert [record.queue_offset for record in records_of(parts)] == list(range(100, 110))


@pytest.mark.parametrize("expression", ["n >", "n BETWEEN 1", "n = 'x", "((n > 1)", ""])
def test_sql_that_does_not_compile_is_refused(
    client: RemotingQueueClient, queue: MessageQueue, expression: str
) -> None:
    with pytest.raises(SubscriptionParseFailed):
        client.open_reader(queue, 0, message_filter=MessageFilter(expression, sql=True))


def test_a_long_poll_waits_on_the_broker_until_a_message_arrives(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    """It is one request for each message: nothing is asked in between."""
    asked: list[int] = []

    def note(pull: Frame) -> bool:
        asked.append(int(pull.ext["queueOffset"]))
        return False

    send_one(rocketmq.broker, queue, b"first")
    read_to(client, queue, 0, 1)
    with Proxy(rocketmq.broker) as proxy:
        proxy.on(faults.swallow(), Side.REQUEST, RequestCode.PULL_MESSAGE, when=note)
        security = Security(address_map={rocketmq.broker: proxy.address})
        options = ClientOptions(rocketmq.name_server, security=security, long_poll_ms=600_000)
        with closing(RemotingQueueClient(options)) as observed:
            reader = observed.open_reader(queue, 1, message_filter=MessageFilter())
            until(lambda: observed.wait([reader], 100) or reader.is_at_end, "the end of the queue")
            for n in range(20):
                assert not observed.wait([reader], 50)
                thread = threading.Thread(target=send_one, args=(rocketmq.broker, queue, b"%d" % n))
                thread.start()
                assert observed.wait([reader], 60_000), "an answer ends the wait, no time"
                part = reader.poll()
                thread.join()
                assert part is not None
                assert [record.body for record in part.records] == [b"%d" % n]
    first, *held = (offset for offset in asked if offset <= 20)
    assert (first, held) == (1, [*range(1, 21)]), "one for each, and the first one, which asks for the end"


def test_offset_beyond_the_end_raises_and_seek_goes_on(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(10)))
    reader = client.open_reader(queue, 5_000, message_filter=MessageFilter())
    assert client.wait([reader], 5_000)
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.poll()
    assert (caught.value.queue, caught.value.wanted) == (queue, 5_000)
    assert (caught.value.minimum, caught.value.maximum) == (0, 10)
    assert reader.position == 5_000
    assert client.wait([reader], 5_000)
    with pytest.raises(OffsetOutOfRange):
        reader.poll()  # it stays where it is
    reader.seek(caught.value.minimum)
    assert client.wait([reader], 5_000)
    part = reader.poll()
    assert part is not None
    assert part.records[0].queue_offset == 0


@pytest.mark.parametrize("offset", [-1, 7])
def test_illegal_offset_of_an_empty_queue_raises(client: RemotingQueueClient, queue: MessageQueue, offset: int) -> None:
    reader = client.open_reader(queue, offset, message_filter=MessageFilter())
    assert client.wait([reader], 5_000)
    with pytest.raises(OffsetOutOfRange):
        reader.poll()


def test_reader_of_a_queue_that_does_not_exist_is_refused(client: RemotingQueueClient, queue: MessageQueue) -> None:
    with pytest.raises(LocalError, match=r"queue .*/9 does not exist: broker 'broker-a' serves queues 0 to 0"):
        client.open_reader(queue._replace(queue_id=9), 0, message_filter=MessageFilter())


def test_inner_batches_are_read_from_the_middle(rocketmq: LocalRocketMQ, client: RemotingQueueClient) -> None:
    topic = f"client-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=1, attributes={"queue.type": "BatchCQ"})
    queue = MessageQueue(topic, rocketmq.name, 0)
    send_all(rocketmq.broker, queue, (Message(b"%d" % n) for n in range(5_000)))
    parts = read_to(client, queue, 1_234, 5_000)
    assert [record.queue_offset for record in records_of(parts)] == list(range(1_234, 5_000))
    assert [record.body for record in records_of(parts)] == [b"%d" % n for n in range(1_234, 5_000)]
    assert sum(part.skipped for part in parts) == 0


def test_namespace_is_put_on_and_taken_off(rocketmq: LocalRocketMQ) -> None:
    topic, namespace = f"client-{uuid.uuid4().hex[:12]}", f"inst{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(f"{namespace}%{topic}", queues=1)
    client = RemotingQueueClient(ClientOptions(rocketmq.name_server, namespace=namespace))
    try:
        (queue,) = client.queues(topic)
        assert queue == MessageQueue(topic, rocketmq.name, 0)
        send_all(rocketmq.broker, queue._replace(topic=f"{namespace}%{topic}"), (Message(b"x") for _ in range(40)))
        assert {record.topic for record in records_of(read_to(client, queue, 0, 40))} == {topic}
        assert client.topics() == [topic]
        client.commit_offset("group", queue, 3)
        assert client.committed_offset("group", queue) == 3
    finally:
        client.close()


def test_threads_share_a_client(rocketmq: LocalRocketMQ, client: RemotingQueueClient) -> None:
    topic = f"client-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=4)
    queues = client.queues(topic)
    for queue in queues:
        send_all(rocketmq.broker, queue, (Message(b"%d" % n) for n in range(5_000)))
    results: dict[int, list[int]] = {}
    failures: list[BaseException] = []

    def read(queue: MessageQueue) -> None:
        try:
            for _ in range(20):
                assert 0 <= client.max_offset(queue) <= 5_000
            results[queue.queue_id] = [r.queue_offset for r in records_of(read_to(client, queue, 0, 5_000))]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=read, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(at_most(60))
    assert failures == []
    assert results == {n: list(range(5_000)) for n in range(4)}


def test_a_forked_child_uses_the_client_and_the_parents_connection_survives(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(3_000)))
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    assert client.wait([reader], 5_000)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            good = client.min_offset(queue) == 0 and len(records_of(read_to(client, queue, 0, 3_000))) == 3_000
            # A reader made before the fork must not read the parent's socket, but may go on with one of its own.
            first = reader.position
            seen = [record.queue_offset for record in records_of(read_on(client, reader, 3_000))]
            status = 0 if good and seen == list(range(first, 3_000)) else 2
        finally:
            os._exit(status)
    seen = [record.queue_offset for record in records_of(read_on(client, reader, 3_000))]
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert seen == list(range(3_000))
    assert "opened 1 times" in repr(client)
    assert "opened 2 times" not in repr(client)
