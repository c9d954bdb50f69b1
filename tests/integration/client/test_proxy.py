"""Through the remoting port of a proxy of RocketMQ 5: what works, what it refuses, and what it does not serve."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import MessageIllegal, RequestCodeNotSupported
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.ledger import new_group
from tests.helpers.servers.proxy import Proxy
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

NOT_SERVED = "a proxy of RocketMQ 5, which does not serve this"
RUN = uuid.uuid4().hex[:8]
NORMAL, DELAY, FIFO = (f"proxy-{kind}-{RUN}" for kind in ("normal", "delay", "fifo"))


@pytest.fixture(scope="module")
def proxy(rocketmq: LocalRocketMQ) -> Iterator[Proxy]:
    """Its topics have the types that the admin of 5.x gives them."""
    for topic, kind in ((NORMAL, "NORMAL"), (DELAY, "DELAY"), (FIFO, "FIFO")):
        rocketmq.create_topic(topic, queues=2, attributes={"message.type": kind})
    with Proxy(rocketmq.name_server, "DefaultCluster", NORMAL) as made:
        yield made


@pytest.fixture
def producer(proxy: Proxy) -> Iterator[RemotingProducer]:
    with RemotingProducer(ClientOptions(proxy.address), "proxy-writers") as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[RemotingQueueClient]:
    made = RemotingQueueClient(ClientOptions(proxy.address))
    yield made
    made.close()


def test_a_pipeline_writes_and_reads_through_it(
    proxy: Proxy, client: RemotingQueueClient, rocketmq: LocalRocketMQ
) -> None:
    """By offset, as at a broker: the proxy forwards each request to the broker that it names."""
    group = new_group()
    at: Any = {"name_server": proxy.address}
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([b"%d" % n for n in range(100)]) | WriteToRocketMQ(NORMAL, **at)
    with beam.Pipeline() as pipeline:
        read = ReadFromRocketMQ(NORMAL, consumer_group=group, start=StartFrom.earliest(), stop=StopAt.latest(), **at)
        bodies = pipeline | read | beam.Map(lambda record: record.body)
        assert_that(bodies, equal_to([b"%d" % n for n in range(100)]))
    queues = client.queues(NORMAL)
    ends = [client.max_offset(queue) for queue in queues]
    assert sum(ends) == 100
    behind = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    for each in (client, behind):
        assert [each.committed_offset(group, queue) for queue in queues] == ends
    behind.close()
    found = client.offset_for_time(queues[0], 1_000)
    assert found == client.min_offset(queues[0]) == 0


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        (NORMAL, {"deliver_at_ms": 5_000}),
        (DELAY, {}),
        (FIFO, {}),
        (NORMAL, {"sharding_key": "a"}),
    ],
    ids=["delayed to NORMAL", "normal to DELAY", "normal to FIFO", "ordered to NORMAL"],
)
def test_a_message_of_the_wrong_type_is_refused_with_the_reason(
    producer: RemotingProducer, topic: str, fields: dict[str, Any]
) -> None:
    if "deliver_at_ms" in fields:
        fields = {"deliver_at_ms": int(time.time() * 1000) + fields["deliver_at_ms"]}
    with pytest.raises(MessageIllegal, match=r"the expected type is [A-Z]+, but actual type is [A-Z]+") as raised:
        producer.send(Message(b"x", topic=topic, **fields))
    assert not raised.value.retriable


def test_messages_of_the_right_type_are_accepted(producer: RemotingProducer, client: RemotingQueueClient) -> None:
    producer.send(Message(b"x", topic=FIFO, sharding_key="a"))
    with pytest.raises(MessageIllegal, match="expected type is FIFO, but actual type is NORMAL"):  # whatever is in it
        producer.send_batch([Message(b"x", topic=FIFO, sharding_key="a")])
    producer.send(Message(b"x", topic=DELAY, deliver_at_ms=int(time.time() * 1000) + 1_000))


def test_an_endless_read_waits_at_the_end(client: RemotingQueueClient, producer: RemotingProducer) -> None:
    """A long poll goes through the proxy, too."""
    queue = client.queues(NORMAL)[0]
    reader = client.open_reader(queue, client.max_offset(queue), message_filter=MessageFilter())
    until(lambda: not client.wait([reader], 500) and reader.is_at_end, "the end", details=lambda: reader, pause_s=0)
    producer.send(Message(b"late", topic=NORMAL), queue)
    found: list[Record] = []

    def has_come() -> bool:
        client.wait([reader], 1_000)
        found.extend(fetched.records if (fetched := reader.poll()) is not None else [])
        return bool(found)

    until(has_come, "the late message", details=lambda: reader, pause_s=0)
    assert [record.body for record in found] == [b"late"]
    assert found[0].queue == MessageQueue(NORMAL, queue.broker, queue.queue_id)


def test_what_it_does_not_serve_is_said(client: RemotingQueueClient) -> None:
    with pytest.raises(RequestCodeNotSupported, match=NOT_SERVED):
        client.topics()


def test_a_read_of_a_pattern_is_refused(proxy: Proxy) -> None:
    read = ReadFromRocketMQ(re.compile("proxy-.*"), stop=StopAt.latest(), name_server=proxy.address)
    with pytest.raises(RuntimeError, match=NOT_SERVED), beam.Pipeline() as pipeline:
        _ = pipeline | read


def test_a_subscribe_pattern_of_plain_pyspark_is_refused(proxy: Proxy) -> None:
    pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")
    from rmqio.pyspark.read_options import read_settings
    from rmqio.pyspark.source import RocketMQReader

    given = {"nameserver": proxy.address, "subscribepattern": "proxy-.*"}
    with pytest.raises(RequestCodeNotSupported, match=NOT_SERVED):
        RocketMQReader(read_settings(given, streaming=False), ("body",)).partitions()


@pytest.mark.parametrize(
    "command",
    [
        ("topics",),
        ("topics", "create", f"{NORMAL}-new"),
        ("topics", "update", NORMAL, "--queues", "4"),
        ("topics", "delete", NORMAL, "--yes"),
        ("find", NORMAL, "--id", "F" * 32),
        ("find", NORMAL, "--key", "k"),
        ("groups",),
    ],
    ids=lambda command: " ".join(command).replace(RUN, "RUN"),  # each process of pytest-xdist has its own RUN
)
def test_commands_that_ask_for_topics_or_brokers_are_refused(
    command: tuple[str, ...], proxy: Proxy, rocketmq: LocalRocketMQ, capsys: pytest.CaptureFixture[str]
) -> None:
    rmqio = Tool(proxy.address, capsys)
    rmqio(*command, status=1)
    assert re.search(NOT_SERVED, rmqio.err)
    assert len(rmqio.err.splitlines()) == 1
    there = Tool(rocketmq.name_server, capsys)("topics").splitlines()
    assert NORMAL in there
    assert f"{NORMAL}-new" not in there


def test_commands_that_name_their_queues_are_served(
    proxy: Proxy, producer: RemotingProducer, client: RemotingQueueClient, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = client.queues(NORMAL)[0]
    result = producer.send(Message(b"found", topic=NORMAL, properties={"colour": "blue"}), queue)
    rmqio = Tool(proxy.address, capsys)
    place = ["--queue", f"{queue.broker}:{queue.queue_id}", "--offset", str(result.queue_offset)]
    (found,) = rmqio.lines("find", NORMAL, *place)
    assert found["body"] == "found"
    for how in (("--grep", "^found$"), ("--sql", "colour = 'blue'"), ("--at", str(found["store_timestamp_ms"]))):
        assert found in rmqio.lines("find", NORMAL, *how), how
