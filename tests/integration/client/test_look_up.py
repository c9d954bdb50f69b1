"""Many offsets at once on a real cluster: a broker hangs, dies, returns; a master is away and its replica answers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import Connection
from rmqio.client.producer import RemotingProducer
from rmqio.errors import BrokerSilent, RmqioError, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.watch.frames import Target
from rmqio.watch.watcher import Watcher
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.helpers.servers.cluster import Cluster
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "looked-up"
GROUP = "kept"
COUNT = 200
"""Messages in each queue."""
Outcomes = Mapping[MessageQueue, int | RmqioError | None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Broker a has a replica and sends readers of old messages to it; all but the newest is old to it. b has none.

    The replica has copied everything before a test begins: once somebody has pulled, RocketMQ 5.5.0's replicas copy no
    group offsets any more, because fastjson2 cannot skip the `pullOffsetTable` in the master's answer.
    """
    brokers = {
        "a": {"slaveReadEnable": True, "accessMessageInMemoryMaxRatio": 0},
        "a/1": {"slaveReadEnable": True},
        "b": {},
    }
    with Cluster(brokers=brokers) as cluster:
        cluster.create_topic(TOPIC, 4)
        with RemotingProducer(options(cluster), "looked-up") as producer:
            for queue in producer.queues(TOPIC):
                for _ in range(COUNT // 20):
                    producer.send_batch([Message(b"x" * 100, topic=TOPIC)] * 20, queue)
        with contextlib.closing(RemotingQueueClient(options(cluster))) as client:
            assert client.commit_offsets(GROUP, dict.fromkeys(queues(client), 7)) == {}
            until_copied(cluster, client)
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RemotingQueueClient]:
    with contextlib.closing(RemotingQueueClient(options(cluster))) as client:
        assert len(client.queues(TOPIC)) == 8
        seen = partial(look, client)
        until(lambda: all(end == COUNT for end in seen().values()), "all to be visible", details=seen)
        yield client


def options(cluster: Cluster) -> ClientOptions:
    return ClientOptions(cluster.name_server, request_timeout_ms=1_500, route_refresh_ms=200)


def queues(client: RemotingQueueClient) -> list[MessageQueue]:
    return [MessageQueue(TOPIC, name, number) for name in ("a", "b") for number in range(4)]


def look(client: RemotingQueueClient, kind: str = "max", group: str = "") -> Outcomes:
    wanted = queues(client)
    queries = [OffsetQuery(queue, kind, 1, group) for queue in wanted]  # type: ignore[arg-type]
    return dict(zip(wanted, client.look_up(queries), strict=True))


def of(broker: str, outcomes: Outcomes) -> list[int | RmqioError | None]:
    return [outcome for queue, outcome in outcomes.items() if queue.broker == broker]


def fresh_group() -> str:
    return f"look-{uuid.uuid4().hex[:12]}"


def ask(address: str, command: Command) -> Command:
    connection = Connection(address)
    try:
        return connection.request(command, 5_000)
    finally:
        connection.close()


def until_copied(cluster: Cluster, client: RemotingQueueClient) -> None:
    """The replica has the messages, and the topic and group offsets, which it copies once a minute."""
    replica = cluster.brokers["a/1"].address
    for queue in queues(client)[:4]:
        end, committed = requests.get_max_offset(queue), requests.query_group_offset(GROUP, queue)
        until(lambda e=end: ask(replica, e).ext.get("offset") == str(COUNT), "messages to be copied", still_s=90)  # type: ignore[misc]
        until(lambda c=committed: ask(replica, c).ext.get("offset") == "7", "offsets to be copied", still_s=90)  # type: ignore[misc]


def test_reads_follow_the_masters_suggestion_and_offsets_are_the_replicas_while_it_is_away(
    cluster: Cluster, client: RemotingQueueClient
) -> None:
    queue = queues(client)[0]
    master, replica = cluster.brokers["a"], cluster.brokers["a/1"]

    def read_all() -> list[int]:
        reader = client.open_reader(queue, 0, message_filter=MessageFilter())
        offsets: list[int] = []

        def is_read() -> bool:
            part = reader.poll()
            if part is None:
                client.wait([reader], 500)
            else:
                offsets.extend(record.queue_offset for record in part.records)
            return reader.position >= COUNT

        until(is_read, "all messages", progress=lambda: reader.position, details=lambda: reader, pause_s=0)
        reader.close()
        return offsets

    assert read_all() == list(range(COUNT))
    assert "requests 0" not in repr(client._pool.connection(replica.address)), "its master suggested it"
    master.kill()
    try:
        until(lambda: of("a", look(client)) == [COUNT] * 4, "the replica to be asked", details=lambda: look(client))
        for kind, expected in (("min", 0), ("max", COUNT), ("time", 0)):
            assert look(client, kind) == dict.fromkeys(queues(client), expected)
        expected_offsets = dict.fromkeys(queues(client), 7)
        until(lambda: look(client, "committed", GROUP) == expected_offsets, "what was committed")
        assert (client.min_offset(queue), client.max_offset(queue)) == (0, COUNT)
        assert (client.offset_for_time(queue, 1), client.committed_offset(GROUP, queue)) == (0, 7)
        assert read_all() == list(range(COUNT))
        # The master may know what a replica does not know: no start at the end because of that.
        unknown = look(client, "committed", fresh_group())
        assert all(isinstance(each, TransportError) for each in of("a", unknown))
        assert of("b", unknown) == [None] * 4
        failed = client.commit_offsets(GROUP, dict.fromkeys(queues(client), 9))
        assert {(each.broker, "a master" in str(error)) for each, error in failed.items()} == {("a", True)}
    finally:
        master.restart()
    until(lambda: client.commit_offsets(GROUP, dict.fromkeys(queues(client), 9)) == {}, "the master to be back")
    assert look(client, "committed", GROUP) == dict.fromkeys(queues(client), 9)


def test_the_answers_are_those_of_single_questions(client: RemotingQueueClient) -> None:
    group = fresh_group()
    wanted = queues(client)
    assert client.commit_offsets(group, {queue: queue.queue_id + 5 for queue in wanted[1:]}) == {}
    assert look(client, "min") == {queue: client.min_offset(queue) for queue in wanted}
    assert look(client, "max") == {queue: client.max_offset(queue) for queue in wanted}
    assert look(client, "time") == {queue: client.offset_for_time(queue, 1) for queue in wanted}
    committed = look(client, "committed", group)
    assert committed == {queue: client.committed_offset(group, queue) for queue in wanted}
    assert list(committed.values()) == [None, 6, 7, 8, 5, 6, 7, 8]


def test_a_broker_that_hangs_is_missed_once_then_left_alone_and_asked_again_when_it_goes_on(
    cluster: Cluster, client: RemotingQueueClient
) -> None:
    group = fresh_group()
    assert client.commit_offsets(group, dict.fromkeys(queues(client), 1)) == {}
    watcher = Watcher(client, Target((TOPIC,), group), every_s=0.2, timeout_ms=1_000)
    watcher.begin()
    assert watcher.frame().is_whole
    cluster.brokers["b"].pause()
    try:
        first = look(client)
        assert of("a", first) == [COUNT] * 4
        assert all(isinstance(each, TransportError) and not isinstance(each, BrokerSilent) for each in of("b", first))
        for _ in range(3):
            later = look(client)
            assert of("a", later) == [COUNT] * 4
            assert all(isinstance(each, BrokerSilent) for each in of("b", later))
        failed = client.commit_offsets(group, dict.fromkeys(queues(client), 2))
        assert {(queue.broker, type(error)) for queue, error in failed.items()} == {("b", BrokerSilent)}
        watcher.poll()
        assert {broker.broker: broker.is_up for broker in watcher.frame().brokers} == {"a": True, "b": False}
        assert {queue.state.lag for queue in watcher.frame().queues if queue.is_away} == {COUNT - 1}, "as before"
        assert {queue.state.lag for queue in watcher.frame().queues if not queue.is_away} == {COUNT - 2}
    finally:
        cluster.brokers["b"].resume()
    until(lambda: of("b", look(client)) == [COUNT] * 4, "b to be asked again", details=lambda: look(client))
    assert of("a", look(client, "committed", group)) == [2] * 4
    assert of("b", look(client, "committed", group)) == [1] * 4
    watcher.poll()
    watcher.close()
    assert watcher.frame().is_whole


def test_a_broker_that_is_killed_holds_nobody_up_and_is_asked_again_when_it_is_back(
    cluster: Cluster, client: RemotingQueueClient
) -> None:
    cluster.brokers["b"].kill()
    try:
        for _ in range(4):
            found = look(client)
            assert of("a", found) == [COUNT] * 4
            assert all(isinstance(each, TransportError) for each in of("b", found))
    finally:
        cluster.brokers["b"].restart()
    until(lambda: of("b", look(client)) == [COUNT] * 4, "b to be asked again", details=lambda: look(client))
