"""Queues of batches in turn and by key, and how long they are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rmqio.errors import LocalError, RmqioError, TopicNotExist, TransportError
from rmqio.model import MessageQueue
from rmqio.sending.accumulator import WritableTopics
from rmqio.testing import ManualClock

QUEUES = [MessageQueue("t", broker, queue_id) for broker in "ab" for queue_id in range(3)]


class Lookup:
    """The part of a producer that is asked for queues."""

    def __init__(self) -> None:
        self.answer: Sequence[MessageQueue] | RmqioError = QUEUES
        self.asked: list[str] = []

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        self.asked.append(topic)
        if isinstance(self.answer, RmqioError):
            raise self.answer
        return self.answer


@pytest.fixture
def lookup() -> Lookup:
    return Lookup()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topics(lookup: Any, clock: ManualClock) -> WritableTopics:
    return WritableTopics(
        lookup,
        known_topics={"known"},
        required_topics=frozenset({"required"}),
        refresh_ms=30_000,
        clock=clock.monotonic,
    )


def test_queues_come_in_turn_and_change_the_broker_each_time(topics: WritableTopics, lookup: Lookup) -> None:
    chosen = [topics.next_queue("t") for _ in range(12)]
    assert sorted(chosen) == sorted(QUEUES * 2)
    assert all(one.broker != other.broker for one, other in pairwise(chosen))
    assert lookup.asked == ["t"]


@pytest.mark.parametrize(
    ("key", "position"),
    # Java: Math.abs("...".hashCode() % 6); the last one's hash is Integer.MIN_VALUE, which has no absolute value
    [("", 0), ("a", 1), ("hello", 99162322 % 6), ("polygenelubricants", 2**31 % 6)],
)
def test_queue_of_a_key_is_javas(topics: WritableTopics, key: str, position: int) -> None:
    assert topics.queue_for_key("t", key) == QUEUES[position]
    assert topics.queue_for_key("t", key) == QUEUES[position]  # remembered


def test_refresh_asks_when_it_is_time_and_tells_of_changes(
    topics: WritableTopics, lookup: Lookup, clock: ManualClock
) -> None:
    assert not topics.refresh("t")  # not known yet
    before = topics.queue_for_key("t", "b")
    clock.advance(29.9)
    assert not topics.refresh("t")
    assert lookup.asked == ["t"]
    clock.advance(0.2)
    assert not topics.refresh("t")  # asked, but nothing changed
    assert lookup.asked == ["t", "t"]
    clock.advance(31)
    lookup.answer = QUEUES[:1]
    topics.refresh_all()
    assert topics.queue_for_key("t", "b") == QUEUES[0] != before
    assert {topics.next_queue("t") for _ in range(3)} == {QUEUES[0]}


@pytest.mark.parametrize("answer", [TransportError("down"), TopicNotExist(17, None, "route"), []])
def test_refresh_keeps_what_is_known_after_an_error(
    topics: WritableTopics, lookup: Lookup, clock: ManualClock, answer: Any
) -> None:
    topics.next_queue("t")
    lookup.answer = answer
    clock.advance(31)
    assert not topics.refresh("t")
    assert not topics.refresh("t")
    assert len(lookup.asked) == 2  # not again before the interval is over
    assert topics.next_queue("t") in QUEUES


def test_a_missing_topic_is_asked_for_once_a_second(topics: WritableTopics, lookup: Lookup, clock: ManualClock) -> None:
    lookup.answer = TopicNotExist(17, "none", "route")
    for _ in range(5):
        with pytest.raises(TopicNotExist):
            topics.next_queue("t")
    assert lookup.asked == ["t"]
    clock.advance(1)
    lookup.answer = QUEUES
    assert topics.next_queue("t") in QUEUES


@pytest.mark.parametrize("topic", ["known", "required"])
def test_a_topic_that_must_be_there_is_taken_for_an_outage(topics: WritableTopics, lookup: Lookup, topic: str) -> None:
    lookup.answer = TopicNotExist(17, "none", "route")
    for _ in range(2):
        with pytest.raises(TransportError, match="does not exist, or all of its brokers are down"):
            topics.next_queue(topic)
    assert lookup.asked == [topic]


def test_what_was_found_once_is_known_to_every_writer(lookup: Any, clock: ManualClock) -> None:
    known: set[str] = set()
    first, second = (WritableTopics(lookup, known_topics=known, refresh_ms=1, clock=clock.monotonic) for _ in range(2))
    first.next_queue("t")
    lookup.answer = TopicNotExist(17, "none", "route")
    with pytest.raises(TransportError, match="brokers are down"):
        second.next_queue("t")


def test_an_illegal_topic_is_refused_without_asking(topics: WritableTopics, lookup: Lookup) -> None:
    with pytest.raises(LocalError, match="illegal"):
        topics.queue_for_key("not legal", "key")
    assert lookup.asked == []


@pytest.mark.parametrize("answer", [[], LocalError("this producer is closed")])
def test_no_queue_for_the_moment_is_not_the_messages_fault(topics: WritableTopics, lookup: Lookup, answer: Any) -> None:
    lookup.answer = answer
    with pytest.raises(TransportError, match=r"no (writable )?queue"):
        topics.next_queue("t")
