"""Kinds of messages exchanged with Java's official client, every field compared: batches of all kinds, recalls ..."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, StopAt, WriteOptions, WriteToRocketMQ
from rmqio.client.connection import Connection
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.errors import IllegalOperation, LocalError, NoPermission
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.bodies import COMPRESSED
from rmqio.wire.command import Command, RequestCode
from rmqio.wire.stored import INNER_BATCH
from rmqio.wire.traces import TRACE_TOPIC
from tests.helpers.peers.interop import JavaClient, given, java_client, read, read_all, same_for_both
from tests.helpers.waiting import Inconclusive, needed, until

pytestmark = pytest.mark.broker

LONG = b"compress me " * 1000


@pytest.fixture(scope="module")
def own() -> Iterator[LocalRocketMQ]:
    """A broker of our own, since what it is to do is off by default."""
    with (
        LocalRocketMQ(
            broker_config={"recallMessageEnable": True, "traceTopicEnable": True}, broker_heap_mb=384
        ) as broker,
        needed(broker.pid),
    ):
        yield broker


@pytest.fixture(scope="module")
def java(own: LocalRocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with java_client(own.name_server, tmp_path_factory.mktemp("interop")) as client:
        yield client


@pytest.fixture(scope="module")
def factory(own: LocalRocketMQ) -> RemotingClientFactory:
    return RemotingClientFactory(ClientOptions(own.name_server))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "kinds_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:80]


@pytest.fixture
def topic(own: LocalRocketMQ, name: str) -> str:
    own.create_topic(name, queues=1)
    return name


@pytest.fixture
def batch_topic(own: LocalRocketMQ, name: str) -> str:
    own.create_topic(name, queues=1, attributes={"queue.type": "BatchCQ"})
    return name


def sender(own: LocalRocketMQ, **changes: Any) -> RemotingProducer:
    return RemotingProducer(ClientOptions(own.name_server, **changes), "kinds-ours")


def numbered(count: int, **fields: Any) -> list[Message]:
    return [Message(b"m%d" % i, tags=f"t{i % 3}", keys=(f"k{i}",), **fields) for i in range(count)]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_java_reads_what_we_compressed(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str, kind: str
) -> None:
    """Members of a batch too, which Java's producers never compress."""
    with sender(own, compress_over_bytes=4096, compression=kind) as producer:
        producer.send(Message(LONG, topic=topic, tags="one"))
        producer.send_batch(
            [Message(LONG, tags="a"), Message(b"short", keys=("k",)), Message(LONG)], producer.queues(topic)[0]
        )
    records = same_for_both(java, factory, topic, 4)
    assert [record.body for record in records] == [LONG, LONG, b"short", LONG]
    assert all(record.sys_flag & COMPRESSED for record in records)
    assert records[1].stored_size < len(LONG) / 2


def test_an_inner_batch_of_java_reads_alike(java: JavaClient, factory: RemotingClientFactory, batch_topic: str) -> None:
    messages = [given(b"m%d" % i, tags=f"t{i}", keys=[f"k{i}"], properties={"i": str(i)}) for i in range(10)]
    for begin, end in ((0, 3), (3, 4), (4, 10)):
        java.send(batch_topic, messages[begin:end], "batch")
    java.send(batch_topic, [given(b"single")])
    records = same_for_both(java, factory, batch_topic, 11)
    assert [record.body for record in records] == [b"m%d" % i for i in range(10)] + [b"single"]
    assert [record.queue_offset for record in records] == list(range(11))
    assert len({record.commit_log_offset for record in records}) == 4


def test_java_reads_our_inner_batch(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, batch_topic: str
) -> None:
    with sender(own, inner_batches=True) as producer:
        queue = producer.queues(batch_topic)[0]
        results = [result for count in (5, 1, 20) for result in producer.send_batch(numbered(count), queue)]
    records = same_for_both(java, factory, batch_topic, 26)
    assert all(record.sys_flag & INNER_BATCH for record in records)
    assert [(r.message_id, r.queue_offset, r.offset_message_id) for r in records] == [
        (r.message_id, r.queue_offset, r.offset_message_id) for r in results
    ]
    assert [record.tags for record in records[:5]] == ["t0", "t1", "t2", "t0", "t1"]


def test_compressed_batches_are_stored_one_by_one_where_inner_batches_are(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, batch_topic: str
) -> None:
    """Java's consumer would fail on an inner batch whose members are compressed."""
    with sender(own, compress_over_bytes=100, inner_batches=True) as producer:
        producer.send_batch([Message(LONG), Message(LONG)], producer.queues(batch_topic)[0])
    records = same_for_both(java, factory, batch_topic, 2)
    assert [(record.body, record.sys_flag & INNER_BATCH) for record in records] == [(LONG, 0), (LONG, 0)]


def test_inner_batches_are_read_from_any_offset_on(
    own: LocalRocketMQ, factory: RemotingClientFactory, batch_topic: str
) -> None:
    """The broker hands out the record that an offset lies in, from its first message on."""
    with sender(own, inner_batches=True) as producer:
        queue = producer.queues(batch_topic)[0]
        sizes = [1, 3, 40, 700, *[9] * 60, 2]
        for size in sizes:
            producer.send_batch(numbered(size), queue)
    total = sum(sizes)
    for begin in (0, 2, 43, 44, 400, 743, 744, 1000, total - 1):
        offsets = [r.queue_offset for r in read(factory, batch_topic, total - begin, begin=begin)]
        assert offsets == list(range(begin, total))


def soon(seconds: float) -> int:
    """A time so far ahead, in whole seconds: a broker delivers no finer."""
    return (int(time.time() + seconds) + 1) * 1000


def test_messages_that_wait_for_their_time_read_alike(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    java.queues_of_keys(topic, [])  # it is started: that may take a while
    at_ms = soon(3)
    java.send(topic, [given(b"theirs", deliverAtMs=at_ms, tags="t")])
    with sender(own) as producer:
        result = producer.send(Message(b"ours", topic=topic, deliver_at_ms=at_ms, tags="t"))
    assert result.recall_handle
    records = same_for_both(java, factory, topic, 2)
    assert {record.body for record in records} == {b"ours", b"theirs"}
    for record in records:
        assert record.store_timestamp_ms >= at_ms > record.born_timestamp_ms
        assert record.get_property("REAL_TOPIC") == topic


def test_either_calls_back_what_either_has_sent(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    java.queues_of_keys(topic, [])  # it is started: that may take a while
    at_ms = soon(3)
    with sender(own) as producer:
        handles: dict[str, str] = {}
        ids: dict[str, str] = {}
        for name in ("ours by us", "ours by Java", "kept"):
            result = producer.send(Message(name.encode(), topic=topic, deliver_at_ms=at_ms))
            assert result.recall_handle is not None
            handles[name], ids[name] = result.recall_handle, result.message_id
        for name in ("theirs by us", "theirs by Java"):
            (sent,) = java.send(topic, [given(name.encode(), deliverAtMs=at_ms)])
            handles[name], ids[name] = sent["recallHandle"], sent["msgId"]
        for name in ("ours by us", "theirs by us"):
            assert producer.recall(topic, handles[name]) == ids[name]
        for name in ("ours by Java", "theirs by Java"):
            assert java.ask("recall", topic=topic, handle=handles[name])["msgId"] == ids[name]
        if time.time() * 1000 >= at_ms:
            raise Inconclusive("the time of the messages had come before all were called back")
        producer.send(Message(b"after", topic=topic, deliver_at_ms=at_ms + 1_000))
        assert [record.body for record in read(factory, topic, 2)] == [b"kept", b"after"]
        with pytest.raises(IllegalOperation):
            producer.recall(topic, handles["kept"])
        for wrong in ("", "ä", "djEgYQ==", "no handle"):
            with pytest.raises(LocalError, match="recall handle"):
                producer.recall(topic, wrong)


def test_traces_of_a_pipeline_are_found_and_read_by_javas_tools(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str, name: str
) -> None:
    sink = f"{name}_sink"
    at: Any = {"name_server": own.name_server}
    own.create_topic(sink, queues=1)
    with sender(own) as producer:
        producer.send_batch(numbered(3, topic=topic))
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | ReadFromRocketMQ(
                topic, consumer_group=f"{name[:50]}-readers", start=StartFrom.earliest(), stop=StopAt.latest(),
                options=ReadOptions(trace=True), **at,
            )
            | WriteToRocketMQ(sink, producer_group=f"{name[:50]}-writers", options=WriteOptions(trace=True), **at)
        )  # fmt: skip
    read_ids = [record.message_id for record in read(factory, topic, 3)]
    written = read(factory, sink, 3)

    def traces() -> str:
        return b"".join(record.body for record in read_all(factory, TRACE_TOPIC)).decode()

    text = until(
        lambda: text if (text := traces()).count("\x02") == 9 else "", "three traces of each message", details=traces
    )
    found = java.ask("traces", data=text)
    assert found["again"] == text, "Java's encoder writes what its decoder has read of it"
    kinds = [(each["type"], each["id"]) for each in found["read"]]
    assert sorted(kinds) == sorted(
        [("Pub", record.message_id) for record in written]
        + [(kind, message_id) for kind in ("SubBefore", "SubAfter") for message_id in read_ids]
    )
    assert {each["group"] for each in found["read"]} == {f"{name[:50]}-readers", f"{name[:50]}-writers"}
    for message_id, line in ((written[0].message_id, "Pub "), (read_ids[2], "Sub ")):
        printed = java.ask("traces", data="", topic=TRACE_TOPIC, id=message_id)["printed"]
        (shown,) = [each for each in printed.splitlines() if each.startswith(line)]
        assert f"{name[:50]}-" in shown
        assert shown.split()[-1] in ("success", "true"), printed


def test_a_broker_that_permits_no_recalls_says_so(rocketmq: LocalRocketMQ, name: str) -> None:
    rocketmq.create_topic(name, queues=1)
    with sender(rocketmq) as producer:
        result = producer.send(Message(b"x", topic=name, deliver_at_ms=soon(2)))
        assert result.recall_handle is not None
        with pytest.raises(NoPermission, match="recall of a message"):
            producer.recall(name, result.recall_handle)
        assert producer.send(Message(b"x", topic=name)).recall_handle is None


def test_what_a_group_of_java_fails_on_is_read_from_its_retry_and_dead_letter_topics(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    group = f"group_{topic}"
    with sender(own) as producer:
        sent = [
            producer.send(Message(b"bad", topic=topic, tags=tag, keys=("k",), properties={"p": "1"}))
            for tag in ("again", "dead")
        ]
    assert java.ask("consume_and_fail", topic=topic, group=group, count=2)["done"]
    for kind, result, tag in (("RETRY", sent[0], "again"), ("DLQ", sent[1], "dead")):
        (record,) = same_for_both(java, factory, f"%{kind}%{group}", 1)
        assert (record.body, record.tags, record.keys, record.get_property("p")) == (b"bad", tag, ("k",), "1")
        assert (record.message_id, record.get_property("RETRY_TOPIC")) == (result.message_id, topic)
        assert record.reconsume_times == 1


@pytest.mark.parametrize("how", [None, ("CONSUME_ACTIVELY", "CLUSTERING"), ("CONSUME_PASSIVELY", "BROADCASTING")])
def test_why_a_read_sends_no_heartbeat_of_its_group(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, name: str, how: tuple[str, str] | None
) -> None:
    """A member that is online gets its share of the queues, whatever it says of itself: nobody else reads them.

    The official client divides the queues by the list of members, which has neither kinds nor subscriptions.
    """
    group = f"group_{name}"
    own.create_topic(name, queues=4)
    client = factory.queue_client()
    queues = list(client.queues(name))
    with sender(own) as producer:
        for queue in queues:
            producer.send(Message(b"bad", topic=name, tags="dead"), queue)
    online = Connection(own.broker)
    try:
        if how is not None:
            subscription = {"topic": name, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
            member = {
                "groupName": group,
                "consumeType": how[0],
                "messageModel": how[1],
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [subscription],
                "unitMode": False,
            }
            body = {"clientID": "rmqio@1", "producerDataSet": [], "consumerDataSet": [member]}
            command = Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
            requests.expect_success(online.request(command, 5_000), "heartbeat")
        expected = 4 if how is None else 2
        assert java.ask("consume_and_fail", topic=name, group=group, count=expected)["done"]
        committed = {queue.queue_id for queue in queues if client.committed_offset(group, queue)}
    finally:
        online.close()
        client.close()
    assert len(committed) == expected
