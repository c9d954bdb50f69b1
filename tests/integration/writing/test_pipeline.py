"""`WriteToRocketMQ` on a real broker: what arrives is what was written."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions, WriteOptions
from rmqio.topics import queue_for_key
from rmqio.transforms.write import WriteToRocketMQ
from rmqio.transforms.writing.elements import TopicFromFields
from tests.helpers.client.raw_send import stored

pytestmark = pytest.mark.broker

_numbers = itertools.count()


@pytest.fixture
def topic(rocketmq: LocalRocketMQ) -> str:
    name = f"write-{next(_numbers)}"
    rocketmq.create_topic(name, queues=4)
    return name


@pytest.fixture
def client(rocketmq: LocalRocketMQ) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    yield client
    client.close()


def write(rocketmq: LocalRocketMQ, elements: list[Any], topic: str | None, **arguments: Any) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create(elements) | WriteToRocketMQ(topic, name_server=rocketmq.name_server, **arguments)


@pytest.mark.parametrize(
    "options",
    [
        WriteOptions(),
        WriteOptions(asynchronous=True, max_batch_messages=50, max_in_flight=4),
        WriteOptions(batch_flush=False),
        WriteOptions(batch_flush=False, asynchronous=True),
        WriteOptions(max_batch_bytes=2_000),
        WriteOptions(max_batch_bytes=2_000, max_total_bytes=2_000, max_wait_ms=1),
    ],
    ids=["batches", "asynchronous", "one by one", "one by one asynchronous", "small batches", "short waits"],
)
def test_every_way_of_sending_delivers_each_element_once(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str, options: WriteOptions
) -> None:
    bodies = [b"%05d" % n for n in range(1_000)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline | beam.Create(bodies) | WriteToRocketMQ(topic, name_server=rocketmq.name_server, options=options)
        )
        where = result.sent | beam.Map(lambda r: (r.queue.queue_id, r.queue_offset, r.message_id))
        ids = where | beam.combiners.ToList()
        assert_that(ids | beam.Map(lambda w: len(set(w))), equal_to([1_000]))
        assert_that(result.failed, equal_to([]), label="failed")
    records = stored(client, topic, bodies)
    assert sorted(record.body for record in records) == bodies
    assert len({record.message_id for record in records}) == 1_000
    assert all(record.get_property("UNIQ_KEY") for record in records)


def test_tags_keys_and_properties_arrive(rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str) -> None:
    write(rocketmq, [Message(b"b", tags="red", keys=["k1", "k2"], properties={"naïve": "né \U0001f600"})], topic)
    (record,) = stored(client, topic, [b"b"])
    assert (record.tags, record.keys, record.get_property("naïve")) == ("red", ("k1", "k2"), "né \U0001f600")


def test_sharding_keys_keep_queue_and_order(rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str) -> None:
    messages = [Message(b"%d" % n, sharding_key=f"key-{n % 13}") for n in range(2_000)]
    write(rocketmq, messages, topic, options=WriteOptions(asynchronous=True, max_batch_messages=20))
    queues = client.queues(topic)
    seen: dict[str, list[int]] = {}
    for record in stored(client, topic, [each.body for each in messages]):
        assert record.sharding_key is not None
        assert record.queue == queue_for_key(queues, record.sharding_key)
        seen.setdefault(record.sharding_key, []).append(int(record.body))
    assert {key: sorted(numbers) for key, numbers in seen.items()} == seen
    assert sum(map(len, seen.values())) == 2_000


def test_delayed_messages_arrive_late(rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str) -> None:
    begin_ms = time.time() * 1000
    messages = [
        Message(b"level", delay_level=1),
        Message(b"at", deliver_at_ms=round(begin_ms) + 2_000),
        Message(b"now"),
    ]
    write(rocketmq, messages, topic)
    found = stored(client, topic, [each.body for each in messages])
    after_ms = {record.body: record.store_timestamp_ms - begin_ms for record in found}
    assert after_ms[b"level"] >= 900
    assert after_ms[b"at"] >= 900  # the timer's precision is a second, and it rounds down
    assert after_ms[b"now"] < min(after_ms[b"level"], after_ms[b"at"])


def test_what_the_broker_refuses_fails_and_the_rest_arrives(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str
) -> None:
    elements = [
        Message(b"first"),
        Message(b"too late", deliver_at_ms=round(time.time() * 1000) + 30 * 86_400_000),  # refused by the broker
        Message(b"nowhere", topic="no-such-topic"),
        Message(b"x" * (4 * 1024 * 1024 + 1)),
        Message(b"inner", properties={"INNER_NUM": "1"}),
        Message(b""),
        {"not": "writable"},
        Message(b"last"),
    ]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | beam.Create(elements) | WriteToRocketMQ(topic, name_server=rocketmq.name_server)
        failed = result.failed | beam.Map(lambda f: ((f.message.body[:8] if f.message else None), f.error))
        assert_that(
            failed,
            equal_to(
                [
                    (b"too late", "MessageIllegal"),
                    (b"nowhere", "TopicNotExist"),
                    (b"x" * 8, "LocalError"),
                    (b"inner", "LocalError"),
                    (b"", "LocalError"),
                    (None, "SerdeError"),
                ]
            ),
        )
        assert_that(result.sent | beam.combiners.Count.Globally(), equal_to([2]), label="sent")
    left = [b"first", b"last"]
    assert sorted(record.body for record in stored(client, topic, left)) == left


def test_the_largest_message_arrives(rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str) -> None:
    body = b"x" * (4 * 1024 * 1024)
    write(rocketmq, [body, b"small"], topic)
    assert sorted(len(record.body) for record in stored(client, topic, [body, b"small"])) == [5, len(body)]


def test_selector_sends_to_several_topics(rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str) -> None:
    rocketmq.create_topic(topic + "-other", queues=1)
    elements = [{"to": topic, "tag": "a"}, {"to": topic + "-other", "tag": "b"}, {"tag": "c"}]
    write(
        rocketmq,
        elements,
        None,
        selector=TopicFromFields("to", "tag", default_topic=topic),
        serializer=lambda element: Message(element["tag"].encode()),
    )
    assert sorted(record.tags or "" for record in stored(client, topic, [b"a", b"c"])) == ["a", "c"]
    assert [record.tags for record in stored(client, topic + "-other", [b"b"])] == ["b"]


def test_records_written_twice_carry_the_same_ids(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient, topic: str
) -> None:
    bodies = [b"%d" % n for n in range(10)]
    write(rocketmq, [Message(body, tags="t", keys=["k"], properties={"mine": "1"}) for body in bodies], topic)
    originals = stored(client, topic, bodies)
    rocketmq.create_topic(topic + "-copy", queues=2)
    for _ in range(2):
        write(rocketmq, originals, topic + "-copy")
    copies = stored(client, topic + "-copy", bodies * 2)
    assert len({copy.message_id for copy in copies}) == 10
    assert not {copy.message_id for copy in copies} & {original.message_id for original in originals}
    assert {(c.tags, c.keys, c.get_property("mine")) for c in copies} == {("t", ("k",), "1")}
