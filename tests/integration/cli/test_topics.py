"""`rmqio topics create`, `update` and `delete`, and `rmqio groups`, on a real broker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rmqio.client.admin import Admin
from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.options import ClientOptions
from tests.helpers.command_line import Tool

pytestmark = pytest.mark.broker


@pytest.fixture
def rmqio(rocketmq: LocalRocketMQ, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(rocketmq.name_server, capsys)


@pytest.fixture
def options(rocketmq: LocalRocketMQ) -> ClientOptions:
    return ClientOptions(rocketmq.name_server)


@pytest.fixture
def topic(rocketmq: LocalRocketMQ) -> str:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(name, queues=8)
    return name


@pytest.fixture
def new() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


def _config(options: ClientOptions, topic: str) -> dict[str, Any]:
    with Admin(options) as admin:
        (found,) = admin.topic_config(topic).values()
    return found


def test_a_topic_is_created_changed_and_deleted(rmqio: Tool, options: ClientOptions, new: str) -> None:
    rmqio("topics", "create", new, "--dry-run")
    assert new not in rmqio("topics").splitlines()
    out = rmqio("topics", "create", new, "--queues", "4", "--message_type", "FIFO", "--attribute", "reserve.time=5")
    assert out == f"topic {new} on broker-a: created with 4 queues, read and write, message type FIFO, reserve.time 5\n"
    assert new in rmqio("topics").splitlines()
    assert "exists already, with 4 queues" in rmqio("topics", "create", new)
    rmqio("topics", "create", new, "--queues", "8", status=1)
    assert "with 4 queues (not 8 queues)" in rmqio.err
    found = _config(options, new)
    assert found["attributes"] == {"message.type": "FIFO", "reserve.time": "5"}
    rmqio("topics", "update", new, "--queues", "8", "--permission", "r")
    found = _config(options, new)
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (8, 8, 4)
    assert found["attributes"] == {"message.type": "FIFO", "reserve.time": "5"}
    assert rmqio("topics", "delete", new, "--yes").endswith(f"deleted topic {new}\n")
    assert new not in rmqio("topics").splitlines()
    rmqio("topics", "delete", new, "--yes", status=1)


def test_order_comes_and_goes(rmqio: Tool, options: ClientOptions, new: str) -> None:
    """The broker sets it again from what name servers hold: it has to be forgotten first."""
    rmqio("topics", "create", new, "--order")
    assert _config(options, new)["order"] is True
    rmqio("topics", "update", new, "--no_order")
    assert _config(options, new)["order"] is False
    rmqio("topics", "update", new, "--order")
    rmqio("topics", "delete", new, "--yes")
    rmqio("topics", "create", new)
    assert _config(options, new)["order"] is False


def test_queues_go_when_everybody_has_read_them(rmqio: Tool, topic: str) -> None:
    rmqio("produce", topic, "x", "--sharding_key", "a")
    (sent,) = rmqio.lines("peek", topic)
    least = sent["queue_id"]
    assert least > 0, "another key is needed"
    rmqio("topics", "update", topic, "--queues", str(least), status=2)
    assert f"1 message of topic {topic} could no longer be read" in rmqio.err
    rmqio("topics", "update", topic, "--write_queues", str(least))
    assert len(rmqio.lines("peek", topic)) == 1
    rmqio("topics", "update", topic, "--queues", str(least), "--yes")
    assert rmqio("peek", topic) == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--message_type", "mixed"], 1, "MIXED message type is not supported"),  # unless the broker permits it
        (["--attribute", "no.such=1"], 1, "unsupported key: no.such; nothing has been changed"),
        (["--broker", "broker-b"], 1, "--broker broker-b: the masters are broker-a; did you mean broker-a?"),
        (["--write_queues", "5"], 2, "--write_queues 5: there are 4 queues"),
    ],
)
def test_what_the_broker_refuses(rmqio: Tool, new: str, arguments: list[str], status: int, message: str) -> None:
    rmqio("topics", "create", new, *arguments, status=status)
    assert message in rmqio.err
    assert new not in rmqio("topics").splitlines()


def test_a_system_topic_cannot_be_made(rmqio: Tool) -> None:
    rmqio("topics", "create", "TBW102", status=1)
    assert "is conflict with system topic" in rmqio.err


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_groups(rmqio: Tool, options: ClientOptions, new: str) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    rmqio("topics", "create", new, "--queues", "1")
    rmqio("produce", new, "--lines", "\n".join(map(str, range(100))))
    client = RemotingQueueClient(options)
    (queue,) = client.queues(new)
    client.commit_offset(group, queue, 40)
    client.close()
    (row,) = (line.split() for line in rmqio("groups").splitlines() if line.startswith(group))
    assert row == [group, "1", "60"]
    found = rmqio.json("groups", group)
    assert found["members"] == []
    assert found["topics"] == [{"topic": new, "queues": 1, "lag_messages": 60}]
    described = rmqio.json("describe", new, "--group", group)["total"]
    assert found["total"]["lag_messages"] == described["lag_messages"]
    names = [each["group"] for each in rmqio.json("groups")["groups"]]
    assert "TOOLS_CONSUMER" not in names
    assert "rmqio_reader" not in names
    assert {"TOOLS_CONSUMER", "rmqio_reader"} <= {each["group"] for each in rmqio.json("groups", "--all")["groups"]}
    rmqio("groups", group + "x", status=1)
    assert f"did you mean {group}?" in rmqio.err
