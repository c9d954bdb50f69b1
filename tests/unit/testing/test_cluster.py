"""The in-memory cluster: what a test arranges, and what clients then see. The semantics are in tests/contract."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest

from rmqio.errors import (
    BrokerError,
    CommitIgnored,
    LocalError,
    OffsetOutOfRange,
    RequestTimeout,
    SubscriptionParseFailed,
    SystemBusy,
    TopicNotExist,
)
from rmqio.interfaces import ClientFactory, FetchedBatch, Producer, QueueClient, QueueReader
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.testing.cluster import Failure, Operation
from tests.helpers.waiting import at_most

ALL = MessageFilter()
Q0 = MessageQueue("topic", "broker-a", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[InMemoryCluster]:
    with InMemoryCluster(clock=clock) as made:
        made.create_topic("topic", 2)
        yield made


@pytest.fixture
def client(cluster: InMemoryCluster) -> QueueClient:
    return InMemoryClientFactory(cluster.name).queue_client()


@pytest.fixture
def producer(cluster: InMemoryCluster) -> Producer:
    return InMemoryClientFactory(cluster.name).producer("group")


def _busy() -> BrokerError:
    return SystemBusy(2, None, "a test")


def _poll(reader: QueueReader) -> FetchedBatch:
    fetched = reader.poll()
    assert fetched is not None
    return fetched


def test_it_implements_the_interfaces(cluster: InMemoryCluster, client: QueueClient, producer: Producer) -> None:
    factory: ClientFactory = InMemoryClientFactory(cluster.name)
    assert isinstance(factory, ClientFactory)
    reader: QueueReader = client.open_reader(Q0, 0, message_filter=ALL)
    assert reader.queue == Q0


def test_a_factory_pickles_as_a_name_and_equals_its_copy(cluster: InMemoryCluster, producer: Producer) -> None:
    factory = InMemoryClientFactory(cluster.name)
    copy = pickle.loads(pickle.dumps(factory))
    assert copy == factory
    assert hash(copy) == hash(factory)
    producer.send(Message(b"x"), Q0)
    assert copy.queue_client().max_offset(Q0) == 1


def test_a_closed_or_forgotten_cluster_is_not_found() -> None:
    cluster = InMemoryCluster(name="short-lived")
    with pytest.raises(LocalError, match="already"):
        InMemoryCluster(name="short-lived")
    cluster.close()
    cluster.close()
    with pytest.raises(LocalError, match="no InMemoryCluster"):
        InMemoryClientFactory("short-lived").queue_client()
    forgotten = InMemoryCluster(name="short-lived")
    del forgotten
    gc.collect()
    with pytest.raises(LocalError):
        InMemoryClientFactory("short-lived").producer("group")


def test_appended_messages_are_read_as_they_were_given(cluster: InMemoryCluster, client: QueueClient) -> None:
    record = cluster.append(
        "topic", b"body", queue_id=1, tags="t", keys=("a", "b"), properties={"p": "v"}, born_ms=1, store_ms=2
    )
    assert (record.queue, record.queue_offset) == (MessageQueue("topic", "broker-a", 1), 0)
    assert (record.tags, record.keys, record.properties["p"]) == ("t", ("a", "b"), "v")
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (1, 2)
    assert _poll(client.open_reader(record.queue, 0, message_filter=ALL)).records == [record]
    assert cluster.records("topic") == [record]


def test_a_poll_hands_out_a_bounded_number(cluster: InMemoryCluster, client: QueueClient) -> None:
    for i in range(70):
        cluster.append("topic", b"%d" % i)
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    fetched = [_poll(reader) for _ in range(3)]
    assert [len(f.records) for f in fetched] == [32, 32, 6]
    assert [f.next_offset for f in fetched] == [32, 64, 70]
    assert [f.max_offset for f in fetched] == [70] * 3
    assert reader.poll() is None
    assert reader.is_at_end
    assert not reader.is_ready()


def test_a_batch_larger_than_a_poll_can_be_configured() -> None:
    with InMemoryCluster(poll_records=100) as cluster:
        cluster.create_topic("topic", 1)
        for _ in range(70):
            cluster.append("topic", b"x")
        reader = InMemoryClientFactory(cluster.name).queue_client().open_reader(Q0, 0, message_filter=ALL)
        assert len(_poll(reader).records) == 70


def test_retention_moves_the_minimum_and_a_reader_below_gets_an_error(
    cluster: InMemoryCluster, client: QueueClient
) -> None:
    for _ in range(10):
        cluster.append("topic", b"x")
    reader = client.open_reader(Q0, 2, message_filter=ALL)
    cluster.delete_before(Q0, 4)
    assert (client.min_offset(Q0), client.max_offset(Q0)) == (4, 10)
    assert reader.is_ready()
    with pytest.raises(OffsetOutOfRange) as failure:
        reader.poll()
    assert (failure.value.wanted, failure.value.minimum, failure.value.maximum) == (2, 4, 10)
    assert reader.position == 2
    reader.seek(4)
    assert _poll(reader).records[0].queue_offset == 4
    cluster.delete_before(Q0, 99)
    assert (client.min_offset(Q0), client.max_offset(Q0)) == (10, 10)
    assert cluster.append("topic", b"x").queue_offset == 10


def test_a_lost_file_is_jumped_over_and_counted(cluster: InMemoryCluster, client: QueueClient) -> None:
    for _ in range(10):
        cluster.append("topic", b"x")
    cluster.remove(Q0, 3, 6)
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    first, second = _poll(reader), _poll(reader)
    assert (first.next_offset, first.skipped) == (3, 0)
    assert ([r.queue_offset for r in second.records], second.skipped) == ([6, 7, 8, 9], 3)


def test_a_corrupt_message_comes_apart(cluster: InMemoryCluster, client: QueueClient) -> None:
    for _ in range(3):
        cluster.append("topic", b"x")
    cluster.corrupt(Q0, 1)
    fetched = _poll(client.open_reader(Q0, 0, message_filter=ALL))
    assert [r.queue_offset for r in fetched.records] == [0, 2]
    (corrupt,) = fetched.corrupt
    assert (corrupt.topic, corrupt.broker, corrupt.queue_id, corrupt.queue_offset) == ("topic", "broker-a", 0, 1)
    assert corrupt.next_offset == 2
    assert b"x" in corrupt.raw


def test_queues_can_be_added(cluster: InMemoryCluster, client: QueueClient, producer: Producer) -> None:
    assert cluster.add_queues("topic", 2) == (Q0._replace(queue_id=2), Q0._replace(queue_id=3))
    assert cluster.add_queues("topic", 1, broker="broker-b") == (MessageQueue("topic", "broker-b", 0),)
    assert len(client.queues("topic")) == len(producer.queues("topic")) == 5


def test_permissions_decide_who_sees_a_queue(cluster: InMemoryCluster, client: QueueClient, producer: Producer) -> None:
    cluster.create_topic("topic", 1, ("broker-r",), permission=4)
    cluster.create_topic("topic", 1, ("broker-w",), permission=2)
    assert {queue.broker for queue in client.queues("topic")} == {"broker-a", "broker-r"}
    assert {queue.broker for queue in producer.queues("topic")} == {"broker-a", "broker-w"}


def test_a_deleted_topic_is_gone_with_its_offsets(cluster: InMemoryCluster, client: QueueClient) -> None:
    client.commit_offset("group", Q0, 0)
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    cluster.delete_topic("topic")
    with pytest.raises(TopicNotExist):
        client.queues("topic")
    assert reader.is_ready()
    with pytest.raises(TopicNotExist):
        reader.poll()
    cluster.create_topic("topic", 2)
    assert client.committed_offset("group", Q0) is None


def test_a_reset_is_seen_blocks_commits_and_is_taken_by_a_member(cluster: InMemoryCluster, client: QueueClient) -> None:
    cluster.append("topic", b"x")
    client.commit_offset("group", Q0, 1)
    cluster.reset_group("group", Q0, 0)
    assert client.committed_offset("group", Q0) == 0
    with pytest.raises(CommitIgnored):
        client.commit_offset("group", Q0, 1)
    assert cluster.take_reset("group", Q0) == 0
    assert cluster.take_reset("group", Q0) is None
    client.commit_offset("group", Q0, 1)
    assert cluster.commits == [("group", Q0, 1)] * 2
    assert cluster.committed("group", Q0) == 1


def test_sql_means_what_a_test_says(cluster: InMemoryCluster, client: QueueClient) -> None:
    for price in (5, 15):
        cluster.append("topic", b"x", properties={"price": str(price)})
    cluster.define_sql("price > 10", lambda record: int(record.properties["price"]) > 10)
    reader = client.open_reader(Q0, 0, message_filter=MessageFilter("price > 10", sql=True))
    assert [r.queue_offset for r in _poll(reader).records] == [1]
    with pytest.raises(SubscriptionParseFailed, match="define_sql"):
        client.open_reader(Q0, 0, message_filter=MessageFilter("price > 99", sql=True))


# ---- planned failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "use"),
    [
        ("queues", lambda client, producer: client.queues("topic")),
        ("queues", lambda client, producer: producer.queues("topic")),
        ("topics", lambda client, producer: client.topics()),
        ("min_offset", lambda client, producer: client.min_offset(Q0)),
        ("max_offset", lambda client, producer: client.max_offset(Q0)),
        ("offset_for_time", lambda client, producer: client.offset_for_time(Q0, 0)),
        ("committed_offset", lambda client, producer: client.committed_offset("g", Q0)),
        ("commit_offset", lambda client, producer: client.commit_offset("g", Q0, 0)),
        ("open_reader", lambda client, producer: client.open_reader(Q0, 0, message_filter=ALL)),
        ("poll", lambda client, producer: client.open_reader(Q0, 0, message_filter=ALL).poll()),
        ("send", lambda client, producer: producer.send(Message(b"x"), Q0)),
        ("send", lambda client, producer: producer.send_batch([Message(b"x")], Q0)),
        ("send", lambda client, producer: producer.submit([Message(b"x")], Q0).result()),
    ],
)
@pytest.mark.parametrize("form", [_busy(), _busy, RequestTimeout])
def test_an_operation_fails_as_often_as_planned(
    cluster: InMemoryCluster,
    client: QueueClient,
    producer: Producer,
    operation: Operation,
    use: Callable[[QueueClient, Producer], object],
    form: Failure,
) -> None:
    cluster.fail_next(operation, form, times=2)
    for _ in range(2):
        with pytest.raises((SystemBusy, RequestTimeout)):
            use(client, producer)
    use(client, producer)


def test_a_failure_can_be_for_one_queue(cluster: InMemoryCluster, client: QueueClient) -> None:
    cluster.fail_next("max_offset", _busy, queue=Q0)
    assert client.max_offset(Q0._replace(queue_id=1)) == 0
    with pytest.raises(SystemBusy):
        client.max_offset(Q0)


def test_a_send_can_fail_after_it_was_stored(cluster: InMemoryCluster, producer: Producer) -> None:
    cluster.fail_next("send", RequestTimeout, after=True)
    pending = producer.submit([Message(b"x")], Q0)
    assert pending.is_done()
    with pytest.raises(RequestTimeout):
        pending.result()
    producer.submit([Message(b"x")], Q0).result()
    assert len(cluster.records("topic")) == 2


def test_an_unknown_operation_is_misuse(cluster: InMemoryCluster) -> None:
    with pytest.raises(LocalError, match="unknown operation"):
        cluster.fail_next("pull", _busy)  # type: ignore[arg-type]


# ---- waiting and time ------------------------------------------------------------------------------------------------


def test_with_a_manual_clock_waiting_moves_it(
    clock: ManualClock, cluster: InMemoryCluster, client: QueueClient
) -> None:
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    assert client.wait([reader], 1_500) is False
    assert clock.monotonic() == 1.5
    clock.call_later(1, lambda: cluster.append("topic", b"x"))
    assert client.wait([reader], 2_000) is True
    assert client.wait([reader], 60_000) is True  # at once
    assert clock.monotonic() == 3.5


def test_a_planned_failure_makes_a_reader_ready(cluster: InMemoryCluster, client: QueueClient) -> None:
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    assert not reader.is_ready()
    cluster.fail_next("poll", _busy)
    assert reader.is_ready()


def test_delayed_messages_come_when_the_clock_is_there(
    clock: ManualClock, cluster: InMemoryCluster, client: QueueClient, producer: Producer
) -> None:
    producer.send(Message(b"level 2", delay_level=2), Q0)
    producer.send(Message(b"at", deliver_at_ms=clock.time_ms() + 3_000), Q0)
    producer.send(Message(b"past", deliver_at_ms=1), Q0)
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    seen = []
    for _ in range(6):
        fetched = reader.poll()
        seen.append([r.body for r in fetched.records] if fetched else [])
        clock.advance(1)
    assert seen == [[b"past"], [], [], [b"at"], [], [b"level 2"]]


def test_waiting_by_the_real_clock_is_woken_by_an_append() -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("topic", 1)
        client = InMemoryClientFactory(cluster.name).queue_client()
        reader = client.open_reader(Q0, 0, message_filter=ALL)
        waits = threading.Event()
        woken = []

        def wait() -> None:
            waits.set()
            woken.append(client.wait([reader], 60_000))

        thread = threading.Thread(target=wait)
        thread.start()
        waits.wait()
        cluster.append("topic", b"x")
        thread.join(at_most(10))
        assert woken == [True]


def test_leaks_can_be_seen(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    client, producer = factory.queue_client(), factory.producer("group")
    reader = client.open_reader(Q0, 0, message_filter=ALL)
    client.open_reader(Q0, 0, message_filter=ALL)
    assert (cluster.open_clients, cluster.open_readers) == (2, 2)
    reader.close()
    reader.close()
    assert cluster.open_readers == 1
    client.close()
    client.close()
    producer.close()
    producer.close()
    assert (cluster.open_clients, cluster.open_readers) == (0, 0)
    for use in (lambda: client.max_offset(Q0), lambda: producer.queues("topic"), reader.poll):
        with pytest.raises(LocalError, match="closed"):
            use()


def test_appends_from_many_threads_are_dense(cluster: InMemoryCluster) -> None:
    def work() -> None:
        for _ in range(200):
            cluster.append("topic", b"x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = cluster.records("topic")
    assert [r.queue_offset for r in records] == list(range(800))
    assert len({r.commit_log_offset for r in records}) == 800
