"""`backend="librocketmq"`: what the vendor's C++ client sends to a real broker, read back by ours."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqio.client.producer import RemotingProducer
from rmqio.errors import LocalError, TransportError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions, WriteOptions
from rmqio.security import FileCredentials, Security
from tests.helpers.peers import librocketmq_side as there
from tests.helpers.peers.librocketmq_side import Side
from tests.helpers.peers.librocketmq_topics import new_topic, patient, placed, read, told
from tests.helpers.servers.guarded import Guarded, credentials_file

pytestmark = pytest.mark.broker


@pytest.fixture
def sender(side: Side, rocketmq: LocalRocketMQ) -> Side:
    side.call(there.open_producer, patient(rocketmq))
    return side


MESSAGES = {
    "bare": Message(b"x"),
    "all": Message(
        bytes(range(256)) * 4,
        tags="Tag-é",
        keys=("k1", "ключ"),
        properties={"a": "1", "Z": "z", "~tilde": "t", "emoji": "😀 \n\t\"'\\", "WAITING": "w"},
        sharding_key="customer-7",
    ),
    "null first": Message(b"\x00\x01"),
    "text": Message("ein Text — 漢字".encode(), tags="t", keys=("one",)),
    "100 KB": Message(os.urandom(100_000)),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_arrives_as_the_remoting_client_sends_it(rocketmq: LocalRocketMQ, sender: Side, name: str) -> None:
    topic = new_topic(rocketmq, queues=3)
    message = MESSAGES[name].replace(topic=topic)
    before_ms = time.time_ns() // 1_000_000
    sent = sender.call(there.send, message, message_id="AN-ID-OF-MINE")
    after_ms = time.time_ns() // 1_000_000
    with RemotingProducer(patient(rocketmq), "librocketmq-peer") as producer:
        ours = producer.send(message, sent.queue, message_id="AN-ID-OF-MINE")
    theirs_read, ours_read = read(rocketmq, topic, 2)
    assert (theirs_read.queue, theirs_read.queue_offset) == (sent.queue, sent.queue_offset) == (ours.queue, 0)
    assert theirs_read.message_id == theirs_read.properties["UNIQ_KEY"] == sent.message_id == "AN-ID-OF-MINE"
    for field in ("body", "tags", "keys", "sharding_key", "message_id", "sys_flag", "flag"):
        assert getattr(theirs_read, field) == getattr(ours_read, field), field
    added = {"WAIT": "true"}  # by the library; brokers of RocketMQ 4 do not store it
    assert theirs_read.properties | added == ours_read.properties | added
    assert before_ms <= theirs_read.born_timestamp_ms <= after_ms


def test_messages_are_delayed(rocketmq: LocalRocketMQ, sender: Side) -> None:
    topic = new_topic(rocketmq)
    begin_ms = round(time.time() * 1000)
    sender.call(there.send, Message(b"at", topic=topic, deliver_at_ms=begin_ms + 2_500), message_id="AT")
    sender.call(there.send, Message(b"level", topic=topic, delay_level=1), message_id="LEVEL")
    sender.call(there.send, Message(b"now", topic=topic), message_id="NOW")
    records = {record.message_id: record for record in read(rocketmq, topic, 3)}
    assert {record.body: message_id for message_id, record in records.items()} == {
        b"now": "NOW", b"level": "LEVEL", b"at": "AT",
    }  # fmt: skip
    assert records["NOW"].queue_offset == 0
    assert records["LEVEL"].store_timestamp_ms - records["LEVEL"].born_timestamp_ms >= 900
    assert records["AT"].store_timestamp_ms >= begin_ms + 1_500  # a broker rounds to seconds


def test_a_key_has_the_queue_that_ours_gives_it_and_keeps_its_order(rocketmq: LocalRocketMQ, sender: Side) -> None:
    topic = new_topic(rocketmq, queues=5)
    keys = ["a", "order-1138", "ключ", "polygenelubricants"]  # the last one's hash is Java's smallest
    with RemotingProducer(patient(rocketmq), "librocketmq-peer") as producer:
        queues = {key: producer.send(Message(b"0", topic=topic, sharding_key=key)).queue for key in keys}
    for key in keys:
        assert sender.call(there.send, Message(b"1", topic=topic, sharding_key=key)).queue == queues[key]
    batches = [
        ([Message(b"%d" % n, sharding_key=key) for n in range(first, first + 40)], queues[key])
        for first in (2, 42)
        for key in keys
    ]
    results = sender.call(there.submit, batches, True)
    records = read(rocketmq, topic, 82 * len(keys))
    for key in keys:
        assert [int(record.body) for record in records if record.sharding_key == key] == list(range(82))
        assert {record.queue for record in records if record.sharding_key == key} == {queues[key]}
    assert told(results).items() <= placed(records).items()


def test_many_at_once_have_ids_of_their_own_and_each_is_where_its_result_says(
    rocketmq: LocalRocketMQ, side: Side
) -> None:
    topic = new_topic(rocketmq, queues=4)
    side.call(there.open_producer, patient(rocketmq, max_in_flight=3))
    queues = [MessageQueue(topic, rocketmq.name, n) for n in range(4)]
    batches = [([Message(b"%d" % n, tags="t") for n in range(100)], queue) for queue in queues * 2]
    results = side.call(there.submit, batches, False)
    results += side.call(there.send_in_threads, [Message(b"x", topic=topic)] * 100, 6)
    records = read(rocketmq, topic, 900)
    assert len(records) == 900
    assert told(results) == placed(records)
    assert Counter(queue for queue, _ in told(results[:800]).values()) == dict.fromkeys(queues, 200)
    assert Counter(queue for queue, _ in told(results[800:]).values()) == dict.fromkeys(queues, 25)


def test_the_vendors_own_batch_is_one_message_which_is_why_it_is_refused(rocketmq: LocalRocketMQ, sender: Side) -> None:
    topic = new_topic(rocketmq)
    assert sender.call(there.vendors_batch, rocketmq.name_server, topic, ["one", "two"]) == 0
    (record,) = read(rocketmq, topic, 1)
    assert b"one" in record.body
    assert b"two" in record.body


def test_a_pipeline_writes_by_it(rocketmq: LocalRocketMQ, side: Side) -> None:
    topic = new_topic(rocketmq, queues=3)
    messages = [Message(b"plain %d" % n, tags="t", keys=(f"k{n}",)) for n in range(30)]
    messages += [Message(b"keyed %02d" % n, sharding_key=f"key-{n % 2}") for n in range(30)]
    messages += [Message(b"delayed", delay_level=1), Message(b"empty property", properties={"a": ""})]
    options = WriteOptions(asynchronous=True, max_batch_messages=8, max_in_flight=2, request_timeout_ms=30_000)
    side.call(there.write, topic, rocketmq.name_server, messages, options)
    records = read(rocketmq, topic, 61)
    assert Counter(record.message_id for record in records) == {m.body.decode(): 1 for m in messages[:-1]}
    for key in ("key-0", "key-1"):
        bodies = [record.body for record in records if record.sharding_key == key]
        assert bodies == sorted(bodies)
        assert len({record.queue for record in records if record.sharding_key == key}) == 1


def test_what_would_be_changed_on_its_way_is_refused(rocketmq: LocalRocketMQ, sender: Side) -> None:
    topic = new_topic(rocketmq)
    refused = {
        "the character 0": Message(b"x", topic=topic, properties={"a": "b\x00c"}),
        "must be bytes": Message("text", topic=topic),  # type: ignore[arg-type]
        "is empty": Message(b"", topic=topic),
        "4194305 bytes": Message(b"x" * 4_194_305, topic=topic),
        "neither the message nor": Message(b"x"),
        "is sent to": Message(b"x", topic="another"),
        "reserved": Message(b"x", topic=topic, properties={"UNIQ_KEY": "mine"}),
    }
    queue = MessageQueue(topic, rocketmq.name, 0)
    for reason, message in refused.items():
        with pytest.raises(LocalError, match=reason):
            sender.call(there.send, message, None if "neither" in reason else queue)
    with pytest.raises(LocalError, match="not one of the topic's 1 writable queues"):
        sender.call(there.send, Message(b"x"), queue._replace(queue_id=1))
    with pytest.raises(LocalError, match="a delayed message"):
        sender.call(there.submit, [([Message(b"x"), Message(b"x", delay_level=1)], queue)], False)
    largest = sender.call(there.send, Message(b"y" * 4_190_000, topic=topic))
    assert [len(record.body) for record in read(rocketmq, topic, 1)] == [4_190_000]
    assert largest.queue_offset == 0


def test_new_queues_of_a_topic_are_seen_at_once(rocketmq: LocalRocketMQ, side: Side) -> None:
    """Ours are, with so short a time: the library looks each 30 s, and would take our place in the list for another."""
    topic = new_topic(rocketmq)
    side.call(there.open_producer, patient(rocketmq, route_refresh_ms=1))
    first = side.call(there.send, Message(b"first", topic=topic))
    rocketmq.create_topic(topic, queues=3)
    queue = MessageQueue(topic, rocketmq.name, 2)
    second = side.call(there.send, Message(b"second"), queue)
    assert (first.queue.queue_id, first.queue_offset, second.queue, second.queue_offset) == (0, 0, queue, 0)
    assert [(record.queue.queue_id, record.body) for record in read(rocketmq, topic, 2)] == [
        (0, b"first"), (2, b"second"),
    ]  # fmt: skip


def test_a_namespace_and_compression(rocketmq: LocalRocketMQ, side: Side) -> None:
    topic = new_topic(rocketmq)
    rocketmq.create_topic(f"inst%{topic}", queues=1)
    side.call(there.open_producer, patient(rocketmq, namespace="inst", compress_over_bytes=1_000))
    results = [side.call(there.send, Message(b"z" * size, topic=topic)) for size in (999, 10_000)]
    assert {result.queue.topic for result in results} == {topic}
    small, large = read(rocketmq, topic, 2, namespace="inst")
    assert (small.body, large.body) == (b"z" * 999, b"z" * 10_000)
    assert small.stored_size > 999
    assert large.stored_size < 999


def test_credentials(guarded: Guarded, side: Side, tmp_path: Path) -> None:
    topic = guarded.create_topic("librocketmq-guarded")
    options = ClientOptions(
        guarded.broker.name_server, security=Security(FileCredentials(guarded.credentials_file)), max_retries=0
    )
    side.call(there.open_producer, options)
    assert side.call(there.send, Message(b"signed", topic=topic)).queue.topic == topic
    forged = credentials_file(tmp_path / "forged", "root-of-the-tests", "another secret")
    side.call(there.open_producer, dataclasses.replace(options, security=Security(FileCredentials(forged))))
    with pytest.raises(TransportError, match="whatever the reason"):
        side.call(there.send, Message(b"forged", topic=topic))
    token = credentials_file(tmp_path / "token", "root-of-the-tests", "secret", "a token")
    with pytest.raises(LocalError, match="security token"):
        side.call(there.open_producer, dataclasses.replace(options, security=Security(FileCredentials(token))))
