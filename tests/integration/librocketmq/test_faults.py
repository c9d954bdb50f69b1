"""`backend="librocketmq"` with broken brokers, and the ends of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqio.errors import TransportError
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.peers import librocketmq_side as there
from tests.helpers.peers.librocketmq_side import Side
from tests.helpers.peers.librocketmq_topics import new_topic, read, told
from tests.helpers.waiting import at_most, until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def own() -> Iterator[LocalRocketMQ]:
    """A broker of our own: these tests stop and kill it."""
    patience = {"waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 10_000}
    with LocalRocketMQ(name="mortal-librocketmq", broker_config=patience, broker_heap_mb=256) as broker:
        yield broker


def acknowledged(side: Side, messages: list[Message], queue: MessageQueue) -> list[Any]:
    """Sent as often as it takes: a broker that has just come back may not answer within so short a time."""
    errors: list[TransportError] = []

    def results() -> list[Any]:
        try:
            return list(side.call(there.submit, [(messages, queue)], True))
        except TransportError as error:
            errors.append(error)
            return []

    return until(results, "an acknowledgement", details=lambda: errors[-1:], pause_s=0)


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
        # `Side.call` bounds what its process does.
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
        cwd=Path(__file__).parents[3],
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
            out, err = process.communicate(timeout=at_most(60))
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
            out, err = process.communicate(timeout=at_most(60))
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("True\nTrue\nTrue\n7\n", "", 0)
    assert len(read(rocketmq, topic, 5)) == 5
