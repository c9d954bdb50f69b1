"""The message trace beside the work: batched, bounded, and never an error of what it traces."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqio import telemetry
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError, TransportError
from rmqio.model import Message, SendResult
from rmqio.options import ClientOptions
from rmqio.sending import traces
from rmqio.sending.traces import MAX_WAITING, Entry, ReadTrace, SendTrace, Tracer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.wire.traces import TRACE_TOPIC
from tests.helpers.waiting import at_most, until


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    made = InMemoryCluster()
    yield made
    traces.close_tracers()


@pytest.fixture
def factory(cluster: InMemoryCluster) -> InMemoryClientFactory:
    return InMemoryClientFactory(cluster.name)


def traced(cluster: InMemoryCluster, topic: str = "Trace") -> list[Any]:
    return cluster.records(topic)


def entries(count: int, size: int = 10) -> list[Entry]:
    return [Entry("x" * size + "\x02", f"id{n} key{n}") for n in range(count)]


def test_entries_travel_together_and_are_found_by_ids_and_keys(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.create_topic("Trace", 1)
    made = Tracer(factory, "Trace")
    made.add(entries(3))
    made.add(entries(3))
    assert made.flush(at_most(5))
    (message,) = traced(cluster)
    assert message.body == (b"x" * 10 + b"\x02") * 6
    assert message.keys == ("id0", "key0", "id1", "key1", "id2", "key2")
    made.close()


def test_a_message_of_traces_is_as_large_as_brokers_take(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.create_topic("Trace", 1)
    made = Tracer(factory, "Trace")
    made.add([Entry("y" * 1_000 + "\x02", f"{'k' * 40}{n}") for n in range(900)])
    assert made.flush(at_most(10))
    found = traced(cluster)
    assert sum(message.body.count(b"\x02") for message in found) == 900
    assert max(len(message.body) for message in found) < 110_000
    assert max(len(" ".join(message.keys)) for message in found) < 14_000
    made.close()


@pytest.mark.parametrize("keys", ["ID9 \ud800", "ID9 a\x01b", "ID9 " + "k" * 40_000, "ID9 " + "é" * 20_000])
def test_keys_that_no_message_can_have_cost_no_trace(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, keys: str
) -> None:
    cluster.create_topic("Trace", 1)
    made = Tracer(factory, "Trace")
    made.add([Entry("a\ud800\x02", keys)])
    assert made.flush(at_most(5))
    (message,) = traced(cluster)
    assert message.keys[0] == "ID9"
    assert made.dropped == 0
    made.close()


def test_a_missing_topic_is_warned_of_once_and_what_is_traced_is_dropped(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    made = Tracer(factory, TRACE_TOPIC, clock=clock.monotonic)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            made.add(entries(2))
            assert made.flush(at_most(5))
    assert made.dropped == 10
    assert len(caplog.records) == 1
    assert "traceTopicEnable=true" in caplog.text
    assert made.room() == 0  # so that nothing is made in vain
    cluster.create_topic(TRACE_TOPIC, 1)
    clock.advance(61)
    made.add(entries(2))
    assert made.flush(at_most(5))
    assert len(traced(cluster, TRACE_TOPIC)) == 1
    made.close()


@dataclass(frozen=True)
class Stuck:
    """A factory whose producer waits, and then fails."""

    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def queue_client(self) -> Any:
        raise NotImplementedError

    def producer(self, group: str) -> Any:
        return self

    def send(self, message: Message, *_: Any, **__: Any) -> SendResult:
        self.begun.set()
        assert self.go.wait(at_most(20))
        raise TransportError("away")

    def close(self) -> None:
        pass


def test_brokers_that_do_not_answer_hold_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    made = Tracer(stuck, "Trace")
    made.add(entries(10))
    until(stuck.begun.is_set, "a send")
    with caplog.at_level(logging.WARNING):
        for _ in range(MAX_WAITING // 1_000 + 2):
            made.add(entries(1_000))
    assert made.dropped == 2_000
    assert made.room() == 0
    assert not made.flush(0.01)
    stuck.go.set()
    assert made.flush(at_most(10))
    assert made.dropped == MAX_WAITING + 2_010
    assert len(caplog.records) == 1  # the others come within a minute
    made.close()


def test_a_thread_that_cannot_begin_fails_nothing_that_is_traced(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has as many threads as it may, or it ends."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cluster.create_topic("Trace", 1)
    made = Tracer(factory, "Trace")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        made.add(entries(2))
        assert made.dropped == 2
        assert made.flush(0), "nobody would send what waits"
    made.add(entries(3))
    assert made.flush(at_most(5))
    assert sum(message.body.count(b"\x02") for message in traced(cluster)) == 3
    made.close()


def test_what_comes_after_the_end_is_dropped_and_not_waited_for(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.create_topic("Trace", 1)
    made = Tracer(factory, "Trace")
    made.add(entries(1))
    made.close(5)
    made.add(entries(2))
    assert made.flush(0)
    assert made.dropped == 2
    assert made.room() == 0


def test_drops_are_a_metric(factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Recorder:
        def record(self, metric: telemetry.Metric, labels: tuple[str, ...], value: float) -> None:
            seen.append((metric.name, labels, value))

    monkeypatch.setattr(telemetry, "recorder", Recorder())
    made = Tracer(factory, "missing")
    made.add(entries(3))
    assert made.flush(at_most(5))
    assert seen == [("traces_dropped", ("missing",), 3)]
    made.close()


def test_a_forked_child_traces_with_a_thread_of_its_own(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.create_topic("Trace", 1)
    found = traces.shared_tracer(factory, "Trace")
    assert found is not None
    found.add(entries(1))
    assert found.flush(at_most(5))
    child = os.fork()
    if not child:
        found.add(entries(1))
        os._exit(0 if found.flush(at_most(5)) and found.dropped == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_one_tracer_for_all_of_a_process(factory: InMemoryClientFactory) -> None:
    assert traces.shared_tracer(factory, False) is None
    assert traces.shared_tracer(factory, "T") is traces.shared_tracer(factory, "T")
    assert traces.shared_tracer(factory, True) is traces.shared_tracer(factory, TRACE_TOPIC)
    assert traces.shared_tracer(factory, "T") is not traces.shared_tracer(factory, "U")
    traces.close_tracers()


@pytest.mark.parametrize(("topic", "namespace"), [(TRACE_TOPIC, ""), ("Mine", "n")])
def test_the_trace_topic_of_rocketmq_is_in_no_namespace_and_no_topic_is_created(topic: str, namespace: str) -> None:
    options = ClientOptions("h:9876", namespace="n", create_topics=True, inner_batches=True, max_retries=1)
    made = traces._for_traces(RemotingClientFactory(options), topic)
    assert isinstance(made, RemotingClientFactory)
    assert made.options == ClientOptions("h:9876", namespace=namespace, max_retries=1)


def test_what_is_sent_to_the_trace_topic_or_read_there_is_not_traced(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.create_topic("Trace", 1)
    send, read = SendTrace.of(factory, "g", "Trace"), ReadTrace.of(factory, "g", "Trace")
    assert send is not None
    assert read is not None
    producer = factory.producer("g")
    result = producer.send(Message(b"x", topic="Trace"))
    send.sent([Message(b"x")], [result], 0.1)
    read.handled(read.read(traced(cluster)))
    read.flush()
    assert len(traced(cluster)) == 1
    producer.close()


def test_a_read_is_traced_before_and_after_or_not_at_all(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message with one entry of two looks as if it had failed."""
    monkeypatch.setattr(traces, "MAX_WAITING", 5)
    cluster.create_topic("Trace", 1)
    cluster.create_topic("t", 1)
    for number in range(4):
        cluster.append("t", b"%d" % number)
    read = ReadTrace.of(factory, "g", "Trace")
    assert read is not None
    taken = read.read(traced(cluster, "t"))
    read.handled(taken)
    read.flush()
    body = b"".join(message.body for message in traced(cluster))
    assert len(taken.messages) == body.count(b"SubBefore") == body.count(b"SubAfter") == 2


def test_options_that_name_no_topic_are_refused() -> None:
    from rmqio.options import ReadOptions, WriteOptions

    for cls in (ReadOptions, WriteOptions):
        values: tuple[Any, ...] = ("", 5, None)
        for value in values:
            with pytest.raises(LocalError, match=r"trace is .*True, False or the name of a topic"):
                cls(trace=value)
