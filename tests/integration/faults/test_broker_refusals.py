"""A real broker that is busy, full or read-only; topics deleted and queues taken away while they are read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import pytest

from rmqio import ReadOptions, StartFrom, StopAt
from rmqio.client.admin import Admin
from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import Connection
from rmqio.client.producer import RemotingProducer
from rmqio.errors import NoPermission, QueueNotExist, SubscriptionGroupNotExist, TopicNotExist
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.chaos.audit import audit_stored
from tests.chaos.writers import Writer
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import stored
from tests.helpers.ledgers.ledger import QUICK, Lab, Run, check, finished, new_group, running
from tests.helpers.waiting import at_most, needed, until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

UPDATE_BROKER_CONFIG, UPDATE_GROUP = 25, 200


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A broker with so small files that it needs a new one soon."""
    config = {
        "mappedFileSizeCommitLog": 1 << 17,
        "maxMessageSize": 1 << 15,
        "mappedFileSizeConsumeQueue": 200_000,
        # Else a write to a queue's index that fails loses messages that were acknowledged: 5.5.0 notes how far the
        # index goes before it writes, and takes its own second try for a repetition.
        "putConsumeQueueDataByFileChannel": False,
    }
    options = ("-XX:TieredStopAtLevel=1",)
    with LocalRocketMQ(name="moody", broker_config=config, broker_heap_mb=256, java_options=options) as broker:
        with contextlib.closing(Lab(broker)) as lab, needed(broker.pid):
            yield lab


@contextlib.contextmanager
def configured(broker: LocalRocketMQ, before: dict[str, int], meanwhile: dict[str, int]) -> Iterator[None]:
    """Properties of the broker that are other ones in the block."""

    def set_to(properties: dict[str, int]) -> None:
        body = "\n".join(f"{name}={str(value).lower()}" for name, value in properties.items()).encode()
        requests.expect_success(connection.request(Command(UPDATE_BROKER_CONFIG, {}, body), 5_000), "configuration")

    with contextlib.closing(Connection(broker.broker)) as connection:
        set_to(meanwhile)
        try:
            yield
        finally:
            set_to(before)


@contextlib.contextmanager
def writing(lab: Lab, topic: str, count: int, **changes: Any) -> Iterator[list[Writer]]:
    """Producers of batches; audited at the end: all that was acknowledged is there, once unless they know why not."""
    arguments: dict[str, Any] = {"name_server": lab.broker.name_server, "size": 20, "pause_s": 0.0}
    writers = [Writer(f"w{number}", "batch", topic, **arguments | changes) for number in range(count)]
    with contextlib.ExitStack() as stack:
        for writer in writers:
            stack.callback(writer.stop, 0)
            writer.start()
        yield writers
        for writer in writers:
            writer.stop(40)
            assert writer.error is None, writer
    until_readable(lab, topic, writers)
    stored: dict[MessageQueue, dict[int, object]] = {queue: {} for queue in lab.client.queues(topic)}
    for record in read_topic(lab.client, topic):
        stored[record.queue][record.queue_offset] = record.body.decode()
    audit = audit_stored(
        stored,
        {id_: place for writer in writers for id_, place in writer.acked.items()},
        tried=[f"{writer.name}-{number:08d}" for writer in writers for number in range(writer.tried)],
        unsure=set().union(*(writer.unsure for writer in writers)),
        ordered=[],
    )
    assert not audit, str(audit)


def stored_in(lab: Lab, topic: str) -> int:
    return sum(lab.client.max_offset(queue) for queue in lab.client.queues(topic))


def until_readable(lab: Lab, topic: str, writers: Sequence[Writer]) -> None:
    """A broker that had no room for the index of a queue takes a while to catch up."""

    def left() -> list[str]:
        ends = {queue: lab.client.max_offset(queue) for queue in lab.client.queues(topic)}
        return [id_ for each in writers for id_, place in each.acked.items() if place.offset >= ends[place.queue]]

    until(lambda: not left(), "all to be readable", progress=lambda: stored_in(lab, topic), details=left)


def until_acked(writers: Sequence[Writer], count: int) -> None:
    now = partial(acked, writers)
    until(lambda: now() >= count, f"{count} to be acknowledged", progress=now, details=lambda: writers)


def acked(writers: Sequence[Writer]) -> int:
    assert not any(writer.error for writer in writers), writers
    return sum(len(writer.acked) for writer in writers)


def retries(writers: Sequence[Writer]) -> int:
    assert not any(writer.error for writer in writers), writers
    return sum(writer.retries for writer in writers)


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_a_busy_broker_is_asked_again_and_stores_nothing_twice(lab: Lab) -> None:
    (queue,) = lab.topic(0)
    with writing(lab, queue.topic, 6) as writers:
        # Requests that have waited at all are thrown out: code 2, [TIMEOUT_CLEAN_QUEUE]
        with configured(lab.broker, {"waitTimeMillsInSendQueue": 200}, {"waitTimeMillsInSendQueue": 0}):
            until(lambda: retries(writers) >= 20, "the broker to refuse some", progress=lambda: retries(writers))
        before = acked(writers)
        until_acked(writers, before + 500)
    if not any(writer.unknown_outcomes for writer in writers):
        assert not any(writer.unsure for writer in writers)  # then the audit has found none twice


def test_a_broker_that_makes_no_groups_is_told_which_one_to_make(lab: Lab) -> None:
    (queue,) = lab.topic(3)
    pulls, group = new_group(), new_group()
    at = ClientOptions(lab.broker.name_server, pull_group=pulls)
    auto = "autoCreateSubscriptionGroup"
    with contextlib.closing(RemotingQueueClient(at)) as client, configured(lab.broker, {auto: True}, {auto: False}):
        reader = client.open_reader(queue, 0, message_filter=MessageFilter())
        with pytest.raises(SubscriptionGroupNotExist, match=rf"(?s){pulls}.*mqadmin updateSubGroup"):
            until(lambda: reader.poll() is not None, "an answer")
        create_group(lab.broker, pulls)
        fetched = client.open_reader(queue, 0, message_filter=MessageFilter())
        until(lambda: (found := fetched.poll()) is not None and len(found.records) == 3, "the messages")
        with pytest.raises(SubscriptionGroupNotExist, match=f"for group '{group}'"):
            client.commit_offset(group, queue, 2)
        create_group(lab.broker, group)
        client.commit_offset(group, queue, 2)
        assert client.committed_offset(group, queue) == 2


def create_group(broker: LocalRocketMQ, name: str) -> None:
    """Creates a group as mqadmin does."""
    body = json.dumps({"groupName": name, "consumeEnable": True}).encode()
    with contextlib.closing(Connection(broker.broker)) as connection:
        requests.expect_success(connection.request(Command(UPDATE_GROUP, {}, body), 5_000), "group")


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process's files by prlimit(2)")
def test_a_broker_that_gets_no_more_room_is_asked_again_until_it_has_some(lab: Lab) -> None:
    import resource

    (queue,) = lab.topic(0)
    pid = lab.broker.pid()
    assert pid is not None
    _, hard = limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    with writing(lab, queue.topic, 2) as writers:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        try:
            # Code 1, "create mapped file failed": what a full disk looks like before the broker notices that it is one
            until(lambda: retries(writers) >= 4, "the broker to have no room", progress=lambda: retries(writers))
            before = acked(writers)
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        until_acked(writers, before + 500)


def test_a_read_only_broker_refuses_for_good_until_it_is_writable(lab: Lab) -> None:
    ordered, plain = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("ordered", "plain"))
    lab.broker.create_topic(ordered, queues=1, order=True)
    lab.broker.create_topic(plain, queues=1)
    options = ClientOptions(lab.broker.name_server, route_refresh_ms=100)
    with RemotingProducer(options, "refused") as producer:
        queue = producer.queues(ordered)[0]
        with configured(lab.broker, {"brokerPermission": 6}, {"brokerPermission": 4}):
            with pytest.raises(NoPermission, match="sending message is forbidden"):
                producer.send(Message(b"no", topic=ordered), queue)
            assert producer.statistics.retries == 0

            def has_no_queue() -> bool:
                try:
                    return not producer.queues(plain)
                except TopicNotExist as error:
                    return "no writable queue" in str(error)

            until(has_no_queue, "the name server to know", details=lambda: producer.queues(plain))
        until(lambda: not has_no_queue(), "the name server to know again")
        for topic in (ordered, plain):
            producer.send(Message(b"yes", topic=topic))
            until(lambda topic=topic: stored_in(lab, topic) == 1, "it to be readable")  # type: ignore[misc]
            assert [record.body for record in read_topic(lab.client, topic)] == [b"yes"]


# ---- topics and queues that go while they are read ------------------------------------------------------------------


def interrupted(lab: Lab, queue: MessageQueue, meanwhile: Callable[[], object], **options: Any) -> Run:
    """An endless read that stands near the start of a queue while something happens, and then fails or is stopped."""
    has_happened = threading.Event()

    def wait() -> None:
        assert has_happened.wait(at_most(60))

    few = dataclasses.replace(ReadOptions(poll_timeout_ms=100, pull_depth=2), **options)
    read = lab.read(queue.topic, options=few)
    with running(read, steps={10: wait}) as run:
        run.wait_for(10)
        try:
            meanwhile()
        finally:
            has_happened.set()
    assert run.error is not None
    return run


def queue_with(lab: Lab, count: int, queues: int = 1) -> MessageQueue:
    """The last queue of a topic, with messages, of which a read is not given all at once."""
    *_, queue = lab.topic(*[0] * (queues - 1), 0)
    for _ in range(count // 20):
        lab.send(queue, 20, body_size=1_000)
    return queue


@pytest.mark.parametrize("policy", ["fail", "latest"])
def test_a_topic_made_anew_under_a_read_fails_it_whatever_the_policy(
    lab: Lab, policy: Literal["fail", "latest"]
) -> None:
    for _ in range(5):
        queue = queue_with(lab, 600)

        def make_anew(queue: MessageQueue = queue) -> None:
            lab.broker.delete_topic(queue.topic)
            lab.broker.create_topic(queue.topic, queues=1)
            sent = lab.sent.pop(queue)
            lab.send(queue, 5)
            lab.sent[queue] = sent  # what the read may have got

        run = interrupted(lab, queue, make_anew, on_offset_out_of_range=policy)
        count = len(run.records)
        assert 10 <= count < 600
        assert run.offsets[queue] == list(range(count))
        assert all(lab.sent[queue][entry.offset] == entry.id for entry in run.entries)
        if not isinstance(run.error, TopicNotExist):
            break  # else a pull was on its way while there was no topic
    assert f"offset {count} is not available; the broker holds [0, 5)" in str(run.error)
    assert "deleted and recreated" in str(run.error)
    # A read that begins afterwards is of the new topic
    bodies = [record.body for record in finished(lab.read(queue.topic, stop=StopAt.latest())).records]
    assert bodies == [lab.sent[queue][offset].rstrip(b".") for offset in range(5)]


def test_a_topic_deleted_under_a_read_fails_it(lab: Lab) -> None:
    queue = queue_with(lab, 600)
    run = interrupted(lab, queue, lambda: lab.broker.delete_topic(queue.topic))
    assert run.offsets[queue] == list(range(len(run.records)))
    assert "TOPIC_NOT_EXIST" in str(run.error)
    assert queue.topic in str(run.error)


def test_a_queue_taken_away_under_a_read_fails_it_and_the_next_one_reads_the_others(lab: Lab) -> None:
    queue = queue_with(lab, 600, queues=2)
    left = queue._replace(queue_id=0)
    run = interrupted(lab, queue, lambda: lab.broker.create_topic(queue.topic, queues=1))
    assert run.offsets[queue] == list(range(len(run.records)))
    assert f"pull of {queue} at {len(run.offsets[queue])}" in str(run.error)
    assert "queueId[1] is illegal" in str(run.error)
    lab.send(left, 30)
    assert finished(lab.read(queue.topic, stop=StopAt.latest())).offsets == {left: list(range(30))}


def test_queues_closed_for_writing_are_read_to_their_ends_while_sends_take_the_others(lab: Lab) -> None:
    queues = lab.topic(0, 0, 0, 0)
    topic = queues[0].topic
    with running(lab.read(topic, options=QUICK)) as run, writing(lab, topic, 2, pause_s=0.02) as writers:
        until(lambda: queues_of(writers, 0) == set(queues), "all queues to be used")
        command = requests.create_topic(topic, read_queues=4, write_queues=2, permission=6)
        with contextlib.closing(Connection(lab.broker.broker)) as connection:
            requests.expect_success(connection.request(command, 5_000), "change of the topic")

        def only_two() -> bool:
            since = acked(writers)
            until_acked(writers, since + 100)
            return queues_of(writers, since // 2) == set(queues[:2])

        until(only_two, "sends to take what is left", details=lambda: queues_of(writers, acked(writers) // 2))
        for writer in writers:
            writer.stop(30)
        until_readable(lab, topic, writers)
        run.wait_for(stored_in(lab, topic))
        stored = {queue: dict(enumerate(bodies(lab, queue))) for queue in queues}
        run.abort()
        run.has_ended.wait(at_most(10))
    findings = check(run.entries, stored)
    assert not findings, str(findings)


def test_a_batch_to_a_queue_that_was_taken_away_moves_unless_its_order_binds_it(lab: Lab) -> None:
    gone = lab.topic(0, 0)[1]
    left = gone._replace(queue_id=0)
    server = lab.broker.name_server
    with (
        RemotingProducer(ClientOptions(server, route_refresh_ms=3_600_000), "refused") as producer,
        RemotingProducer(ClientOptions(server, route_refresh_ms=1), "looks") as looking,
    ):
        producer.submit([Message(b"0")], gone).result()
        lab.broker.create_topic(gone.topic, queues=1)
        # An operator's change reaches the name server a moment later.
        until(lambda: list(looking.queues(gone.topic)) == [left], "the name server to know")
        with pytest.raises(QueueNotExist, match=r"request queueId\[1\] is illegal"):
            producer.submit([Message(b"1"), Message(b"2")], gone, ordered=True).result()
        moved = producer.submit([Message(b"3"), Message(b"4")], gone).result()
        assert {result.queue for result in moved} == {left}
        assert list(producer.queues(gone.topic)) == [left]
    with contextlib.closing(RemotingQueueClient(ClientOptions(server))) as client:
        # A broker answers a send before its queues have the messages.
        assert [record.body for record in stored(client, gone.topic, [b"3", b"4"])] == [b"3", b"4"]


def queues_of(writers: Sequence[Writer], since: int) -> set[MessageQueue]:
    """Returns the queues that each writer's messages went to, but for its first ones."""
    return {place.queue for writer in writers for place in list(writer.acked.values())[since:]}


def bodies(lab: Lab, queue: MessageQueue) -> list[bytes]:
    return [record.body for record in read_topic(lab.client, queue.topic) if record.queue == queue]


# ---- an operator's reset --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["refuse", "honour"])
def test_an_operators_reset_under_a_read_is_refused_or_honoured(
    lab: Lab, policy: Literal["refuse", "honour"], caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = lab.topic(100)
    group = new_group()
    options = dataclasses.replace(QUICK, on_group_reset=policy)
    stop_after = 151 if policy == "refuse" else None
    read = lab.read(queue.topic, consumer_group=group, options=options)
    with Admin(ClientOptions(lab.broker.name_server)) as admin, caplog.at_level(logging.WARNING, "rmqio"):
        with running(read, stop_after=stop_after) as run:
            lab.until_committed(run, group, {queue: 100})
            admin.reset_group_offset(group, queue, 30)
            lab.send(queue, 50)
            if policy == "refuse":
                lab.until_committed(run, group, {queue: 150})
                lab.send(queue, 1)
            else:
                run.has_ended.wait(at_most(30))
    if policy == "refuse":
        assert run.offsets == {queue: list(range(151))}
        assert "was reset to 30; reading continues" in caplog.text
        return
    assert f"the offset of group '{group}' was reset to 30 while it was being read" in str(run.error)
    assert lab.committed(group, queue) == [30]
    start = StartFrom.group_offsets("error")
    again = finished(lab.read(queue.topic, consumer_group=group, start=start, stop=StopAt.latest(), options=options))
    assert again.offsets == {queue: list(range(30, 150))}
