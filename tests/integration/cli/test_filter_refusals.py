"""SQL92 filters that a broker refuses: each command and a job say so at once, once, and name the filter."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from tests.helpers.client.raw_send import send_all
from tests.helpers.command_line import Tool
from tests.helpers.waiting import needed

pytestmark = pytest.mark.broker

COMMANDS = {"peek": ("peek",), "tail": ("tail",), "find": ("find", "--grep", "x")}
WRONG = "price IS NUL"


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalRocketMQ]:
    """A broker as RocketMQ's own default has it, which takes no filter."""
    with LocalRocketMQ(broker_config={"enablePropertyFilter": False}, broker_heap_mb=256) as broker, needed(broker.pid):
        yield broker


def topic_of(broker: LocalRocketMQ) -> str:
    topic = f"filter-{uuid.uuid4().hex[:10]}"
    broker.create_topic(topic, queues=2)
    send_all(broker.broker, MessageQueue(topic, broker.name, 0), [Message(b'{"a": 1}')])
    return topic


def job(folder: Path, topic: str, condition: str) -> str:
    file = folder / "job.sql"
    file.write_text(
        f"CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = '{topic}', 'format' = 'json',"
        f" 'sql' = '{condition}'); CREATE TABLE shown (a INT) WITH ('connector' = 'print');"
        " INSERT INTO shown SELECT a FROM t;"
    )
    return str(file)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_filter_that_does_not_compile(
    rocketmq: LocalRocketMQ, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name, *more = COMMANDS[command]
    rmqio = Tool(rocketmq.name_server, capsys)
    rmqio(name, topic_of(rocketmq), *more, "--sql", WRONG, status=1)
    assert rmqio.err.count("SUBSCRIPTION_PARSE_FAILED") == 1
    assert f"filter '{WRONG}' at broker '{rocketmq.name}': code 23" in rmqio.err
    assert 'Encountered " <ID> "NUL "" at line 1, column 10' in rmqio.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_broker_that_takes_no_filter(
    strict: LocalRocketMQ, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name, *more = COMMANDS[command]
    rmqio = Tool(strict.name_server, capsys)
    rmqio(name, topic_of(strict), *more, "--sql", "price > 1", status=1)
    assert rmqio.err.count("does not support") == 1
    assert f"filter 'price > 1' at broker '{strict.name}'" in rmqio.err


@pytest.mark.parametrize("more", [("--start", "earliest", "--stop", "latest"), ()], ids=["bounded", "endless"])
def test_a_job_ends_with_what_the_broker_says(
    rocketmq: LocalRocketMQ,
    strict: LocalRocketMQ,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    more: tuple[str, ...],
) -> None:
    """On the DirectRunner, also without an end."""
    rmqio = Tool(rocketmq.name_server, capsys)
    rmqio("sql", job(tmp_path, topic_of(rocketmq), WRONG), *more, status=1)
    assert rmqio.err.count("SUBSCRIPTION_PARSE_FAILED") == 1
    assert f"filter '{WRONG}' at broker '{rocketmq.name}': code 23" in rmqio.err
    rmqio = Tool(strict.name_server, capsys)
    rmqio("sql", job(tmp_path, topic_of(strict), "price > 1"), *more, status=1)
    assert rmqio.err.count("does not support") == 1
    assert f"filter 'price > 1' at broker '{strict.name}'" in rmqio.err
