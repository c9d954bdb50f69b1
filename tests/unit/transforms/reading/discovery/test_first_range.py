"""Queues that arrive while their broker does not answer: an endless read waits for them, and reads the others."""

from __future__ import annotations

import logging
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio import MessageQueue, QueueDescriptor, StartFrom, StopAt
from rmqio.errors import BrokerSilent, NoPermission, OffsetOutOfRange, SystemBusy
from rmqio.start import StartOffsetError
from rmqio.testing import InMemoryCluster
from rmqio.transforms.reading import read_fn as first_ranges
from rmqio.transforms.reading.restriction import QueueRange
from tests.helpers.transforms.reading import (
    T0,
    QueueBundles,
    Script,
    ScriptedSink,
    append,
    bodies,
    body,
    clean_cluster,
    fill,
    given_up,
    read_all,
)

SILENT = BrokerSilent("broker-a is silent")


@pytest.fixture(autouse=True)
def begins_at_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads begin when three messages of a queue are there."""
    monkeypatch.setattr(first_ranges, "now_ms", lambda: T0 + 3_000)
    monkeypatch.setattr(first_ranges, "_warned_at", {})


# start, what the broker is asked when the queue arrives and later, and the first offset of its five messages
STARTS: list[tuple[StartFrom, list[Any], int]] = [
    (StartFrom.earliest(), ["min_offset", "min_offset"], 0),
    (StartFrom.latest(), ["max_offset", "offset_for_time"], 3),
    (StartFrom.timestamp(T0 + 1_000), ["max_offset", "offset_for_time"], 1),
    (StartFrom.group_offsets("latest"), ["committed_offset", "offset_for_time"], 3),
    (StartFrom.group_offsets("earliest"), ["committed_offset", "min_offset"], 0),
]


@pytest.mark.parametrize(("start", "asked", "first"), STARTS)
def test_a_queue_waits_for_its_broker_and_then_starts_as_if_it_had_answered(
    clocked: InMemoryCluster, start: StartFrom, asked: list[Any], first: int
) -> None:
    here, away = fill(clocked, 3, 3)
    clocked.fail_next(asked[0], SILENT, queue=away)
    bundles = QueueBundles(clocked, [here, away], start=start)
    assert bundles.left[away] == QueueRange(0, None, None, T0 + 3_000)
    append(clocked, here, 2)
    append(clocked, away, 2)
    clocked.fail_next(asked[1], SILENT, queue=away)
    assert bundles.bundle() == bodies(here, range(first, 5))
    assert bundles.left[away] == QueueRange(0, None, None, T0 + 3_000)
    assert bundles.watermark(away) == MIN_TIMESTAMP
    assert bundles.bundle() == bodies(away, range(first, 5))
    assert bundles.left[away] == QueueRange(5)
    assert bundles.watermark(away) > MIN_TIMESTAMP


def test_an_offset_that_the_group_has_committed_is_where_a_waiting_queue_starts(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    clocked.commit("g", queue, 2)
    clocked.fail_next("committed_offset", SILENT, queue=queue)
    bundles = QueueBundles(clocked, [queue], start=StartFrom.group_offsets())
    assert bundles.bundle() == bodies(queue, [2, 3, 4])


def test_a_busy_broker_is_waited_for_too(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 2)
    clocked.fail_next("min_offset", SystemBusy(2, "busy", "min"), queue=queue)
    bundles = QueueBundles(clocked, [queue])
    assert bundles.bundle() == bodies(queue, range(2))


def test_the_limit_of_a_waiting_queue_is_kept(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    clocked.fail_next("min_offset", SILENT, queue=queue)
    bundles = QueueBundles(clocked, [queue])
    element = QueueDescriptor(queue, limit=2)
    clocked.fail_next("min_offset", SILENT, queue=queue)
    bundles.left[queue] = bundles.fn.initial_restriction(element)
    assert bundles.bundle() == bodies(queue, range(2))


@pytest.mark.parametrize(
    ("start", "error", "raised"),
    [
        (StartFrom.earliest(), NoPermission(16, "no", "min"), NoPermission),
        (StartFrom.group_offsets("error"), None, StartOffsetError),
        (StartFrom.specific_offsets({MessageQueue("t", "broker-a", 0): 9}), None, OffsetOutOfRange),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_other_errors_are_raised(
    clocked: InMemoryCluster, start: StartFrom, error: Any, raised: Any, waits: bool
) -> None:
    (queue,) = fill(clocked, 1)
    asked: Any = "min_offset" if start.kind != "group_offsets" else "committed_offset"
    if waits:
        clocked.fail_next(asked, SILENT, queue=queue)
    elif error is not None:
        clocked.fail_next(asked, error, queue=queue)
    if not waits:
        with pytest.raises(raised):
            QueueBundles(clocked, [queue], start=start)
        return
    bundles = QueueBundles(clocked, [queue], start=start)
    if error is not None:
        clocked.fail_next(asked, error, queue=queue)
    with pytest.raises(raised):
        bundles.bundle()


@pytest.mark.parametrize("stop", [StopAt.latest(), StopAt.timestamp(T0)])
def test_a_read_with_an_end_fails_since_its_end_is_where_the_queue_ends_now(
    clocked: InMemoryCluster, stop: StopAt
) -> None:
    (queue,) = fill(clocked, 3)
    clocked.fail_next("max_offset", SILENT, queue=queue)
    with pytest.raises(BrokerSilent):
        QueueBundles(clocked, [queue], stop=stop)
    endless = QueueBundles(clocked, [queue])
    clocked.fail_next("max_offset", SILENT, queue=queue)
    with pytest.raises(BrokerSilent):
        endless.fn.initial_restriction(QueueDescriptor(queue, stop=stop))


def test_on_drain_a_queue_that_still_waits_is_left_to_the_next_run(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 3)
    clocked.fail_next("min_offset", SILENT, queue=queue)
    bundles = QueueBundles(clocked, [queue])
    assert bundles.fn.truncate(QueueDescriptor(queue), bundles.left[queue]) is None


def test_a_waiting_queue_is_warned_of_once_a_minute(clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    queues = fill(clocked, 1, 1)
    for queue in queues:
        clocked.fail_next("min_offset", SILENT, times=4, queue=queue)
    with caplog.at_level(logging.WARNING, "rmqio"):
        bundles = QueueBundles(clocked, queues)
        for _ in range(3):
            assert bundles.bundle() == []
    (said,) = caplog.messages
    assert said == f"{queues[0]} waits for its broker, which does not answer: broker-a is silent"


def test_read_all_reads_on_beside_a_silent_broker() -> None:
    """In Beam's own runner, which processes the queues in turn and retries at once."""
    with clean_cluster() as cluster:
        here, away = fill(cluster, 3, 2)
        cluster.fail_next("min_offset", SILENT, times=3, queue=away)
        sink = Script("beside a silent broker", {3: lambda: append(cluster, here, 1)}, 6)
        pipeline = beam.Pipeline(runner=FnApiRunner())
        topics = pipeline | beam.Create(["t"], reshuffle=False)
        _ = topics | read_all(cluster, stop=None) | beam.Map(body) | beam.ParDo(ScriptedSink("beside a silent broker"))
        with given_up(cluster, "too few elements came"), pytest.raises(Exception, match="after 6 elements"):
            pipeline.run()
    assert sorted(sink.elements) == sorted([*bodies(here, range(4)), *bodies(away, range(2))])
