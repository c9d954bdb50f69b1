"""Messages that wait for their batch: how many bytes of them, over all topics and queues, and for how long."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio import LookBack, WriteToRocketMQ
from rmqio.errors import LocalError, RmqioError, TransportError
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.testing import InMemoryClientFactory
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.outputs import WriteMetrics
from tests.helpers.own_process import in_own_process
from tests.helpers.transforms.write_bundles import Bundles
from tests.helpers.waiting import until

TOPICS = ("t", "u", "v")
CAP = 4_000
OPTIONS = WriteOptions(max_batch_messages=8, max_batch_bytes=2_000, max_total_bytes=CAP)
MESSAGES = st.tuples(
    st.sampled_from(TOPICS), st.none() | st.sampled_from("abcdef"), st.integers(1, 2_500), st.integers(0, 2)
)
"""Topic, sharding key, bytes, and seconds until the next one."""


def made(options: WriteOptions, **arguments: Any) -> Bundles:
    """Bundles with three topics. Nothing is sent by a thread: `due` says when."""
    bundles = Bundles(options, **arguments)
    for topic in TOPICS[1:]:
        bundles.cluster.create_topic(topic, 4)
    bundles.fn.start_bundle()
    return bundles


def waiting(bundles: Bundles) -> tuple[int, int]:
    """The bytes that wait, and the limits of their batches."""
    accumulator: Any = bundles.fn._accumulator
    accumulator = getattr(accumulator, "_accumulator", accumulator)
    batches = [*accumulator.unkeyed.values(), *accumulator._keyed.values()]
    assert accumulator._granted == sum(batch.limit for batch in batches)
    return sum(batch.size for batch in batches), accumulator._granted


def due(bundles: Bundles) -> float | None:
    """Sends what has waited long enough, as the thread would. Returns when the next is due."""
    timed = bundles.fn._timed
    assert timed is not None
    while (left := timed.send_due()) == 0:
        pass
    return left


def arrived(bundles: Bundles) -> dict[tuple[str, str | None], list[int]]:
    """The numbers of the messages by topic and sharding key, in their order in the queues."""
    found: dict[tuple[str, str | None], list[int]] = {}
    for topic in TOPICS:
        for record in bundles.records(topic):
            found.setdefault((topic, record.sharding_key), []).append(int(record.tags or ""))
    return found


def check(bundles: Bundles, messages: list[Any]) -> None:
    """Each message has arrived once, and in order if it has a key; each has one result."""
    found, wanted = arrived(bundles), dict[tuple[str, str | None], list[int]]()
    for number, (topic, key, *_) in enumerate(messages):
        wanted.setdefault((topic, key), []).append(number)
    assert {place: sorted(numbers) for place, numbers in found.items()} == wanted
    for (topic, key), numbers in found.items():
        assert key is None or numbers == wanted[topic, key]
    assert len(bundles.sent) == len(messages)
    assert bundles.failed == []


def message(number: int, topic: str, key: str | None, size: int) -> Message:
    return Message(bytes(size), topic=topic, tags=str(number), sharding_key=key)


@given(st.lists(MESSAGES, max_size=60), st.booleans(), st.sampled_from(["one", "many", "lists"]))
def test_the_bytes_that_wait_have_a_limit_and_nothing_is_lost(
    messages: list[Any], asynchronous: bool, way: str
) -> None:
    options = WriteOptions(max_batch_messages=8, max_batch_bytes=2_000, max_total_bytes=CAP, asynchronous=asynchronous)
    Bundles.in_batches = way == "lists"
    try:
        bundles = made(options)
        elements = [message(number, *each[:3]) for number, each in enumerate(messages)]
        for begin in range(0, len(elements), 1 if way == "one" else 9):
            bundles.process(*elements[begin : begin + (1 if way == "one" else 9)])
            size, granted = waiting(bundles)
            assert size <= granted <= CAP
        bundles.finish()
        assert waiting(bundles) == (0, 0)
        check(bundles, messages)
        bundles.fn.teardown()
    finally:
        Bundles.in_batches = False


@given(st.lists(MESSAGES, max_size=40), st.booleans())
def test_no_message_waits_for_longer_than_it_may(messages: list[Any], asynchronous: bool) -> None:
    options = WriteOptions(max_batch_bytes=2_000, max_total_bytes=CAP, max_wait_ms=2_000, asynchronous=asynchronous)
    bundles = made(options)
    bundles.fn._timed._thread = threading.current_thread()  # type: ignore[union-attr]  # `due` is called instead
    added: list[float] = []
    for number, (topic, key, size, pause) in enumerate(messages):
        bundles.process(message(number, topic, key, size))
        added.append(bundles.clock.monotonic())
        bundles.clock.advance(pause)
        left = due(bundles)
        there = {number for numbers in arrived(bundles).values() for number in numbers}
        late = [n for n, at in enumerate(added) if bundles.clock.monotonic() - at >= 2 and n not in there]
        assert late == []
        assert (left is None) == (len(there) == len(added))
    bundles.finish()
    check(bundles, messages)


def test_many_topics_share_the_limit_and_the_largest_batch_goes_first() -> None:
    bundles = made(WriteOptions(max_batch_bytes=3_000, max_total_bytes=4_100))
    bundles.process(Message(bytes(500), topic="t"), Message(bytes(900), topic="u"), Message(bytes(900), topic="u"))
    assert [*map(len, (bundles.records("t"), bundles.records("u")))] == [0, 0]
    bundles.process(Message(bytes(900), topic="v"), Message(bytes(900), topic="v"))
    assert [*map(len, (bundles.records("t"), bundles.records("u"), bundles.records("v")))] == [0, 2, 0]


# ---- the thread ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_a_message_is_sent_while_its_bundle_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    counting: list[threading.Thread] = []
    monkeypatch.setattr(WriteMetrics, "sent", lambda *_: counting.append(threading.current_thread()))
    bundles = made(WriteOptions(max_wait_ms=5))
    bundles.fn._clock = time.monotonic
    bundles.fn._connect()
    bundles.fn.start_bundle()
    for number in range(3):
        bundles.process(b"%d" % number)
        until(lambda: len(bundles.records()) == number + 1, "the next message")  # noqa: B023
    assert len(bundles.sent) == 2, "the result of the last one comes with the next call"
    bundles.finish()
    assert sorted(bundles.bodies()) == [b"0", b"1", b"2"]
    assert [each.value.message_id for each in bundles.sent] == [
        record.message_id for record in sorted(bundles.records(), key=lambda record: record.body)
    ]
    assert counting == [threading.current_thread()] * 3, "Beam's metrics are for the thread of the bundle"
    thread = bundles.fn._timed._thread  # type: ignore[union-attr]
    assert thread is not None
    bundles.fn.teardown()
    assert not thread.is_alive()


def test_a_thread_that_cannot_begin_fails_the_bundle_and_begins_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bundles = made(WriteOptions(max_wait_ms=5))
    bundles.fn._clock = time.monotonic
    bundles.fn._connect()
    bundles.fn.start_bundle()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            bundles.process(b"a")
    bundles.fn.start_bundle()
    bundles.process(b"a")
    until(lambda: bundles.bodies() == [b"a"], "the message")
    bundles.finish()
    bundles.fn.teardown()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        bundles.fn._connect()
        bundles.fn.start_bundle()
        with pytest.raises(RuntimeError, match="can't start"):
            bundles.process(b"b")
    bundles.fn.teardown()


def test_what_fails_in_the_thread_fails_the_bundle_and_the_next_one_begins_anew() -> None:
    bundles = made(WriteOptions(max_wait_ms=1_000, max_retries=0))
    bundles.fn._timed._thread = threading.current_thread()  # type: ignore[union-attr]  # `due` is called instead
    bundles.cluster.fail_next("send", TransportError("busy"))
    bundles.process(Message(b"a", topic="t"), Message(b"c", topic="u"))
    bundles.clock.advance(1)
    assert due(bundles) is None
    bundles.clock.advance(1)
    assert due(bundles) is None
    assert bundles.bodies("u") == [], "a failed bundle sends nothing more"
    for call in (lambda: bundles.process(b"b"), bundles.finish):
        with pytest.raises(RmqioError, match="busy"):
            call()
    assert bundles.bodies() == []
    bundles.run(b"a", b"b")
    assert sorted(bundles.bodies()) == [b"a", b"b"]
    assert len(bundles.sent) == 2


def test_what_a_thread_has_sent_before_its_bundle_failed_is_not_a_result() -> None:
    bundles = made(WriteOptions(max_wait_ms=1_000))
    bundles.fn._timed._thread = threading.current_thread()  # type: ignore[union-attr]  # `due` is called instead
    bundles.process(b"a")
    bundles.clock.advance(1)
    assert due(bundles) is None
    bundles.run(b"a")  # the runner runs it again
    assert bundles.bodies() == [b"a", b"a"]
    assert len(bundles.sent) == 1


def test_what_is_refused_in_the_thread_is_a_failure() -> None:
    bundles = made(WriteOptions(max_wait_ms=1_000), maker=MessageMaker("t"))
    bundles.fn._timed._thread = threading.current_thread()  # type: ignore[union-attr]  # `due` is called instead
    bundles.process(Message(b"a", properties={"p": "v" * 40_000}), b"b")
    bundles.clock.advance(1)
    assert due(bundles) is None
    bundles.finish()
    assert bundles.bodies() == [b"b"]
    assert len(bundles.failed) == 1


@in_own_process
def test_without_a_limit_of_time_there_is_no_thread() -> None:
    bundles = made(WriteOptions())
    bundles.process(b"a")
    assert bundles.fn._timed is None
    assert threading.active_count() == 1


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: WriteOptions(max_wait_ms=0), "max_wait_ms is 0; it must be a whole number of at least 1"),
        (lambda: WriteOptions(max_total_bytes=1_000), "lower max_batch_bytes"),
        (
            lambda: WriteToRocketMQ(
                "t",
                client_factory=InMemoryClientFactory("nowhere"),
                id_fn=str,
                exactly_once=LookBack(group="g"),
                options=WriteOptions(max_wait_ms=5),
            ),
            "exactly_once sends only while its bundle runs: leave WriteOptions.max_wait_ms out",
        ),
    ],
)
def test_what_cannot_be_is_refused(build: Any, text: str) -> None:
    with pytest.raises(LocalError, match=text):
        build()
