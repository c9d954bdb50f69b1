"""Static topics on two brokers: written and read by both clients, also while a topic moves from one to the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from tests.helpers.peers.interop import JavaClient, given, java_client, same_for_both
from tests.helpers.servers.cluster import Cluster
from tests.helpers.waiting import missing, until

pytestmark = pytest.mark.broker

TOPIC = "static"
QUEUES = [MessageQueue(TOPIC, "__syslo__global__", number) for number in range(2)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=["broker-a", "broker-b"]) as started:
        yield started


@pytest.fixture(scope="module")
def java(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with java_client(cluster.name_server, tmp_path_factory.mktemp("interop")) as client:
        yield client


def test_a_static_topic_is_one_topic_before_and_after_it_moves(java: JavaClient, cluster: Cluster) -> None:
    java.ask("static_topic", topic=TOPIC, brokers="broker-a", queues="2")
    options = ClientOptions(cluster.name_server, max_retries=10)
    factory = RemotingClientFactory(options)
    client = RemotingQueueClient(options)
    with RemotingProducer(options, "static-ours") as producer:
        assert list(producer.queues(TOPIC)) == list(client.queues(TOPIC)) == QUEUES
        java.send(TOPIC, [given(b"Java's %d" % number) for number in range(3)])
        first = [producer.send(Message(b"ours %d" % number, tags="t"), QUEUES[number % 2]) for number in range(4)]
        first += producer.send_batch([Message(b"batch 0"), Message(b"batch 1")], QUEUES[1])
        before = same_for_both(java, factory, TOPIC, 9)
        assert {record.queue for record in before} == set(QUEUES)
        client.commit_offset("static-group", QUEUES[1], 2)

        reader = client.open_reader(QUEUES[1], 0, message_filter=MessageFilter())
        java.ask("static_topic", topic=TOPIC, brokers="broker-b")
        # Both hold the route that names the old broker; it answers that it is not the queue's any more.
        second = [producer.send(Message(b"moved %d" % number, keys=("k",)), QUEUES[number % 2]) for number in range(4)]
        java.send(TOPIC, [given(b"Java's, moved")], compression="ZLIB")  # another producer: the first one would fail
    after = same_for_both(java, factory, TOPIC, 14)
    assert [record for record in after if record.body in {r.body for r in before}] == before
    for result in first + second:
        (record,) = (record for record in after if record.message_id == result.message_id)
        assert (record.queue, record.queue_offset) == (result.queue, result.queue_offset)
        assert record.offset_message_id == result.offset_message_id

    of_queue = [record for record in after if record.queue == QUEUES[1]]
    read: list[Record] = []
    skipped = 0

    def is_read() -> bool:
        nonlocal skipped
        client.wait([reader], 1_000)
        if (fetched := reader.poll()) is not None:
            read.extend(fetched.records)
            skipped += fetched.skipped
        return len(read) >= len(of_queue)

    until(is_read, "all", progress=lambda: len(read), details=lambda: missing(of_queue, read), pause_s=0)
    assert read == of_queue
    assert of_queue[-1].queue_offset > len(of_queue), "the second broker's offsets begin elsewhere"
    assert skipped == 0, "where no offsets were none are lost"
    assert (client.min_offset(QUEUES[1]), client.max_offset(QUEUES[1])) == (0, of_queue[-1].queue_offset + 1)
    assert client.committed_offset("static-group", QUEUES[1]) == 2
    assert client.offset_for_time(QUEUES[1], 0) == 0
    client.close()
