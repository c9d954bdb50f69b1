"""The command line on a real broker: its numbers are the client's, reading leaves no trace, a reset takes."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from rmqio.client.admin import Admin
from rmqio.client.client import RemotingQueueClient
from rmqio.client.connection import Connection
from rmqio.local import LocalRocketMQ
from rmqio.model import MessageFilter, MessageQueue, PullStatus
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode
from tests.helpers.command_line import Tool
from tests.helpers.waiting import at_most, heard, needed, runs, until, until_found

pytestmark = pytest.mark.broker

QUEUES = 8
AWKWARD = {
    "binary": bytes(range(256)),
    "chinese": "浙江省杭州市西湖区".encode(),
    "large": b"x" * 1_000_000,
    "terminal": b"some text, and then: \x1b[31mred\x1b[0m\x07 \xc2\x9b2J",
    "json": b'{"id": 17}',
}


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[LocalRocketMQ]:
    """A broker of its own: tests compare all that it keeps, and change how it resets offsets."""
    with LocalRocketMQ(broker_heap_mb=256) as broker, needed(broker.pid):
        yield broker


@pytest.fixture
def rmqio(rocketmq: LocalRocketMQ, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(rocketmq.name_server, capsys)


@pytest.fixture(scope="module")
def options(rocketmq: LocalRocketMQ) -> ClientOptions:
    return ClientOptions(rocketmq.name_server)


@pytest.fixture(scope="module")
def client(options: ClientOptions) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(options)
    yield client
    client.close()


@pytest.fixture(scope="module")
def broker(rocketmq: LocalRocketMQ) -> Iterator[Connection]:
    connection = Connection(rocketmq.broker)
    yield connection
    connection.close()


@pytest.fixture
def topic(rocketmq: LocalRocketMQ) -> str:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(name, queues=QUEUES)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def queue(rocketmq: LocalRocketMQ, client: RemotingQueueClient, rmqio: Tool) -> MessageQueue:
    """A queue with a hundred messages, the only one of its topic."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(name, queues=1)
    rmqio("produce", name, "--lines", "\n".join(map(str, range(100))))
    queue = MessageQueue(name, rocketmq.name, 0)
    _wait_for(client, [queue], 100)
    return queue


def _wait_for(client: RemotingQueueClient, queues: list[MessageQueue], count: int) -> None:
    """Messages are visible a moment after they are acknowledged."""

    def ends() -> list[int]:
        return [client.max_offset(queue) for queue in queues]

    until(lambda: sum(ends()) >= count, f"{count} messages", details=ends)


def _command(rocketmq: LocalRocketMQ, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {NAME_SERVER_VARIABLE: rocketmq.name_server}
    command = [sys.executable, "-m", "rmqio", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


# ---- what there is ---------------------------------------------------------------------------------------------------


def test_topics(rmqio: Tool, topic: str) -> None:
    assert topic in rmqio("topics").splitlines()
    assert rmqio.json("topics", topic[:-2] + "*") == {"topics": [{"topic": topic}]}
    (found,) = rmqio.json("topics", topic, "--long")["topics"]
    assert (found["queues"], found["messages"]) == (QUEUES, 0)
    assert "SELF_TEST_TOPIC" not in rmqio("topics")
    assert "SELF_TEST_TOPIC" in rmqio("topics", "--all").splitlines()


def test_numbers_are_the_clients(rmqio: Tool, client: RemotingQueueClient, topic: str, group: str) -> None:
    for name in ("a", "b", "c", "d"):
        rmqio("produce", topic, "x", "--sharding_key", name)
    queues = list(client.queues(topic))
    _wait_for(client, queues, 4)
    full = next(queue for queue in queues if client.max_offset(queue))
    client.commit_offset(group, full, 0)
    before_ms = time.time() * 1000
    found = rmqio.json("describe", topic, "--group", group)
    assert [queue["max_offset"] for queue in found["queues"]] == [client.max_offset(queue) for queue in queues]
    assert [queue["min_offset"] for queue in found["queues"]] == [client.min_offset(queue) for queue in queues]
    assert found["total"]["messages"] == 4
    described = found["queues"][full.queue_id]
    assert (described["committed_offset"], described["lag_messages"]) == (0, client.max_offset(full))
    stored = [each["store_timestamp_ms"] for each in rmqio.lines("peek", topic, "--queue", str(full.queue_id))]
    assert described["last_timestamp_ms"] == stored[-1]
    assert described["lag_ms"] >= int(before_ms) - stored[0]
    assert {queue["committed_offset"] for queue in found["queues"]} == {0, None}
    table = rmqio("describe", topic, "--group", group)
    assert len(table.splitlines()) == QUEUES + 5
    assert "has no offset in 7 queues" in rmqio.err


def test_lag_is_none_at_the_end(rmqio: Tool, client: RemotingQueueClient, queue: MessageQueue, group: str) -> None:
    client.commit_offset(group, queue, 100)
    total = rmqio.json("describe", queue.topic, "--group", group)["total"]
    assert (total["lag_messages"], total["lag_ms"]) == (0, 0)
    client.commit_offset(group, queue, 120)
    assert rmqio.json("offsets", "show", queue.topic, "--group", group)["total"]["lag_messages"] == 0
    assert "lies 20 past the queue's end" in rmqio.err


def test_describe_shows_again_until_interrupted(rocketmq: LocalRocketMQ, rmqio: Tool, topic: str) -> None:
    with _command(rocketmq, "describe", topic, "--watch=0.2", "--json") as process:
        assert process.stderr is not None
        shown, alive = heard(process.stdout), [runs(process)]

        def counts() -> list[int]:
            return sorted({json.loads(line)["total"]["messages"] for line in shown})

        until_found(counts, [0], alive=alive)
        rmqio("produce", topic, "x")
        until_found(counts, [0, 1], alive=alive)
        assert counts() == [0, 1]
        process.send_signal(signal.SIGINT)
        assert process.wait(at_most(30)) == 130
        assert re.fullmatch(rb"rmqio: ended by Ctrl-C, shown \d+ times?\n", process.stderr.read())


# ---- messages --------------------------------------------------------------------------------------------------------


def test_awkward_messages_go_through_unchanged(rocketmq: LocalRocketMQ, rmqio: Tool, topic: str) -> None:
    for name, body in AWKWARD.items():
        more = ("--tags", name, "--keys", "", "--property", "city=Zürich 杭州", "--sharding_key", "one")
        with _command(rocketmq, "produce", topic, "-", *more, stdin=subprocess.PIPE) as process:
            _, err = process.communicate(body, timeout=at_most(30))
            assert process.returncode == 0, err
    found = rmqio.lines("peek", topic)
    bodies = [
        base64.b64decode(each["body_base64"]) if "body_base64" in each else each["body"].encode() for each in found
    ]
    assert dict(zip([each["tags"] for each in found], bodies, strict=True)) == AWKWARD
    assert {each["properties"]["city"] for each in found} == {"Zürich 杭州"}
    assert [each["queue_offset"] for each in found] == [0, 1, 2, 3, 4]
    assert [each["tags"] for each in rmqio.lines("peek", topic, "--tags", "json || large")] == ["large", "json"]
    assert [each["tags"] for each in rmqio.lines("peek", topic, "--sql", "TAGS = 'json'")] == ["json"]
    text = rmqio("peek", topic)
    assert "\n  | 浙江省杭州市西湖区\n" in text
    assert "\n  | some text, and then: \\x1b[31mred\\x1b[0m\\x07 \\x9b2J\n" in text
    assert "\x1b" not in text
    assert "\n  | ... 999,000 more bytes (--max_bytes 0 shows them)\n" in text
    assert "\n  body      binary, 256 bytes\n" in text


def test_where_to_look(rmqio: Tool, queue: MessageQueue) -> None:
    def bodies(*arguments: str) -> list[str]:
        return [each["body"] for each in rmqio.lines("peek", queue.topic, *arguments)]

    assert bodies("-n", "3") == ["97", "98", "99"]
    assert bodies("-n", "3", "--from", "earliest") == ["0", "1", "2"]
    assert bodies("-n", "2", "--offset", "50") == ["50", "51"]
    assert bodies("-n", "200", "--from", "1h") == [str(number) for number in range(100)]
    assert bodies("--offset", "100") == []
    assert "no message there" in rmqio.err
    rmqio("peek", queue.topic, "--offset", "101", status=1)
    assert "it holds 0 to 99, and 100 is its end" in rmqio.err


def test_tail_shows_what_comes_until_interrupted(rocketmq: LocalRocketMQ, rmqio: Tool, topic: str) -> None:
    with _command(rocketmq, "tail", topic, "--json") as process:
        assert process.stderr is not None
        shown, alive = heard(process.stdout), [runs(process)]
        assert b"following 8 queues" in process.stderr.readline()
        for number in range(3):
            rmqio("produce", topic, f"new {number}")
            bodies = [f"new {each}" for each in range(number + 1)]
            until_found(lambda: [json.loads(line)["body"] for line in shown], bodies, alive=alive)
            assert [json.loads(line)["body"] for line in shown] == bodies
        process.send_signal(signal.SIGINT)
        assert process.wait(at_most(30)) == 130
        assert process.stderr.read() == b""
    assert [each["body"] for each in rmqio.lines("tail", topic, "--from", "earliest", "-n", "2")] == ["new 0", "new 1"]


def test_lines_from_standard_input_are_batched(
    rocketmq: LocalRocketMQ, rmqio: Tool, client: RemotingQueueClient, topic: str
) -> None:
    lines = [f"line {number}".encode() for number in range(3_000)]
    with _command(rocketmq, "produce", topic, "--lines", "-", "--json", stdin=subprocess.PIPE) as process:
        out, err = process.communicate(b"\n".join(lines) + b"\n\n", timeout=at_most(30))
    assert process.returncode == 0, err
    assert b"1 empty line left out" in err
    sent = [json.loads(line) for line in out.splitlines()]
    assert len({(each["queue_id"], each["queue_offset"]) for each in sent}) == 3_000
    _wait_for(client, list(client.queues(topic)), 3_000)
    found = rmqio.lines("peek", topic, "-n", "5000")
    assert sorted(each["body"].encode() for each in found) == sorted(lines)
    assert {each["message_id"] for each in found} == {each["message_id"] for each in sent}


def test_delayed_messages(rmqio: Tool, topic: str) -> None:
    (sent,) = rmqio.lines("produce", topic, "later", "--delay_level", "1")
    assert sent["queue_offset"] is None  # where it waits is no place in the topic
    rmqio("produce", topic, "much later", "--deliver_at", str(int(time.time() * 1000) + 3_600_000))
    found = rmqio.lines("tail", topic, "--from", "earliest", "-n", "1")
    assert [each["body"] for each in found] == ["later"]


def test_a_closed_pipe_is_no_failure_of_a_reader(rocketmq: LocalRocketMQ, queue: MessageQueue) -> None:
    for arguments, status in (
        (("peek", queue.topic, "--json", "-n", "100"), 0),
        (("produce", queue.topic, "x"), 1),
    ):
        process = _command(rocketmq, *arguments)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(at_most(30)) == status
        err = process.stderr.read()
        process.stderr.close()
        assert err == b"" if status == 0 else b"standard output was closed" in err


# ---- offsets ---------------------------------------------------------------------------------------------------------


def _everything(broker: Connection) -> tuple[Any, ...]:
    """All offsets, groups and topics that the broker keeps, without the private group of our pulls."""
    bodies = [broker.request(Command(code), 5_000).body for code in (43, 201, 21)]
    offsets, groups, topics = (json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body)) for body in bodies)
    private = ClientOptions("h:1").pull_group
    groups["subscriptionGroupTable"].pop(private, None)
    pulled = {key for key in offsets["pullOffsetTable"] if not key.endswith(f"@{private}")}
    return offsets["offsetTable"], offsets.get("resetOffsetTable"), pulled, groups["subscriptionGroupTable"], topics


def test_reading_leaves_no_trace(
    rmqio: Tool, client: RemotingQueueClient, broker: Connection, queue: MessageQueue, group: str
) -> None:
    client.commit_offset(group, queue, 40)
    before = _everything(broker)
    name = queue.topic
    rmqio("topics", "--all")
    rmqio("describe", name)
    rmqio("describe", name, "--group", group)
    rmqio("describe", name, "--group", group + "x", status=1)
    assert f"did you mean {group}?" in rmqio.err
    rmqio("peek", name, "--tags", "none")
    rmqio("peek", name, "--sql", "a = 1")
    rmqio("tail", name, "--from", "earliest", "-n", "5")
    rmqio("offsets", "show", name, "--group", group)
    rmqio("groups", "--long")
    rmqio("groups", group)
    rmqio("groups", group + "x", status=1)
    rmqio("topics", "create", name, "--dry_run")
    rmqio("topics", "update", name, "--queues", "3", "--dry_run")
    rmqio("topics", "delete", name, "--dry_run")
    for to in ("earliest", "latest", "7", "1h"):
        rmqio("offsets", "reset", name, "--group", group, "--to", to)
        assert "--execute" in rmqio("offsets", "reset", name, "--group", group, "--to", to, "--dry-run")
    rmqio("offsets", "reset", name, "--group", group + "x", "--to", "earliest", status=1)
    rmqio("offsets", "reset", name, "--group", group + "x", "--to", "earliest", "--new-group")
    assert _everything(broker) == before
    client.commit_offset(group, queue, 41)
    assert _everything(broker) != before


def _offset_as_java_asks(broker: Connection, group: str, queue: MessageQueue) -> int:
    ext = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id)}
    answer = broker.request(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext), 5_000)
    assert answer.code == 0, answer.remark
    return int(answer.ext["offset"])


def _told_at_a_pull(broker: Connection, group: str, queue: MessageQueue, offset: int) -> int | None:
    """Returns the offset that a member that pulls is sent to; None: it just gets its messages."""
    command = requests.pull(group, queue, offset, max_messages=1, message_filter=MessageFilter())
    result = requests.parse_pull(broker.request(command, 10_000), queue, offset)
    return result.next_offset if result.status is PullStatus.OFFSET_ILLEGAL else None


def test_with_nobody_online_it_is_a_commit(
    rmqio: Tool, client: RemotingQueueClient, broker: Connection, queue: MessageQueue, group: str
) -> None:
    client.commit_offset(group, queue, 40)
    reset = ("offsets", "reset", queue.topic, "--group", group, "--execute")
    for to, expected in (("earliest", 0), ("latest", 100), ("17", 17), ("1h", 0), ("timestamp:9999999999999", 100)):
        found = rmqio.json(*reset, "--to", to)
        assert (found["method"], found["executed"]) == ("commit", True)
        assert [each["offset_now"] for each in found["queues"]] == [expected]
        assert _offset_as_java_asks(broker, group, queue) == expected
        assert _told_at_a_pull(broker, group, queue, expected) is None
    assert "100 messages again" in rmqio(*reset, "--to", "earliest")
    assert "Nothing to change" in rmqio(*reset, "--to", "earliest")
    rmqio(*reset, "--to", "101", status=1)
    assert _offset_as_java_asks(broker, group, queue) == 0


def test_a_new_group_needs_to_be_said(rmqio: Tool, broker: Connection, queue: MessageQueue, group: str) -> None:
    reset = ("offsets", "reset", queue.topic, "--group", group, "--to", "60", "--execute")
    rmqio(*reset, status=1)
    assert "--new_group" in rmqio.err
    rmqio(*reset, "--new-group")
    assert _offset_as_java_asks(broker, group, queue) == 60


@pytest.fixture
def member(rocketmq: LocalRocketMQ, queue: MessageQueue, group: str) -> Iterator[Connection]:
    """A consumer as Java's, as far as the broker can see."""
    subscription = {
        "topic": queue.topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {
        "clientID": "member-1", "producerDataSet": [], "consumerDataSet": [consumer],
        "heartbeatFingerprint": 0, "withoutSub": False,
    }  # fmt: skip
    connection = Connection(rocketmq.broker)
    assert connection.request(Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode()), 5_000).code == 0
    yield connection
    connection.close()


def test_a_member_that_is_online_is_told(
    rmqio: Tool, client: RemotingQueueClient, member: Connection, queue: MessageQueue, group: str
) -> None:
    client.commit_offset(group, queue, 40)
    assert "1 member online: member-1" in rmqio("offsets", "show", queue.topic, "--group", group)
    found = rmqio.json("offsets", "reset", queue.topic, "--group", group, "--to", "5", "--execute")
    assert (found["method"], found["members"], found["queues"][0]["offset_now"]) == ("reset", ["member-1"], 5)
    # A commit of the messages that it has in memory does no harm, and its next pull sends it back.
    member.request(requests.commit_group_offset(group, queue, 41), 5_000)
    assert _offset_as_java_asks(member, group, queue) == 5
    assert _told_at_a_pull(member, group, queue, 41) == 5
    assert _told_at_a_pull(member, group, queue, 5) is None


def test_a_commit_that_a_pending_reset_swallows_replaces_it(
    rmqio: Tool,
    client: RemotingQueueClient,
    options: ClientOptions,
    broker: Connection,
    queue: MessageQueue,
    group: str,
) -> None:
    client.commit_offset(group, queue, 40)
    with Admin(options) as admin:
        admin.reset_group_offset(group, queue, 10)
    out = rmqio("offsets", "reset", queue.topic, "--group", group, "--to", "20", "--execute")
    assert "1 queue set by RocketMQ's reset" in out
    assert "is pending until a member" in rmqio.err
    assert _told_at_a_pull(broker, group, queue, 40) == 20


def test_a_broker_that_would_reset_every_queue_to_its_end_is_not_asked_to(
    rmqio: Tool, client: RemotingQueueClient, member: Connection, queue: MessageQueue, group: str
) -> None:
    client.commit_offset(group, queue, 40)
    member.request(Command(25, body=b"useServerSideResetOffset=false\n"), 5_000)  # UPDATE_BROKER_CONFIG
    try:
        rmqio("offsets", "reset", queue.topic, "--group", group, "--to", "5", "--execute", status=1)
    finally:
        member.request(Command(25, body=b"useServerSideResetOffset=true\n"), 5_000)
    assert "cannot reset one queue" in rmqio.err
    assert _offset_as_java_asks(member, group, queue) == 40
