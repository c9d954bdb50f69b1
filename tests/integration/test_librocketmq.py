"""`backend="librocketmq"`: what the vendor's C++ client sends to a real broker, read back by ours.

The library runs in processes of its own, so that a crash of it fails a test and no more.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.sending.producer import RemotingProducer
from rmqio.errors import LocalError, TransportError
from rmqio.librocketmq.library import load
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue, Record, SendResult
from rmqio.options import ClientOptions, WriteOptions
from rmqio.security import FileCredentials, Security
from tests.helpers import librocketmq_side as there
from tests.helpers.guarded import Guarded, credentials_file
from tests.helpers.librocketmq_side import Side
from tests.helpers.raw_send import read_to

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    try:
        load()
    except LocalError as error:
        pytest.skip(str(error))
    with Side(tmp_path_factory.mktemp("home")) as side:
        yield side


@pytest.fixture
def sender(side: Side, rocketmq: LocalRocketMQ) -> Side:
    side.call(there.open_producer, patient(rocketmq))
    return side


def patient(broker: LocalRocketMQ, **more: Any) -> ClientOptions:
    """On a busy machine an answer that is late would be taken for a failure, and the message would be stored twice."""
    return ClientOptions(broker.name_server, request_timeout_ms=30_000, max_retries=20, **more)


def new_topic(broker: LocalRocketMQ, queues: int = 1) -> str:
    topic = f"librocketmq-{uuid.uuid4().hex[:12]}"
    broker.create_topic(topic, queues=queues)
    return topic


def read(broker: LocalRocketMQ, topic: str, count: int, **options: Any) -> list[Record]:
    """All messages, queue by queue, once there are `count`."""
    client = RemotingQueueClient(ClientOptions(broker.name_server, **options))
    try:
        queues = client.queues(topic)
        deadline = time.monotonic() + 60
        while (have := sum(client.max_offset(queue) for queue in queues)) < count:
            assert time.monotonic() < deadline, f"{have} of {count} messages"
            time.sleep(0.01)
        parts = [part for queue in queues for part in read_to(client, queue, 0, client.max_offset(queue))]
        assert all(part.corrupt == () for part in parts)
        return [record for part in parts for record in part.records]
    finally:
        client.close()


def placed(records: list[Record]) -> dict[str, tuple[MessageQueue, int]]:
    """Where each id is."""
    found = {record.message_id: (record.queue, record.queue_offset) for record in records}
    assert len(found) == len(records)
    return found


def told(results: list[SendResult]) -> dict[str, tuple[MessageQueue, int]]:
    """Where each id is, by the results."""
    assert all(result.status.name == "OK" for result in results)
    return {result.message_id: (result.queue, result.queue_offset) for result in results}


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
    sent = sender.call(there.send, message, message_id="AN-ID-OF-MINE")
    with RemotingProducer(patient(rocketmq), "librocketmq-peer") as producer:
        ours = producer.send(message, sent.queue, message_id="AN-ID-OF-MINE")
    theirs_read, ours_read = read(rocketmq, topic, 2)
    assert (theirs_read.queue, theirs_read.queue_offset) == (sent.queue, sent.queue_offset) == (ours.queue, 0)
    assert theirs_read.message_id == theirs_read.properties["UNIQ_KEY"] == sent.message_id == "AN-ID-OF-MINE"
    for field in ("body", "tags", "keys", "sharding_key", "message_id", "sys_flag", "flag"):
        assert getattr(theirs_read, field) == getattr(ours_read, field), field
    added = {"WAIT": "true"}  # by the library; brokers of RocketMQ 4 do not store it
    assert theirs_read.properties | added == ours_read.properties | added
    assert abs(theirs_read.born_timestamp_ms - time.time() * 1000) < 60_000


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


# ---- broken brokers, and the ends of processes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Iterator[LocalRocketMQ]:
    """A broker of our own: these tests stop and kill it."""
    patience = {"waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 10_000}
    with LocalRocketMQ(name="mortal-librocketmq", broker_config=patience, broker_heap_mb=256) as broker:
        yield broker


def acknowledged(side: Side, messages: list[Message], queue: MessageQueue) -> list[Any]:
    """Sent as often as it takes: a broker that has just come back may not answer within so short a time."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return list(side.call(there.submit, [(messages, queue)], True))
        except TransportError:
            if time.monotonic() > deadline:
                raise


@pytest.mark.slow
def test_a_broker_that_hangs_or_dies_is_a_typed_error_and_nothing_acknowledged_is_lost(
    own: LocalRocketMQ, side: Side
) -> None:
    topic = new_topic(own, queues=2)
    queue = MessageQueue(topic, own.name, 1)
    side.call(there.open_producer, ClientOptions(own.name_server, request_timeout_ms=1_000, max_retries=1))
    results = [side.call(there.send, Message(b"0", topic=topic))]
    own.pause()
    try:
        # What its process does is bounded by `Side.call`.
        with pytest.raises(TransportError, match=f"send to queue {topic}/.* by librocketmq fails"):
            side.call(there.send, Message(b"hangs", topic=topic))
        with pytest.raises(TransportError, match=f"send to {queue} by librocketmq fails"):
            side.call(there.submit, [([Message(b"hangs too")] * 2, queue)] * 2, True)
    finally:
        own.resume()
    results += acknowledged(side, [Message(b"1"), Message(b"2")], queue)
    own.kill()
    with pytest.raises(TransportError):
        side.call(there.send, Message(b"dead"), queue)
    own.restart()
    results += acknowledged(side, [Message(b"3"), Message(b"4")], queue)
    records = read(own, topic, 5)  # and a few that failed, but were stored; also twice
    places = {(record.message_id, (record.queue, record.queue_offset)) for record in records}
    assert told(results).items() <= places
    ordered = dict.fromkeys(record.body for record in records if record.body in (b"1", b"2", b"3", b"4"))
    assert list(ordered) == [b"1", b"2", b"3", b"4"]


_HEAD = """
import os, sys, threading
from rmqio.librocketmq import LibrocketmqClientFactory
from rmqio.model import Message
from rmqio.options import ClientOptions
name_server, topic = sys.argv[1:]
factory = LibrocketmqClientFactory(ClientOptions(name_server, request_timeout_ms=1_000, max_retries=1_000))
producer = factory.producer("librocketmq-process")
message = Message(b"x", topic=topic)
producer.send(message)
"""


def script(text: str, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """`home`: where the library puts its log."""
    return subprocess.Popen(
        [sys.executable, "-c", _HEAD + text, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"HOME": str(home)},
    )


@pytest.mark.slow
def test_ctrl_c_ends_a_send_that_is_tried_without_end_and_the_process(
    own: LocalRocketMQ, side: Side, tmp_path: Path
) -> None:
    topic = new_topic(own)
    text = """
pending = producer.submit([message], producer.queues(topic)[0])
pending.result()
print("ready", flush=True)
sys.stdin.readline()
pending = producer.submit([message], producer.queues(topic)[0])
try:
    print("waits", flush=True)
    pending.result()
except KeyboardInterrupt:
    print("interrupted")
"""
    with script(text, tmp_path, own.name_server, topic) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            own.pause()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "waits\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            own.resume()
            process.kill()
    assert (out, process.returncode) == ("interrupted\n", 0)
    assert "1 messages not sent" in err


def test_a_fork_is_refused_and_a_process_that_does_not_close_ends(
    rocketmq: LocalRocketMQ, side: Side, tmp_path: Path
) -> None:
    topic = new_topic(rocketmq)
    text = """
child = os.fork()
if child == 0:
    for use in (lambda: producer.send(message), lambda: producer.queues(topic), lambda: factory.producer("another")):
        try:
            use()
        except ValueError as error:
            print("fork" in str(error), flush=True)
    producer.close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
producer.send(message)
pending = producer.submit([message] * 3, producer.queues(topic)[0])
"""
    with script(text, tmp_path, rocketmq.name_server, topic) as process:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("True\nTrue\nTrue\n7\n", "", 0)
    assert len(read(rocketmq, topic, 5)) == 5
