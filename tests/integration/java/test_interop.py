"""Messages exchanged with Java's official client, both ways, every field compared."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, SendResult, SendStatus
from rmqio.options import ClientOptions
from rmqio.topics import queue_for_key
from tests.helpers.peers.interop import JavaClient, given, java_client, read, same_for_both

pytestmark = pytest.mark.broker

QUEUES = 4
TEXT = {"city": "Zürich", "emoji": "\U0001f680 go", "equals": "a=b;c", "number": "1"}


@pytest.fixture(scope="module")
def java(rocketmq: LocalRocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with java_client(rocketmq.name_server, tmp_path_factory.mktemp("interop")) as client:
        yield client


@pytest.fixture(scope="module")
def factory(rocketmq: LocalRocketMQ) -> RemotingClientFactory:
    return RemotingClientFactory(ClientOptions(name_servers=rocketmq.name_server))


@pytest.fixture
def topic(rocketmq: LocalRocketMQ, request: pytest.FixtureRequest) -> str:
    name = "interop_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:80]
    rocketmq.create_topic(name, queues=QUEUES)
    return name


def test_a_message_from_java_with_all_it_can_carry_reads_alike(
    java: JavaClient, factory: RemotingClientFactory, topic: str
) -> None:
    message = given(b"\x00\xff body", tags="tag-ä", keys=["k1", "k2"], flag=7, properties=TEXT, shardingKey="s")
    (sent,) = java.send(topic, [message])
    (record,) = same_for_both(java, factory, topic, 1)
    assert (record.body, record.tags, record.keys, record.flag) == (b"\x00\xff body", "tag-ä", ("k1", "k2"), 7)
    assert record.sharding_key == "s"
    assert record.properties.items() >= TEXT.items()
    assert (record.message_id, record.offset_message_id) == (sent["msgId"], sent["offsetMsgId"])
    assert (record.queue_id, record.queue_offset) == (sent["queueId"], sent["queueOffset"])


def test_a_batch_from_java_reads_alike(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    messages = [given(b"m%d" % i, tags=f"t{i % 3}", keys=[f"k{i}"], properties={"i": str(i)}) for i in range(100)]
    (sent,) = java.send(topic, messages, "batch")
    records = same_for_both(java, factory, topic, 100)
    assert [r.body for r in records] == [b"m%d" % i for i in range(100)]
    assert ",".join(r.message_id for r in records) == sent["msgId"]
    assert ",".join(r.offset_message_id for r in records) == sent["offsetMsgId"]


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_what_java_compressed_reads_alike(
    java: JavaClient, factory: RemotingClientFactory, topic: str, compression: str
) -> None:
    body = b"compress me " * 1000
    java.send(topic, [given(body, tags="big"), given(b"small")], compression=compression)
    records = same_for_both(java, factory, topic, 2)
    assert sorted(r.body for r in records) == sorted([body, b"small"])
    assert min(r.stored_size for r in records if r.body == body) < len(body)


def test_a_delayed_message_from_java_reads_alike(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    java.send(topic, [given(b"later", delayLevel=1, keys=["d"])])
    (record,) = same_for_both(java, factory, topic, 1)
    assert record.store_timestamp_ms - record.born_timestamp_ms >= 900


def test_what_java_sent_by_key_stays_in_order(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    java.send(topic, [given(b"%d" % i, shardingKey=f"key-{i % 5}") for i in range(50)], "by_key")
    records = same_for_both(java, factory, topic, 50)
    client = factory.queue_client()
    queues = client.queues(topic)
    client.close()
    for key in {r.sharding_key for r in records}:
        assert key is not None
        of_key = [r for r in records if r.sharding_key == key]
        assert {r.queue for r in of_key} == {queue_for_key(queues, key)}
        assert [int(r.body) for r in of_key] == sorted(int(r.body) for r in of_key)


def stored_ids(results: Sequence[SendResult]) -> list[tuple[Any, ...]]:
    assert all(result.status is SendStatus.OK for result in results)
    return sorted((r.queue.queue_id, r.queue_offset, r.message_id, r.offset_message_id) for r in results)


def java_ids(messages: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(m["queueId"], m["queueOffset"], m["msgId"], m["offsetMsgId"]) for m in messages]


def test_java_reads_our_message_with_all_it_can_carry(
    java: JavaClient, factory: RemotingClientFactory, topic: str
) -> None:
    producer = factory.producer("interop-ours")
    properties = TEXT | {"blank": " "}  # which Java's producers refuse to send
    message = Message(b"\x00\xff body", tags="tag-ä", keys=("k1", "k2"), properties=properties, sharding_key="s")
    result = producer.send(message.replace(topic=topic))
    producer.close()
    same_for_both(java, factory, topic, 1)
    (seen,) = java.consume(topic, 1)
    assert base64.b64decode(seen["body"]) == b"\x00\xff body"
    assert (seen["tags"], seen["keys"], seen["shardingKey"]) == ("tag-ä", "k1 k2", "s")
    assert seen["properties"].items() >= properties.items()
    assert java_ids([seen]) == stored_ids([result])


def test_java_reads_our_batch(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    producer = factory.producer("interop-ours")
    messages = [Message(b"m%d" % i, tags=f"t{i % 3}", keys=(f"k{i}",), properties={"i": str(i)}) for i in range(100)]
    results = producer.submit(messages, producer.queues(topic)[1]).result()
    producer.close()
    same_for_both(java, factory, topic, 100)
    seen = java.consume(topic, 100)
    assert [base64.b64decode(m["body"]) for m in seen] == [b"m%d" % i for i in range(100)]
    assert [m["keys"] for m in seen] == [f"k{i}" for i in range(100)]
    assert java_ids(seen) == stored_ids(results)
    assert len({m["uniqueId"] for m in seen}) == 100


def test_java_finds_our_messages_by_tag(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    producer = factory.producer("interop-ours")
    for i in range(9):
        producer.send(Message(b"%d" % i, topic=topic, tags=f"t{i % 3}"))
    producer.close()
    seen = java.consume(topic, 6, "t0 || t2")
    ours = read(factory, topic, 6, "t0 || t2")
    assert sorted(int(base64.b64decode(m["body"])) for m in seen) == [0, 2, 3, 5, 6, 8]
    assert sorted(int(r.body) for r in ours) == [0, 2, 3, 5, 6, 8]


def test_java_reads_our_delayed_message(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    producer = factory.producer("interop-ours")
    result = producer.send(Message(b"later", topic=topic, delay_level=1))
    producer.close()
    (record,) = same_for_both(java, factory, topic, 1)
    assert record.message_id == result.message_id
    assert record.store_timestamp_ms - record.born_timestamp_ms >= 900


KEYS = ["", "a", "order-1", "Zürich", "\U0001f680", "polygenelubricants", *(f"key-{i}" for i in range(200))]


@pytest.mark.parametrize("queues", [1, 3, 4, 7, 16])
def test_a_sharding_key_leads_to_the_queue_that_java_chooses(
    java: JavaClient, factory: RemotingClientFactory, rocketmq: LocalRocketMQ, queues: int
) -> None:
    """ "polygenelubricants" has the hash -2^31, whose absolute value is negative in Java."""
    topic = f"interop_keys_{queues}"
    rocketmq.create_topic(topic, queues=queues)
    producer = factory.producer("interop-ours")
    ours = [queue_for_key(producer.queues(topic), key) for key in KEYS]
    producer.close()
    assert [f"{q.broker}/{q.queue_id}" for q in ours] == java.queues_of_keys(topic, KEYS)
