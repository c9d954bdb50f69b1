"""Sends of unknown outcome, and brokers that are busy or away."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress

import pytest

from rmqio.errors import BrokerSystemError, RequestTimeout, RmqioError, SystemBusy, TransportError, WireError
from rmqio.model import WRITE_PERMISSION
from rmqio.testing import InMemoryCluster
from rmqio.transforms.writing import exactly_once
from rmqio.transforms.writing import sink_state as sinks
from tests.helpers.transforms.writing_once import GROUP, Writer, bodies, sink_of
from tests.helpers.waiting import at_most

pytestmark = pytest.mark.usefixtures("both_ways")


def test_nothing_is_repeated_while_a_broker_is_away_that_has_some_of_it(cluster: InMemoryCluster) -> None:
    """A name server soon forgets it, and its queues are not even missing."""
    queues = cluster.create_topic("t", 2, ["broker-b"])
    Writer(cluster).run(range(30))
    assert {record.broker for record in cluster.records("t")} == {"broker-a", "broker-b"}
    sinks._states.clear()
    writer = Writer(cluster, sink_of(cluster, outage_timeout_s=0.01))
    away = [queue for queue in queues if queue.broker == "broker-b"]
    cluster._topics["t"].permission["broker-b"] = 0
    with pytest.raises(TransportError, match=f"{len(away)} of {len(queues)} queues of topic 't' are unavailable"):
        writer.run(range(30))
    cluster._topics["t"].permission["broker-b"] = 6
    Writer(cluster).run(range(33))
    assert bodies(cluster) == [*range(33)]


@pytest.mark.parametrize("group", [GROUP, None])
def test_a_topic_that_nobody_may_read_is_not_written_to(cluster: InMemoryCluster, group: str | None) -> None:
    sink = dataclasses.replace(sink_of(cluster, outage_timeout_s=0.01), group=group)
    writer = Writer(cluster, sink)
    cluster._topics["t"].permission["broker-a"] = WRITE_PERMISSION
    said = r"topic 't' has no readable queues.*permission to read"
    with pytest.raises(TransportError, match=said):
        writer.run(range(3))
    cluster._topics["t"].permission["broker-a"] = 6
    assert bodies(cluster) == []


@pytest.mark.parametrize(
    "error",
    [RequestTimeout("no answer"), TransportError("reset"), WireError("no frame"), BrokerSystemError(1, "?", "send")],
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_send_of_unknown_outcome_is_looked_up(cluster: InMemoryCluster, error: RmqioError, is_stored: bool) -> None:
    writer = Writer(cluster)
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", error, after=is_stored)
    writer.process(range(3, 6))
    writer.finish()
    assert bodies(cluster) == [*range(6)]


def test_the_broker_is_waited_for_before_anything_is_sent_elsewhere(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 4, ["broker-a", "broker-b"])
    writer = Writer(cluster)
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", RequestTimeout("no answer"), after=True)
    cluster.fail_next("max_offset", TransportError("away"), times=5)
    writer.run(range(3, 6))
    assert bodies(cluster) == [*range(6)]


def test_a_broker_that_does_not_come_back_fails_the_bundle(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster, sink_of(cluster, outage_timeout_s=0.05))
    writer.run(range(3))
    writer.begin()
    cluster.fail_next("send", RequestTimeout("no answer"), after=True)
    cluster.fail_next("max_offset", TransportError("away"), times=1_000_000)
    with pytest.raises(TransportError):
        writer.run(range(3, 6))


def test_a_busy_broker_is_tried_again(cluster: InMemoryCluster) -> None:
    writer = Writer(cluster)
    cluster.fail_next("send", SystemBusy(2, "busy", "send"), times=3)
    writer.run(range(6))
    assert bodies(cluster) == [*range(6)]
    cluster.fail_next("send", SystemBusy(2, "busy", "send"), times=4)
    with pytest.raises(SystemBusy):
        writer.run(range(6, 9))


def test_a_topic_that_is_away_does_not_keep_others_from_sending(cluster: InMemoryCluster) -> None:
    (away,) = cluster.create_topic("u", 1)
    sink = sink_of(cluster)
    ready = Writer(cluster, sink)
    ready.run(range(3))
    cluster.fail_next("max_offset", TransportError("away"), times=10**6, queue=away)
    waits, go_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        waits.set()
        assert go_on.wait(at_most(30))
        raise KeyboardInterrupt

    other = exactly_once.WriteOnce(sink, lambda *_: None, sleep=sleep)

    def send() -> None:
        with suppress(KeyboardInterrupt), other.sending("u"):
            pass

    thread = threading.Thread(target=send)
    thread.start()
    assert waits.wait(at_most(30))
    ready.run(range(3, 6))  # it would wait for the other one's topic
    assert thread.is_alive()
    go_on.set()
    thread.join()
    assert bodies(cluster) == [*range(6)]
