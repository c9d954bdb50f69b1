"""The DoFn that reads one queue reports to its runner and its broker: commits, watermarks, splits, sizes."""

from __future__ import annotations

from typing import Any

import pytest
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from rmqio import QueueDescriptor, ReadOptions, StopAt
from rmqio.errors import BrokerSilent
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.topics import Subscription
from rmqio.transforms.reading.pacing import BURST_S, RateLimit, pacer_of
from rmqio.transforms.reading.restriction import QueueRange
from rmqio.transforms.shared import shared_client
from tests.helpers.transforms.reading import T0, QueueBundles, append, bodies, clocked_cluster, elements_of, fill


def test_commits_are_registered_with_the_finalizer_and_happen_when_it_runs(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=0))
    bundles.bundle()
    assert clocked.commits == []
    bundles.finalizer.finalize()
    assert clocked.commits == [("g", queue, 5)]
    bundles.bundle()
    assert bundles.finalizer.callbacks == [], "nothing new, nothing to commit"
    append(clocked, queue, 1)
    bundles.bundle()
    bundles.finalizer.finalize()
    assert clocked.commits == [("g", queue, 5), ("g", queue, 6)]


def test_a_commit_waits_for_its_interval(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(
        clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=3_600_000)
    )
    bundles.bundle()
    bundles.finalizer.finalize()
    append(clocked, queue, 1)
    bundles.bundle()
    assert bundles.finalizer.callbacks == []


def test_late_finalizers_do_not_take_the_group_back(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=0))
    bundles.bundle()
    append(clocked, queue, 1)
    bundles.bundle()
    bundles.finalizer.callbacks.reverse()
    bundles.finalizer.finalize()
    assert clocked.commits == [("g", queue, 6)]


@pytest.mark.parametrize(("late_ms", "expected"), [(0, T0 + 4_000), (1500, T0 + 2_500)])
def test_the_watermark_follows_the_newest_timestamp_less_the_disorder(
    clocked: InMemoryCluster, late_ms: int, expected: int
) -> None:
    (queue,) = fill(clocked, 5)
    options = ReadOptions(poll_timeout_ms=1, max_out_of_orderness_ms=late_ms, idle_timeout_ms=3_600_000)
    bundles = QueueBundles(clocked, [queue], options=options)
    assert bundles.watermark(queue) == MIN_TIMESTAMP
    bundles.bundle()
    assert bundles.watermark(queue) == Timestamp(micros=expected * 1000)
    clocked.append("t", b"late", born_ms=T0)
    assert bundles.bundle() == [b"late"]
    assert bundles.watermark(queue) == Timestamp(micros=expected * 1000), "never back"


def test_an_idle_queue_follows_the_clock_and_a_busy_one_does_not(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = fill(clocked, 0, 200)
    options = ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000, max_records_per_bundle=1)
    bundles = QueueBundles(clocked, [idle, busy], options=options)
    now = [100.0]
    assert bundles.fn._readers is not None
    bundles.fn._readers._monotonic = lambda: now[0]
    monkeypatch.setattr("rmqio.transforms.reading.read_fn.time.time", lambda: 1_800_000_000.0)
    bundles.bundle()
    now[0] += 0.9
    bundles.bundle()
    assert bundles.watermark(idle) == MIN_TIMESTAMP
    now[0] += 0.2
    bundles.bundle()
    assert bundles.watermark(idle) == Timestamp(1_800_000_000)
    assert bundles.watermark(busy) == Timestamp(micros=(T0 + 95_000) * 1000)


def test_an_idle_queue_follows_the_clock_only_while_its_broker_answers(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that hangs may hold messages that nobody has seen. They must not be late when it goes on.

    It answers before it has stored them, so the queue is idle for a second again before it follows the clock.
    """
    silent, healthy = fill(clocked, 1, 1)
    options = ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000)
    bundles = QueueBundles(clocked, [silent, healthy], options=options)
    now = [100.0]
    assert bundles.fn._readers is not None
    bundles.fn._readers._monotonic = lambda: now[0]
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0 + now[0])
    bundles.bundle()
    clocked.fail_next("max_offset", BrokerSilent("no answer"), times=3, queue=silent)
    for _ in range(3):
        now[0] += 1.5
        bundles.bundle()
        assert bundles.watermark(silent) == Timestamp(T0 / 1000)
        assert bundles.watermark(healthy) == Timestamp(1_800_000_000 + now[0])
    now[0] += 0.2
    bundles.bundle()
    assert bundles.watermark(silent) == Timestamp(T0 / 1000), "nobody is asked all the time"
    for after_s, number in ((1.5, 1), (0.9, 2), (0.9, 3)):
        now[0] += after_s
        bundles.bundle()
        assert bundles.watermark(silent) == Timestamp(T0 / 1000 + number - 1)
        append(clocked, silent, 1)
        assert bundles.bundle() == bodies(silent, [number])
    bundles.bundle()
    now[0] += 1.5
    bundles.bundle()
    assert bundles.watermark(silent) == Timestamp(1_800_000_000 + now[0])


def test_an_answer_that_its_broker_has_kept_back_does_not_move_an_idle_queue(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (queue,) = fill(clocked, 1)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000))
    now, hangs_s = [100.0], [2.0, 2.0, 0.0]
    readers = bundles.fn._readers
    assert readers is not None
    readers._monotonic = lambda: now[0]
    client = shared_client(readers._factory)
    look_up = client.look_up

    def slow(queries: Any) -> Any:
        now[0] += hangs_s.pop(0)
        return look_up(queries)

    monkeypatch.setattr(client, "look_up", slow)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0 + now[0])
    bundles.bundle()
    now[0] += 1.5
    bundles.bundle()
    assert bundles.watermark(queue) == Timestamp(T0 / 1000), "it may have hung"
    now[0] += 0.1
    asked = 1_800_000_000 + now[0] - 2.1
    bundles.bundle()
    assert bundles.watermark(queue) == Timestamp(asked), "always slow: what was known at the query before"
    now[0] += 0.2
    bundles.bundle()
    assert bundles.watermark(queue) == Timestamp(1_800_000_000 + now[0])


@pytest.mark.parametrize(("tags", "idle"), [("a", False), ("b", True)], ids=["that pass", "that the filter drops"])
def test_a_queue_that_gives_a_message_now_and_then_is_not_idle(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, tags: str, idle: bool
) -> None:
    (queue,) = fill(clocked, 1, tags="a")
    options = ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000)
    bundles = QueueBundles(clocked, [queue], options=options, message_filter=MessageFilter("a"))
    now = [100.0]
    assert bundles.fn._readers is not None
    bundles.fn._readers._monotonic = lambda: now[0]
    monkeypatch.setattr("rmqio.transforms.reading.read_fn.time.time", lambda: 1_800_000_000.0)
    bundles.bundle()
    for number in range(1, 5):
        now[0] += 0.6
        append(clocked, queue, 1, tags=tags)
        assert bundles.bundle() == ([] if idle else bodies(queue, [number]))
    expected = Timestamp(1_800_000_000) if idle else Timestamp(micros=(T0 + 4_000) * 1000)
    assert bundles.watermark(queue) == expected


def test_the_clock_does_not_pass_messages_that_a_limit_has_cut_off(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 30)
    options = ReadOptions(poll_timeout_ms=1, idle_timeout_ms=0)
    limit = RateLimit(10, Subscription(topics=("t",)), "cut", alone=True)
    bundles = QueueBundles(clocked, [queue], options=options, rate_limit=limit)
    got = bundles.bundle()
    assert 0 < len(got) < 30
    assert bundles.watermark(queue) == Timestamp(T0 / 1000 + len(got) - 1)


def test_parts_of_a_queue_that_one_process_reads_have_a_share_of_the_limit_each(clocked: InMemoryCluster) -> None:
    """As of Flink, whose tasks are threads of one worker: together they have what the queue may."""
    (queue,) = fill(clocked, 2_000)
    limit = RateLimit(40, Subscription(topics=("t",)), "parts", splits_per_queue=2)
    for part, share in ((QueueRange(0, 1_000), 20), (QueueRange(1_000, 2_000), 40)):
        bundles = QueueBundles(clocked, [queue], stop=StopAt.latest(), rate_limit=limit)
        bundles.left[queue] = part
        bundles.bundle()
        pacer = pacer_of(limit, InMemoryClientFactory(clocked.name))
        assert pacer.cut_at(0) == share * BURST_S


@pytest.mark.timeout(60)
def test_a_split_while_reading_leaves_the_tail_to_the_residual() -> None:
    with clocked_cluster(poll_records=256) as cluster:
        (queue,) = fill(cluster, 1000)
        bundles = QueueBundles(cluster, [queue], stop=StopAt.latest())
        assert bundles.left[queue] == QueueRange(0, 1000)
        outputs, tracker = bundles.begin(queue)
        runs = [next(outputs)]
        assert len(runs[0].value.records) == 512
        assert tracker.try_split(0.25) == (QueueRange(0, 634), QueueRange(634, 1000))
        runs += outputs
        assert elements_of(runs) == bodies(queue, range(634))
        tracker.check_done()
        assert tracker.deferred_status() is None
        bundles.left[queue] = QueueRange(634, 1000)
        assert bundles.bundle() == bodies(queue, range(634, 1000))


@pytest.mark.timeout(60)
def test_a_runners_checkpoint_while_reading_leaves_the_rest_to_the_residual() -> None:
    with clocked_cluster(poll_records=256) as cluster:
        (queue,) = fill(cluster, 1000)
        bundles = QueueBundles(cluster, [queue])
        outputs, tracker = bundles.begin(queue)
        runs = [next(outputs)]
        assert tracker.try_split(0) == (QueueRange(0, 512), QueueRange(512))
        assert [*outputs] == []
        tracker.check_done()
        bundles.left[queue] = QueueRange(512)
        assert elements_of(runs) + bundles.bundle() == bodies(queue, range(1000))


def test_size_is_what_is_left_by_the_mean_size_of_messages(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 10)
    bundles = QueueBundles(clocked, [queue])
    fn, descriptor = bundles.fn, QueueDescriptor(queue)
    assert fn.restriction_size(descriptor, QueueRange(0)) == 10 * 1024.0
    assert fn.restriction_size(descriptor, QueueRange(4, 6)) == 2 * 1024.0
    assert fn.restriction_size(descriptor, QueueRange(50)) == 0.0


@pytest.mark.parametrize(
    ("restriction", "truncated"),
    [(QueueRange(5), None), (QueueRange(5, 9), QueueRange(5, 9)), (QueueRange(5, None, 3), None)],
)
def test_a_drain_ends_an_endless_range_and_finishes_a_bounded_one(
    clocked: InMemoryCluster, restriction: QueueRange, truncated: QueueRange | None
) -> None:
    (queue,) = fill(clocked, 1)
    assert QueueBundles(clocked, [queue]).fn.truncate(QueueDescriptor(queue), restriction) == truncated
