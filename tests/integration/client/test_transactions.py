"""Transactional messages on a broker of their own, which asks after a second instead of six, and twice a second."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.transactions import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Decision,
    Transaction,
    TransactionOutcomeUnknown,
    TransactionProducer,
)
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, Record
from rmqio.options import ClientOptions
from tests.helpers.doc_blocks import NAME_SERVER, blocks_that_need
from tests.helpers.peers.interop import JavaClient, given, java_client, read, read_all, same_for_both
from tests.helpers.waiting import needed, until

pytestmark = pytest.mark.broker

COMMITTED = 0x8
"""System flag of a message that was a half message."""


@pytest.fixture(scope="module")
def own() -> Iterator[LocalRocketMQ]:
    """Half messages that are left behind can make a broker busy for hours: not the session's.

    What has ended is written down after 3 s as ever, so that the broker asks about what has just been committed.
    """
    quick = {"transactionTimeOut": 1_000, "transactionCheckInterval": 500}
    with LocalRocketMQ(broker_config=quick, broker_heap_mb=384) as broker, needed(broker.pid):
        yield broker


@pytest.fixture(scope="module")
def java(own: LocalRocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with java_client(own.name_server, tmp_path_factory.mktemp("interop")) as client:
        yield client


@pytest.fixture
def topic(own: LocalRocketMQ, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:80]
    own.create_topic(name, queues=2)
    return name


@pytest.fixture(scope="module")
def factory(own: LocalRocketMQ) -> RemotingClientFactory:
    return RemotingClientFactory(ClientOptions(own.name_server))


class Answers:
    """A `check`: decides by body, UNKNOWN if not told; remembers what was asked."""

    def __init__(self, **decisions: Decision) -> None:
        self._decisions = decisions
        self._asked: list[Record] = []

    def __call__(self, record: Record) -> Decision:
        self._asked.append(record)
        return self._decisions.get(record.body.decode(), UNKNOWN)

    def asked(self, body: bytes) -> list[Record]:
        return [record for record in list(self._asked) if record.body == body]

    def wait(self, body: bytes, times: int = 1) -> list[Record]:
        asked = partial(self.asked, body)
        until(lambda: len(asked()) >= times, f"the broker to ask {times} times about {body!r}", details=asked)
        return self.asked(body)


def a_round_of_questions(producer: TransactionProducer, answers: Answers, topic: str) -> None:
    """Return when the broker has asked about everything that is half and a second old: it asks in order, twice here."""
    marker = f"marker {time.monotonic_ns()}".encode()
    producer.begin(Message(marker, topic=topic)).leave()
    answers.wait(marker, 2)


def make(own: LocalRocketMQ, topic: str, check: Callable[[Record], Decision], **changes: int) -> TransactionProducer:
    options = ClientOptions(own.name_server, **changes)  # type: ignore[arg-type]
    return TransactionProducer(options, f"group-{topic}", check, topics=[topic])


def test_what_is_committed_is_seen_once_and_whole_and_what_is_rolled_back_never(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    answers = Answers(committed=COMMIT, dropped=COMMIT)
    message = Message(b"committed", topic=topic, tags="a", keys=("k1", "k2"), properties={"p": "ä"}, sharding_key="s")
    with make(own, topic, answers) as producer:
        with producer.begin(message) as transaction:
            assert read_all(factory, topic) == []
        assert producer.send(Message(b"dropped", topic=topic), lambda _: ROLLBACK).decision is ROLLBACK
        a_round_of_questions(producer, answers, topic)
        (record,) = read_all(factory, topic)
    assert (record.body, record.tags, record.keys, record.sharding_key) == (b"committed", "a", ("k1", "k2"), "s")
    assert (record.get_property("p"), record.message_id) == ("ä", transaction.message_id)
    assert record.sys_flag & 0xC == COMMITTED
    assert record.queue == transaction.half.queue
    assert (answers.asked(b"committed"), answers.asked(b"dropped")) == ([], [])


def test_what_is_left_undecided_is_decided_by_the_check(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    answers = Answers(yes=COMMIT, no=ROLLBACK)
    with make(own, topic, answers, compress_over_bytes=2) as producer:
        sent = producer.send(Message(b"yes", topic=topic, keys=("k",)), lambda _: UNKNOWN)
        producer.begin(Message(b"no", topic=topic)).leave()
        (record,) = answers.wait(b"yes")
        answers.wait(b"no")
        (seen,) = read(factory, topic, 1)
        a_round_of_questions(producer, answers, topic)
        assert len(read_all(factory, topic)) == 1
    assert (record.topic, record.keys, record.message_id) == (topic, ("k",), sent.half.message_id)
    assert (seen.body, seen.message_id) == (b"yes", sent.half.message_id)
    assert (len(answers.asked(b"yes")), len(answers.asked(b"no"))) == (1, 1)


def test_a_local_transaction_that_takes_longer_than_the_broker_waits(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    answers = Answers(long=ROLLBACK)
    with make(own, topic, answers) as producer:
        transaction = producer.begin(Message(b"long", topic=topic))
        a_round_of_questions(producer, answers, topic)
        assert answers.asked(b"long") == [], "nobody but the local transaction knows"
        transaction.commit()
        a_round_of_questions(producer, answers, topic)
        assert [record.body for record in read_all(factory, topic)] == [b"long"]
    assert answers.asked(b"long") == []


DIES = """
import sys, time
from rmqio.client.transactions import TransactionProducer
from rmqio.model import Message
from rmqio.options import ClientOptions
server, group, topic = sys.argv[1:]
producer = TransactionProducer(ClientOptions(server), group, print, topics=[topic])
transaction = producer.begin(Message(b"orphan", topic=topic))
print(transaction.message_id, flush=True)
time.sleep(60)
"""


def test_another_producer_of_the_group_answers_for_one_that_was_killed(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    command = [sys.executable, "-c", DIES, own.name_server, f"group-{topic}", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        message_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    answers = Answers(orphan=COMMIT)
    with make(own, topic, answers):  # it sends nothing itself
        (record,) = answers.wait(b"orphan")
        (seen,) = read(factory, topic, 1)
    assert record.message_id == seen.message_id == message_id


def test_a_commit_whose_outcome_is_unknown_is_not_repeated(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    answers = Answers(unsure=COMMIT)
    transaction: Transaction
    with make(own, topic, answers, request_timeout_ms=500) as producer:
        transaction = producer.begin(Message(b"unsure", topic=topic))
        own.pause()
        try:
            with pytest.raises(TransactionOutcomeUnknown):
                transaction.commit()
            with pytest.raises(Exception, match="was ended with COMMIT"):
                transaction.commit()
        finally:
            own.resume()
        seen = read(factory, topic, 1)
    assert {record.message_id for record in seen} == {transaction.message_id}


def test_a_transaction_of_java_reads_alike(java: JavaClient, factory: RemotingClientFactory, topic: str) -> None:
    message = given(b"from Java", tags="t", keys=["k"], properties={"p": "ä"}, shardingKey="s")
    arguments = {"topic": topic, "group": f"java-{topic}", "message": message}
    _, sent = java.ask("send_in_transaction", decisions=["ROLLBACK", "COMMIT"], **arguments)["results"]
    (record,) = same_for_both(java, factory, topic, 1)
    assert (record.body, record.tags, record.message_id) == (b"from Java", "t", sent["msgId"])
    assert record.sys_flag & 0xC == COMMITTED


def test_java_reads_our_transaction(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    message = Message(b"ours " * 1000, topic=topic, tags="t", keys=("k",), properties={"p": "ä"}, sharding_key="s")
    with make(own, topic, Answers(), compress_over_bytes=100) as producer:
        producer.begin(message).commit()
    (record,) = same_for_both(java, factory, topic, 1)
    assert (record.body, record.tags) == (b"ours " * 1000, "t")


def test_we_answer_for_java_and_java_for_us(
    java: JavaClient, own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    """Members of one group, of either kind."""
    group = f"group-{topic}"
    arguments = {"topic": topic, "group": group, "message": given(b"theirs")}
    (theirs,) = java.ask("send_in_transaction", decisions=["UNKNOW"], **arguments)["results"]
    with make(own, topic, Answers(theirs=COMMIT)):
        (first,) = read(factory, topic, 1)
        assert first.message_id == theirs["msgId"]
    options = ClientOptions(own.name_server)
    with TransactionProducer(options, f"other-{topic}", Answers(), topics=[topic]) as producer:
        producer.begin(Message(b"ours", topic=topic), message_id="ours-1").leave()
    answered = java.ask("answer_checks", topic=topic, group=f"other-{topic}", count=1, decision="COMMIT")
    assert answered["checked"][0] == "ours-1"

    def seen() -> set[bytes]:
        return {record.body for record in read_all(factory, topic)}

    until(lambda: seen() == {b"theirs", b"ours"}, "both", details=seen)  # what Java is asked twice it commits twice


class Orders(dict[int, str]):
    """The database of the page: message ids by order number."""

    def insert(self, number: int, *, message_id: str) -> None:
        self[number] = message_id

    def has(self, message_id: str) -> bool:
        return message_id in self.values()


def test_the_block_of_the_documentation_commits_what_the_database_has(
    own: LocalRocketMQ, factory: RemotingClientFactory, topic: str
) -> None:
    (block,) = blocks_that_need("transactions")
    code = NAME_SERVER.sub(own.name_server, block.code).replace('"orders"', repr(topic))
    names: dict[str, Any] = {"orders": Orders()}
    exec(compile("\n" * (block.line - 1) + code, block.page, "exec"), names)
    (record,) = read(factory, topic, 1)
    assert (record.body, record.keys, names["orders"]) == (b"...", ("4711",), {4711: record.message_id})
    assert names["check"](record) == COMMIT
    names["orders"].clear()
    assert names["check"](record) == ROLLBACK
