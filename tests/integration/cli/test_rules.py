"""Rules of a topic on a real broker: the newest count, and `rmqio rules run` follows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("msgspec", reason="the extra rules is not installed")
pytest.importorskip("lark", reason="the extra sql is not installed")

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.interfaces import Producer
from rmqio.local import LocalRocketMQ
from rmqio.model import TOMBSTONE, Message
from rmqio.options import ClientOptions
from rmqio.rules.errors import RuleError
from rmqio.rules.ruleset import RuleSet
from tests.helpers.waiting import heard, runs, until, until_found

pytestmark = pytest.mark.broker


@pytest.fixture
def producer(rocketmq: LocalRocketMQ) -> Iterator[Producer]:
    made = RemotingClientFactory(ClientOptions(rocketmq.name_server)).producer("rules-test")
    yield made
    made.close()


@pytest.fixture
def new_topic(rocketmq: LocalRocketMQ) -> Callable[[str], str]:
    def create(kind: str) -> str:
        name = f"{kind}-{uuid.uuid4().hex[:12]}"
        rocketmq.create_topic(name, queues=4)
        return name

    return create


def send(producer: Producer, topic: str, name: str, text: bytes) -> None:
    """Puts a text of rules into the topic; without a text, removes it."""
    properties = {} if text else {TOMBSTONE: "true"}
    producer.send_batch([Message(text, topic=topic, keys=[name], properties=properties)])


def test_the_newest_text_of_each_name_counts(
    rocketmq: LocalRocketMQ, producer: Producer, new_topic: Callable[[str], str]
) -> None:
    topic = new_topic("rules")
    rules = RuleSet.from_topic(topic, name_server=rocketmq.name_server)
    assert rules.load() == ()
    signatures = [rules.signature()]

    def put(name: str, text: bytes) -> None:
        send(producer, topic, name, text)
        until(lambda: rules.signature() != signatures[-1], "the message to be in its queue")
        signatures.append(rules.signature())

    for number in range(40):
        put("a.sql", f"-- id: a{number}\namount > {number}".encode())
    put("b.sql", b"amount > 5")
    assert [each.id for each in rules.load()] == ["a39", "b"]
    put("a.sql", b"")
    assert [each.id for each in rules.load()] == ["b"]
    put("c.sql", b"amount >")
    with pytest.raises(RuleError, match=r"c\.sql:1: rule c: the statement is not complete"):
        rules.load()
    assert len(set(signatures)) == len(signatures)


def test_a_topic_that_was_made_anew_and_filled_to_the_same_offsets_is_a_change(
    rocketmq: LocalRocketMQ, new_topic: Callable[[str], str]
) -> None:
    topic = new_topic("rules")

    def fill(text: bytes) -> None:
        with RemotingProducer(ClientOptions(rocketmq.name_server), "rules-test") as producer:
            for name in ("a.sql", "b.sql"):
                producer.send_batch([Message(text, topic=topic, keys=[name])], producer.queues(topic)[0])

    fill(b"amount > 1")
    rules = RuleSet.from_topic(topic, name_server=rocketmq.name_server)
    until(lambda: len(rules.load()) == 2, "the messages to be in their queue", details=rules.load)
    old, before = rules.load(), rules.signature()
    assert rules.signature() == before
    rocketmq.delete_topic(topic)
    rocketmq.create_topic(topic, queues=4)
    fill(b"amount > 2")
    until(lambda: len(rules.load()) == 2, "the messages to be in their queue", details=rules.load)
    assert [each.id for each in rules.load()] == [each.id for each in old]
    assert rules.load() != old
    assert rules.signature() != before


def test_run_follows_events_and_rules(
    rocketmq: LocalRocketMQ, producer: Producer, new_topic: Callable[[str], str]
) -> None:
    rules, events = new_topic("rules"), new_topic("events")
    command = [
        sys.executable, "-m", "rmqio", "rules", "run", "--rules_topic", rules, "--topic", events, "--refresh_s", "0.5",
        "--from", "earliest", "--json", "--name_server", rocketmq.name_server,
    ]  # fmt: skip

    def put(name: str, text: str) -> None:
        send(producer, rules, name, text.encode())

    def event(amount: int) -> None:
        producer.send(Message(json.dumps({"amount": amount}).encode(), topic=events))

    put("large.sql", "amount > 100")
    event(500)
    event(5)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            shown, said = heard(process.stdout), heard(process.stderr)
            alive = [runs(process, lambda: "".join(said))]

            def found() -> list[tuple[str, str, str]]:
                return [(each["rule"], each["body"], each["topic"]) for each in map(json.loads, shown)]

            def told() -> list[str]:
                return re.findall(r"the rules (?:have changed: \d+ rules?|stay as they were: \S+:\d+)", "".join(said))

            matched, changes = list[tuple[str, str, str]](), list[str]()

            def match(rule: str, amount: int) -> None:
                matched.append((rule, json.dumps({"amount": amount}), events))
                until_found(found, matched, alive=alive)
                assert found() == matched

            def change(name: str, text: str, then: str) -> None:
                put(name, text)
                changes.append(f"the rules {then}")
                until_found(told, changes, alive=alive)
                assert told() == changes

            match("large", 500)
            change("small.sql", "amount < 10", "have changed: 2 rules")
            event(7)
            match("small", 7)
            change("small.sql", "amount <", "stay as they were: small.sql:1")
            event(8)
            match("small", 8)
            change("small.sql", "", "have changed: 1 rule")
            event(9)
            event(900)
            match("large", 900)
        finally:
            process.terminate()
