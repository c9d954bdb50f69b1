"""Two name servers, two brokers and a replica, of which each dies in turn: what goes on, what waits, nothing lost."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import apache_beam as beam
import pytest

from rmqio import ReadAllFromRocketMQ, ReadFromRocketMQ, StartFrom
from rmqio.client.admin import Admin, MessageQueries
from rmqio.client.client import RemotingQueueClient
from rmqio.client.environment import Environment
from rmqio.client.producer import RemotingProducer
from rmqio.errors import TransportError
from rmqio.interfaces import OffsetQuery, QueueReader
from rmqio.local import ready as probe
from rmqio.model import Message, MessageFilter, MessageQueue, Record, SendStatus
from rmqio.options import ClientOptions
from rmqio.topics import Subscription
from tests.chaos.audit import audit_stored
from tests.chaos.writers import Kind, Writer
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import QUICK, check, running
from tests.helpers.servers.cluster import Cluster, Server
from tests.helpers.servers.listening import is_loopback, listening
from tests.helpers.waiting import at_most, until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

REPLICATED = "faults-replicated"
_TWO = {"inSyncReplicas": 2, "totalReplicas": 2, "slaveTimeout": 300}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Broker a has a replica that may be read and whose acknowledgement a send waits for; broker b has none."""
    brokers = {
        "a": {"brokerRole": "SYNC_MASTER", **_TWO},
        "a/1": {"slaveReadEnable": True, **_TWO},
        "b": {},
    }
    with Cluster(name_servers=2, brokers=brokers) as cluster:
        cluster.create_topic(REPLICATED, 1, on=["a"])  # a replica looks for new topics each 10 s
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RemotingQueueClient]:
    with contextlib.closing(RemotingQueueClient(options(cluster))) as client:
        yield client


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[RemotingProducer]:
    with RemotingProducer(options(cluster), "cluster-faults") as producer:
        yield producer


def options(cluster: Cluster, name_server: str | None = None) -> ClientOptions:
    """Impatient, and with routes that are old at once."""
    return ClientOptions(
        name_server or cluster.name_server, request_timeout_ms=1_500, retry_backoff_max_ms=500, route_refresh_ms=200
    )


def new_topic(cluster: Cluster, queues: int = 2, *on: str) -> str:
    name = f"faults-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(name, queues, on=on)
    return name


def read_some(client: RemotingQueueClient, reader: QueueReader, count: int) -> list[Record]:
    records: list[Record] = []

    def are_read() -> bool:
        if len(records) < count:
            part = reader.poll()
            if part is None:
                client.wait([reader], 200)
            else:
                assert not part.skipped
                records.extend(part.records)
        return len(records) >= count

    until(are_read, f"{count} records", progress=lambda: len(records), details=lambda: reader, pause_s=0)
    return records


def test_replication_is_served_on_the_loopback_interface_only(cluster: Cluster) -> None:
    for server in (*cluster.name_servers, *cluster.brokers.values()):
        assert all(map(is_loopback, listening(server.process.pid()))), server


def until_both_know(cluster: Cluster) -> None:
    """A name server that has been started anew learns of the brokers when they register again, each 10 s."""
    for server in cluster.name_servers:
        for key in cluster.brokers:
            until(lambda key=key, server=server: cluster.has_registered(key, server), f"{key} at {server}")  # type: ignore[misc]


def test_one_name_server_is_enough_and_which_does_not_matter(
    cluster: Cluster, client: RemotingQueueClient, producer: RemotingProducer
) -> None:
    topic = new_topic(cluster)
    queue = producer.queues(topic)[0]
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())

    def is_served(by: Server) -> None:
        """The two clients go on, and one that is made now finds its way."""
        later = new_topic(cluster)
        for each in (topic, later):
            assert len(client.queues(each)) == 4
            producer.send(Message(b"any", topic=each))
        sent = producer.send(Message(by.address.encode(), topic=topic), queue)
        with RemotingProducer(options(cluster), "new") as other:
            assert other.send(Message(b"any", topic=later)).queue.topic == later
        found = read_some(client, reader, sent.queue_offset + 1 - reader.position)
        assert found[-1].body == by.address.encode()

    first, second = cluster.name_servers
    is_served(first)
    first.kill()
    is_served(second)
    first.restart()
    # It knows no topic yet, as its answer to who knows no other shows. Asked first, it must not be believed.
    ahead = f"{first.address};{second.address}"
    with RemotingProducer(options(cluster, ahead), "new") as other:
        assert other.send(Message(b"any", topic=topic)).queue.topic == topic
    until_both_know(cluster)
    second.kill()
    is_served(first)
    second.restart()


def test_when_a_broker_dies_sends_move_and_reads_of_it_wait(cluster: Cluster) -> None:
    topic = new_topic(cluster, 2)
    kinds: tuple[Kind, ...] = ("single", "batch")
    writers = [Writer(kind, kind, topic, name_server=cluster.name_server, size=10, pause_s=0.02) for kind in kinds]
    read = ReadFromRocketMQ(topic, name_server=cluster.name_server, start=StartFrom.earliest(), options=QUICK)

    def brokers_of(writer: Writer, since: int) -> set[str]:
        return {place.queue.broker for place in list(writer.acked.values())[since:]}

    def until_each_has(count: int) -> None:
        start = [len(writer.acked) for writer in writers]
        for writer, before in zip(writers, start, strict=True):
            until(
                lambda writer=writer, before=before: len(writer.acked) >= before + count or writer.error is not None,  # type: ignore[misc]
                f"{count} more of {writer}",
                progress=lambda writer=writer: len(writer.acked),  # type: ignore[misc]
            )

    with contextlib.ExitStack() as stack, running(read, stop_after=None) as run:
        for writer in writers:
            stack.callback(writer.stop, 0)
            writer.start()
        until_each_has(100)
        assert all(brokers_of(writer, 0) == {"a", "b"} for writer in writers)
        cluster.brokers["b"].kill()
        until_each_has(20)  # what was on its way
        since = [len(writer.acked) for writer in writers]
        until_each_has(100)
        assert all(brokers_of(writer, first) == {"a"} for writer, first in zip(writers, since, strict=True))
        known = len(run.records)
        run.wait_for(known + 100)  # of the other broker
        cluster.brokers["b"].restart()
        since = [len(writer.acked) for writer in writers]
        for writer, first in zip(writers, since, strict=True):
            until(lambda writer=writer, first=first: "b" in brokers_of(writer, first), f"{writer} to use b again")  # type: ignore[misc]
        for writer in writers:
            writer.stop(30)
            assert writer.error is None
        with contextlib.closing(RemotingQueueClient(options(cluster))) as client:
            stored: dict[MessageQueue, dict[int, object]] = {queue: {} for queue in client.queues(topic)}
            for record in read_topic(client, topic):
                stored[record.queue][record.queue_offset] = record.body.decode()
        run.wait_for(sum(map(len, stored.values())))
        run.abort()
        run.has_ended.wait(at_most(10))
    audit = audit_stored(
        stored,
        {id_: place for writer in writers for id_, place in writer.acked.items()},
        tried=[f"{writer.name}-{number:08d}" for writer in writers for number in range(writer.tried)],
        unsure=set().union(*(writer.unsure for writer in writers)),
        ordered=[],
    )
    assert not audit, str(audit)
    found = check(
        (entry._replace(id=entry.id.decode()) for entry in run.entries),  # type: ignore[attr-defined]
        stored,
    )
    assert not found, str(found)


class ReadTopic(beam.PTransform[Any, Any]):
    """An endless `ReadAllFromRocketMQ` of one topic."""

    def __init__(self, topic: str, **arguments: Any) -> None:
        super().__init__()
        self._topic, self._arguments = topic, arguments

    def expand(self, pbegin: Any) -> Any:
        return pbegin | beam.Create([self._topic], reshuffle=False) | ReadAllFromRocketMQ(**self._arguments)


def test_an_endless_read_of_topics_that_arrive_waits_for_a_broker_that_hangs_and_reads_the_other(
    cluster: Cluster, producer: RemotingProducer
) -> None:
    topic = new_topic(cluster, 1)
    queues = {queue.broker: queue for queue in producer.queues(topic)}

    def send(broker: str, *numbers: int) -> None:
        for number in numbers:
            producer.send(Message(b"%s %d" % (broker.encode(), number), topic=topic), queues[broker])

    for broker in ("a", "b"):
        send(broker, 1, 2)
    read = ReadTopic(topic, name_server=cluster.name_server, start=StartFrom.earliest(), options=QUICK)
    cluster.brokers["b"].pause()
    try:
        with running(read, stop_after=6) as run:
            run.wait_for(2)
            send("a", 3, 4)
            run.wait_for(4)
            cluster.brokers["b"].resume()
    finally:
        cluster.brokers["b"].resume()
    assert [record.body.decode() for record in run.records[:4]] == ["a 1", "a 2", "a 3", "a 4"]
    assert [record.body.decode() for record in run.records[4:]] == ["b 1", "b 2"]


def test_a_send_that_the_replica_does_not_confirm_in_time_is_weakly_acknowledged_and_stored(
    cluster: Cluster, client: RemotingQueueClient, producer: RemotingProducer
) -> None:
    topic = REPLICATED
    queue = MessageQueue(topic, "a", 0)
    until_replicated(producer, topic)
    begin = client.max_offset(queue)
    replica = cluster.brokers["a/1"]
    retries = producer.statistics.retries
    replica.pause()
    try:
        one = producer.send(Message(b"one", topic=topic))
        batch = producer.send_batch([Message(b"two", topic=topic), Message(b"three", topic=topic)])
        assert producer.statistics.retries == retries  # what is stored is not sent again
    finally:
        replica.resume()
    assert {each.status for each in (one, *batch)} == {SendStatus.FLUSH_SLAVE_TIMEOUT}
    assert [each.queue_offset for each in (one, *batch)] == [begin, begin + 1, begin + 2]
    reader = client.open_reader(queue, begin, message_filter=MessageFilter())
    assert [record.body for record in read_some(client, reader, 3)] == [b"one", b"two", b"three"]
    until_replicated(producer, topic)


def until_replicated(producer: RemotingProducer, topic: str) -> None:
    """The replica has connected to its master, which name servers know, and has got all until now."""

    def has_come() -> bool:
        try:
            return producer.send(Message(b"probe", topic=topic)).status is SendStatus.OK
        except TransportError:  # no name server knows a master that has just started
            return False

    until(has_come, "the replica to keep up", details=lambda: producer.send(Message(b"probe", topic=topic)))


def knows_topic(broker: Server, topic: str) -> bool:
    return probe.call(broker.address, probe.GET_TOPIC_CONFIG, {"topic": topic}).code == probe.SUCCESS


def test_while_a_master_is_dead_its_replica_is_read_and_then_the_master_again(
    cluster: Cluster, client: RemotingQueueClient, producer: RemotingProducer
) -> None:
    topic = REPLICATED
    queue = MessageQueue(topic, "a", 0)
    master, replica = cluster.brokers["a"], cluster.brokers["a/1"]
    until(lambda: knows_topic(replica, topic), "the replica to know the topic")
    until_replicated(producer, topic)
    for number in range(50):
        producer.send(Message(b"%d" % number, topic=topic, keys=(f"{topic}-{number}",)))
    end = client.max_offset(queue)
    ahead = client.open_reader(queue, end, message_filter=MessageFilter())
    behind = client.open_reader(queue, 0, message_filter=MessageFilter())
    new_to_replica, empty = new_topic(cluster, 1, "a"), new_topic(cluster, 1, "a")
    unknown = client.open_reader(MessageQueue(new_to_replica, "a", 0), 0, message_filter=MessageFilter())
    replica.pause()
    producer.send(Message(b"not replicated", topic=topic))
    producer.send(Message(b"of a topic that is not replicated", topic=new_to_replica))
    assert read_some(client, ahead, 1)[0].body == b"not replicated"
    master.kill()
    replica.resume()
    ahead.seek(end + 1)
    try:
        known = client.max_offset(queue)
        assert known in (end, end + 1), "the replica's: the last message may have been on its way"
        (unknown_end,) = client.look_up([OffsetQuery(queue, "max", at_least=end + 2)])
        assert isinstance(unknown_end, TransportError), "for who has seen more"
        assert knows_topic(replica, topic)
        assert not knows_topic(replica, new_to_replica)
        with pytest.raises(TransportError, match="does not have topic"):
            client.max_offset(MessageQueue(empty, "a", 0))
        with Admin(options(cluster)) as admin:
            queries = MessageQueries(admin)
            assert [each.body for each in queries.by_key(topic, f"{topic}-30")] == [b"30"]
            assert (list(queries.from_replica), queries.away) == (["a"], {})
        # It gives what it has
        found = read_some(client, behind, end)
        assert [a.queue_offset + 1 for a in found[:-1]] == [b.queue_offset for b in found[1:]]
        # Messages that it has not got from its master are awaited: neither lost, nor a topic that does not exist
        for reader in (ahead, unknown):
            for _ in range(3):
                assert reader.poll() is None
                client.wait([reader], 300)
    finally:
        master.restart()
    until_replicated(producer, topic)
    producer.send(Message(b"after", topic=topic))
    assert read_some(client, unknown, 1)[0].body == b"of a topic that is not replicated"
    bodies = {b"probe", b"not replicated", b"after"}
    for reader in (ahead, behind):
        records: list[Record] = []
        while not records or records[-1].body != b"after":
            records += read_some(client, reader, 1)
        assert {record.body for record in records} <= bodies
        assert all(b.queue_offset == a.queue_offset + 1 for a, b in pairwise(records))


def test_a_look_by_pattern_goes_on_while_name_servers_hang(cluster: Cluster) -> None:
    """It works with what it knows, until they answer again. How long it waits: tests/unit/client/test_routes.py."""
    topic = new_topic(cluster, 1)
    later, ahead_s = f"{topic}-later", 0
    subscription = Subscription.of(re.compile(f"{topic}.*"))
    environment = Environment(clock=lambda: time.monotonic() + ahead_s)
    with contextlib.closing(RemotingQueueClient(options(cluster), environment)) as client:
        known = subscription.find_queues(client, missing_ok=True)
        assert {queue.topic for queue in known} == {topic}
        for server in cluster.name_servers:
            server.pause()
        try:
            for _ in range(3):
                ahead_s += 60  # routes are old, and servers that were silent are asked again
                assert subscription.find_queues(client, missing_ok=True) == known
        finally:
            for server in cluster.name_servers:
                server.resume()
        until_both_know(cluster)
        cluster.create_topic(later, 1)
        ahead_s += 60

        def topics() -> set[str]:
            return {queue.topic for queue in subscription.find_queues(client, missing_ok=True)}

        until(lambda: topics() == {topic, later}, "the topic that came later", details=topics)
