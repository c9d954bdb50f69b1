"""Bundles whose queues an operator takes away: nothing is dropped, and the next try goes to those that are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.errors import QueueNotExist, RmqioError
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.sending.accumulator import BatchAccumulator, WritableTopics
from rmqio.sending.batches import BatchSender
from rmqio.testing import ManualClock
from rmqio.topics import queue_for_key
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.peers.interop import read
from tests.unit.sending.test_batches import A0, B0, ScriptedProducer


class Outcomes:
    """The outcomes of messages, by body."""

    def __init__(self) -> None:
        self.stored: list[Any] = []
        self.refused: list[tuple[Any, str]] = []

    def sent(self, origins: Any, messages: Any, results: Any, seconds: float) -> None:
        self.stored += origins

    def failed(self, element: Any, origin: Any, message: Any, topic: str, error: RmqioError) -> None:
        self.refused.append((origin, type(error).__name__))


class Scripted:
    """An accumulator over a scripted producer, with batches of two messages, that looks for queues each ten seconds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.outcomes = Outcomes()
        self.producer = ScriptedProducer([A0])
        outcomes: Any = self.outcomes
        sender = BatchSender(self.producer, outcomes, max_in_flight=9, ordered=True)
        clock = self.clock.monotonic
        topics = WritableTopics(self.producer, known_topics=set(), refresh_ms=10_000, clock=clock)
        limits = {"max_messages": 2, "max_bytes": 10_000, "max_total_bytes": 1 << 20}
        self.accumulator = BatchAccumulator(sender, topics, outcomes, **limits, clock=clock)  # type: ignore[arg-type]
        self.accumulator.begin()

    def add(self, body: str, key: str | None = None) -> None:
        message = Message(body.encode(), sharding_key=key)
        self.accumulator.add(message, "t", body, message, body, 100)

    @property
    def events(self) -> list[str]:
        return self.producer.events


class Setting:
    """An accumulator that has seen a topic of four queues, of which one is left."""

    def __init__(self, broker: FakeBroker, max_retries: int) -> None:
        options = ClientOptions(broker.name_server, route_refresh_ms=3_600_000, max_retries=max_retries)
        self.outcomes = Outcomes()
        self.producer = RemotingProducer(options, "group")
        sender = BatchSender(self.producer, self.outcomes, max_in_flight=2, ordered=True)  # type: ignore[arg-type]
        clock = ManualClock()
        topics = WritableTopics(
            self.producer,
            known_topics=set(),
            required_topics=frozenset({"topic"}),
            refresh_ms=3_600_000,
            clock=clock.monotonic,
        )
        limits = {"max_messages": 2, "max_bytes": 10_000, "max_total_bytes": 1 << 20}
        self.accumulator = BatchAccumulator(sender, topics, self.outcomes, **limits)  # type: ignore[arg-type]
        self.keys = self._a_key_of_each(4)
        self.run([Message(b"%d" % n) for n in range(8)])
        broker.cluster.delete_topic("topic")
        broker.cluster.create_topic("topic", 1)
        self.outcomes.stored.clear()

    def _a_key_of_each(self, count: int) -> list[str]:
        queues = self.producer.queues("topic")
        found = {queue_for_key(queues, f"k{n}"): f"k{n}" for n in range(100)}
        assert len(found) == count
        return [found[queue] for queue in queues]

    def run(self, messages: list[Message]) -> None:
        self.accumulator.begin()
        for message in messages:
            self.accumulator.add(message, "topic", None, message, message.body, 100)
        self.accumulator.finish()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.cluster.create_topic("topic", 4)
        yield fake


@pytest.fixture(params=[3])
def setting(broker: FakeBroker, request: pytest.FixtureRequest) -> Iterator[Setting]:
    made = Setting(broker, request.param)
    yield made
    made.producer.close()


def bodies(broker: FakeBroker, count: int) -> set[bytes]:
    return {record.body for record in read(RemotingClientFactory(ClientOptions(broker.name_server)), "topic", count)}


def test_messages_without_a_key_move_to_a_queue_that_is_left(broker: FakeBroker, setting: Setting) -> None:
    sent = [b"%d" % n for n in range(8)]
    setting.run([Message(body) for body in sent])
    assert sorted(setting.outcomes.stored) == sent
    assert setting.outcomes.refused == []
    assert bodies(broker, 8) == set(sent)


@pytest.mark.parametrize("setting", [0, 3], ids="with {} retries".format, indirect=True)
def test_messages_with_a_key_fail_the_bundle_which_then_finds_their_queue(broker: FakeBroker, setting: Setting) -> None:
    messages = [Message(b"%d" % n, sharding_key=key) for n, key in enumerate(setting.keys)]
    with pytest.raises(QueueNotExist, match=r"queueId\[[123]\] is illegal"):
        setting.run(messages)
    assert setting.outcomes.refused == []
    setting.outcomes.stored.clear()
    setting.run(messages)
    assert sorted(setting.outcomes.stored) == [message.body for message in messages]
    assert setting.outcomes.refused == []


def test_messages_with_a_key_are_stored_before_those_behind_them_go_to_another_queue() -> None:
    setting = Scripted()
    setting.add("1", key="k")
    setting.add("2")
    setting.producer.topic_queues = [B0]
    setting.clock.advance(10)
    setting.add("3")
    setting.add("4")
    setting.add("5", key="k")
    stored = ["submit a0 23", "await a0 23", "submit a0 1", "await a0 1"]
    assert setting.events == stored
    setting.accumulator.finish()
    assert setting.events == [*stored, "submit b0 4", "await b0 4", "submit b0 5", "await b0 5"]
    assert setting.outcomes.stored == ["2", "3", "1", "4", "5"]


def test_messages_that_have_waited_are_stored_when_they_have_been_sent() -> None:
    setting = Scripted()
    setting.add("1")
    setting.clock.advance(1)
    setting.add("2", key="k")
    setting.accumulator.send_older(setting.clock.monotonic() - 1)
    assert setting.events == ["submit a0 1", "await a0 1"]
    assert setting.outcomes.stored == ["1"]
