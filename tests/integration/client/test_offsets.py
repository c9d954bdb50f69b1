"""The queue client against a real broker: offsets, group offsets, and their traps."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from rmqio.client.admin import Admin
from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import Connection
from rmqio.errors import CommitIgnored, LocalError, TopicNotExist, TransportError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue, PullStatus
from rmqio.options import ClientOptions
from rmqio.wire import requests
from tests.helpers.client.raw_send import read_to, records_of, send_all, send_one
from tests.helpers.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
def options(rocketmq: LocalRocketMQ) -> ClientOptions:
    return ClientOptions(rocketmq.name_server)


@pytest.fixture
def client(options: ClientOptions) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(options)
    yield client
    client.close()


@pytest.fixture
def admin(options: ClientOptions) -> Iterator[Admin]:
    with Admin(options) as admin:
        yield admin


@pytest.fixture
def queue(rocketmq: LocalRocketMQ) -> MessageQueue:
    topic = f"client-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(topic, queues=1)
    return MessageQueue(topic, rocketmq.name, 0)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def test_minimum_and_maximum(rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue) -> None:
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 0)
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(70)))
    until(lambda: client.max_offset(queue) >= 70, "messages to be visible, shortly after the answer to the send")
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 70)


def test_offset_for_time(rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue) -> None:
    for n in range(3):
        send_one(rocketmq.broker, queue, b"%d" % n)
        time.sleep(0.02)
    stored = [record.store_timestamp_ms for record in records_of(read_to(client, queue, 0, 3))]
    assert [client.offset_for_time(queue, t) for t in stored] == [0, 1, 2]
    assert client.offset_for_time(queue, stored[1] + 1) == 2
    assert client.offset_for_time(queue, stored[2] + 1) == 3  # behind the newest: the maximum offset
    assert client.offset_for_time(queue, 0) == 0


@pytest.mark.parametrize("ask", ["min_offset", "max_offset"])
def test_offset_of_an_unknown_topic_or_queue_raises_where_the_broker_says_zero(
    client: RemotingQueueClient, queue: MessageQueue, ask: str
) -> None:
    with pytest.raises(TopicNotExist):
        getattr(client, ask)(queue._replace(topic="no-such-topic"))
    with pytest.raises(LocalError, match="does not exist"):
        getattr(client, ask)(queue._replace(queue_id=1))
    with pytest.raises(TransportError, match="no name server knows broker 'nobody'"):
        getattr(client, ask)(queue._replace(broker="nobody"))


def test_offset_for_time_of_an_unknown_queue_raises(client: RemotingQueueClient, queue: MessageQueue) -> None:
    with pytest.raises(LocalError, match="does not exist"):
        client.offset_for_time(queue._replace(queue_id=1), 0)


def test_maximum_of_a_topic_deleted_behind_our_back_raises(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    assert client.max_offset(queue) == 0
    rocketmq.delete_topic(queue.topic)
    with pytest.raises(TopicNotExist):
        client.max_offset(queue)


def test_queue_added_later_is_found_although_the_route_is_held(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue
) -> None:
    assert len(client.queues(queue.topic)) == 1
    rocketmq.create_topic(queue.topic, queues=2)
    assert client.max_offset(queue._replace(queue_id=1)) == 0


def test_group_that_nobody_knows_has_no_offset(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue, group: str
) -> None:
    send_one(rocketmq.broker, queue, b"x")  # with message 0 in memory the broker is tempted to say 0
    assert client.committed_offset(group, queue) is None


def test_commit_for_a_group_that_the_broker_does_not_know_yet(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, queue: MessageQueue, group: str
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(9)))
    client.commit_offset(group, queue, 7)
    assert client.committed_offset(group, queue) == 7
    client.commit_offset(group, queue, 8)
    assert client.committed_offset(group, queue) == 8


def test_commit_of_a_negative_offset_or_unknown_queue_is_refused(
    client: RemotingQueueClient, queue: MessageQueue, group: str
) -> None:
    with pytest.raises(LocalError, match="negative"):
        client.commit_offset(group, queue, -1)
    with pytest.raises(LocalError, match="does not exist"):
        client.commit_offset(group, queue._replace(queue_id=4), 1)


def test_commit_ignored_while_a_reset_is_pending_raises_and_the_reset_survives_us(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, admin: Admin, queue: MessageQueue, group: str
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(50)))
    client.commit_offset(group, queue, 40)
    admin.reset_group_offset(group, queue, 10)
    with pytest.raises(CommitIgnored) as caught:
        client.commit_offset(group, queue, 41)
    assert (caught.value.group, caught.value.queue, caught.value.offset) == (group, queue, 41)
    assert client.committed_offset(group, queue) == 10
    # Reading goes under another group, so it neither sees the reset nor takes it from the group's members.
    assert len(records_of(read_to(client, queue, 0, 50))) == 50
    assert _first_pull(rocketmq, group, queue) == 10
    client.commit_offset(group, queue, 42)
    assert client.committed_offset(group, queue) == 42


def test_registering_a_group_takes_no_reset(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, admin: Admin, queue: MessageQueue, group: str
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(5)))
    client.commit_offset(group, queue, 4)
    admin.reset_group_offset(group, queue, 2)
    client._register_group(group, queue)  # as it happens when the broker has lost the group in between
    assert _first_pull(rocketmq, group, queue) == 2


def test_reset_of_the_group_that_we_pull_under_does_not_move_readers(
    rocketmq: LocalRocketMQ, options: ClientOptions, client: RemotingQueueClient, admin: Admin, queue: MessageQueue
) -> None:
    send_all(rocketmq.broker, queue, (Message(b"x") for _ in range(5)))
    read_to(client, queue, 0, 5)
    admin.reset_group_offset(options.pull_group, queue, 0)
    assert [record.queue_offset for record in records_of(read_to(client, queue, 3, 5))] == [3, 4]


def _first_pull(rocketmq: LocalRocketMQ, group: str, queue: MessageQueue) -> int | None:
    """Returns the offset at which the group's next member is told to go on; None: nothing special."""
    connection = Connection(rocketmq.broker)
    try:
        command = requests.pull(group, queue, 0, max_messages=1, message_filter=MessageFilter())
        result = requests.parse_pull(connection.request(command, 10_000), queue, 0)
    finally:
        connection.close()
    return result.next_offset if result.status is PullStatus.OFFSET_ILLEGAL else None


def test_admin_creates_changes_shows_and_deletes_topics(client: RemotingQueueClient, admin: Admin) -> None:
    topic = f"admin-{uuid.uuid4().hex[:12]}"
    admin.create_topic(topic, queues=2, attributes={"message.type": "DELAY"})
    assert len(client.queues(topic)) == 2
    (config,) = admin.topic_config(topic).values()
    assert config["readQueueNums"] == 2
    assert config["attributes"] == {"message.type": "DELAY"}
    admin.create_topic(topic, queues=5)
    (config,) = admin.topic_config(topic).values()
    assert config["readQueueNums"] == 5
    admin.delete_topic(topic)
    with pytest.raises(TopicNotExist):
        admin.topic_config(topic)
    admin.delete_topic(topic)
