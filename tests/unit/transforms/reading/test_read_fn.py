"""The DoFn that reads one queue, driven by hand: its runs and bundles, how it resumes and waits, and its end."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rmqio import ReadOptions, StopAt
from rmqio.errors import OffsetOutOfRange, TransportError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.transforms.reading.read_fn import ReadQueueFn
from rmqio.transforms.reading.restriction import QueueRange
from tests.helpers.transforms.reading import QueueBundles, append, bodies, clocked_cluster, elements_of, fill
from tests.helpers.transforms.records import record_of


def test_an_endless_read_resumes_where_the_bundle_before_ended(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(clocked, [queue])
    assert bundles.bundle() == bodies(queue, range(5))
    assert bundles.left[queue] == QueueRange(5)
    assert bundles.bundle() == []
    append(clocked, queue, 2)
    assert bundles.bundle() == bodies(queue, [5, 6])
    assert bundles.left[queue] == QueueRange(7)


def test_another_instance_goes_on_with_the_residual_and_ignores_the_start(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    first = QueueBundles(clocked, [queue])
    first.bundle()
    append(clocked, queue, 1)
    second = QueueBundles(clocked, [queue])
    second.left = dict(first.left)
    assert second.bundle() == bodies(queue, [5])


def test_a_retried_bundle_reads_the_same_again_on_the_same_instance(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(clocked, [queue])
    before = dict(bundles.left)
    assert bundles.bundle() == bodies(queue, range(5))
    bundles.left = before
    assert bundles.bundle() == bodies(queue, range(5))


def test_a_bundle_ends_itself_after_its_records(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 100)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(max_records_per_bundle=40, poll_timeout_ms=1))
    assert bundles.bundle() == bodies(queue, range(64))  # whole pulls of 32
    assert bundles.sizes == [64]
    assert bundles.bundle() == bodies(queue, range(64, 100))


# poll_records, max_records_per_bundle, messages, bytes of a body, the bundles' runs
RUNS = [
    (32, 20_000, 1100, 10, [[512, 512, 76]]),
    (500, 20_000, 1100, 10, [[1000, 100]]),
    (32, 520, 1100, 10, [[512, 32], [512, 32], [12]]),
    (32, 1, 40, 10, [[32], [8]]),
    (1, 20_000, 8, 200_000, [[6, 2]]),
]


@pytest.mark.parametrize(("poll_records", "most", "count", "size", "expected"), RUNS)
def test_polls_are_joined_to_runs_up_to_their_records_and_bytes_and_what_the_bundle_may_still_hold(
    poll_records: int, most: int, count: int, size: int, expected: list[list[int]]
) -> None:
    with clocked_cluster(poll_records=poll_records) as cluster:
        (queue,) = cluster.create_topic("t", 1)
        for number in range(count):
            cluster.append("t", b"%d" % number + bytes(size))
        bundles = QueueBundles(cluster, [queue], options=ReadOptions(max_records_per_bundle=most, poll_timeout_ms=1))
        for sizes in expected:
            bundles.bundle()
            assert bundles.sizes == sizes
        assert bundles.left[queue] == QueueRange(count)


@pytest.mark.timeout(60)
def test_a_bundle_ends_in_time_where_the_filter_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with clocked_cluster(poll_records=1) as cluster:
        (queue,) = fill(cluster, 50, tags="other")
        options = ReadOptions(poll_timeout_ms=1, max_bundle_ms=10_000)
        bundles = QueueBundles(cluster, [queue], message_filter=MessageFilter("wanted"), options=options)
        ticks = itertools.count()
        monkeypatch.setattr(
            "rmqio.transforms.reading.read_fn.time", SimpleNamespace(monotonic=lambda: next(ticks), time=time)
        )
        assert bundles.bundle() == []
        assert 5 < bundles.left[queue].start < 15, "a second a look at the clock, ten seconds a bundle"


@pytest.mark.parametrize("most", [20_000, 2], ids=["between runs of a bundle", "between bundles"])
def test_a_failing_poll_fails_the_bundle_after_what_came_before_it(clocked: InMemoryCluster, most: int) -> None:
    (queue,) = fill(clocked, 3)
    options = ReadOptions(poll_timeout_ms=1, max_records_per_bundle=most)
    bundles = QueueBundles(clocked, [queue], options=options)
    outputs, _ = bundles.begin(queue)
    runs = [next(outputs)]
    clocked.fail_next("poll", TransportError("reset"))
    if most > 3:
        with pytest.raises(TransportError, match="reset"):
            next(outputs)
    else:
        assert list(outputs) == []
        with pytest.raises(TransportError, match="reset"):
            bundles.bundle()
    assert elements_of(runs) == bodies(queue, range(3))


@pytest.mark.parametrize(("policy", "expected"), [("earliest", range(550, 600)), ("latest", range(0)), ("fail", None)])
def test_messages_deleted_between_two_runs_of_a_bundle_are_skipped_by_policy(
    clocked: InMemoryCluster, policy: Any, expected: range | None
) -> None:
    (queue,) = fill(clocked, 600)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    outputs, tracker = bundles.begin(queue)
    assert elements_of([next(outputs)]) == bodies(queue, range(512))
    clocked.delete_before(queue, 550)
    if expected is None:
        with pytest.raises(OffsetOutOfRange, match=r"offset 512 is not available; the broker holds \[550, 600\)"):
            next(outputs)
        return
    assert elements_of(outputs) == bodies(queue, expected)
    tracker.check_done()
    assert tracker.deferred_status()[0] == QueueRange(600)


def test_a_new_queue_is_not_waited_for_and_an_idle_one_once(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 0, 0)
    bundles = QueueBundles(clocked, [q0, q1], options=ReadOptions(poll_timeout_ms=700))
    assert bundles.bundle() == []
    assert bundles.waits == []
    assert bundles.bundle() == []
    assert bundles.waits == [(2, 700)], "one wait, on both queues at once"


def test_a_bundle_that_has_emitted_does_not_wait(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 0, 0)
    bundles = QueueBundles(clocked, [q0, q1])
    bundles.bundle()
    append(clocked, q0, 3)
    assert bundles.bundle() == bodies(q0, range(3))
    assert bundles.waits == []


def test_the_wait_on_an_idle_queue_ends_when_a_busy_sibling_has_something(clocked: InMemoryCluster) -> None:
    idle, busy = fill(clocked, 0, 0)
    bundles = QueueBundles(clocked, [idle, busy], options=ReadOptions(poll_timeout_ms=10_000))
    bundles.bundle()
    append(clocked, busy, 2)
    before = clocked.clock.monotonic()
    assert bundles.bundle() == bodies(busy, range(2))
    assert bundles.waits == [(2, 10_000)]
    assert clocked.clock.monotonic() == before, "it was ready, so no time passed"


def test_a_message_that_comes_during_the_wait_is_read_in_the_same_bundle(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 0)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(poll_timeout_ms=10_000))
    bundles.bundle()
    assert isinstance(clocked.clock, ManualClock)
    clocked.clock.call_later(3, lambda: append(clocked, queue, 1))
    assert bundles.bundle() == bodies(queue, [0])


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [5, 6, 7]), ("latest", [])])
def test_an_endless_read_goes_on_behind_deleted_messages_by_policy(
    clocked: InMemoryCluster, policy: Any, expected: list[int]
) -> None:
    (queue,) = fill(clocked, 3)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    bundles.bundle()
    append(clocked, queue, 5)
    clocked.delete_before(queue, 5)
    assert bundles.bundle() == bodies(queue, expected)
    assert bundles.left[queue] == QueueRange(8)


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_a_topic_that_was_made_anew_stops_the_read_whatever_the_policy(clocked: InMemoryCluster, policy: Any) -> None:
    (queue,) = fill(clocked, 5)
    bundles = QueueBundles(clocked, [queue], options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    bundles.bundle()
    clocked.delete_topic("t")
    fill(clocked, 2)
    with pytest.raises(OffsetOutOfRange, match=r"offset 5 is not available; the broker holds \[0, 2\)"):
        bundles.bundle()


def test_teardown_closes_the_readers_and_is_idempotent(clocked: InMemoryCluster) -> None:
    queues = fill(clocked, 1, 1)
    bundles = QueueBundles(clocked, queues)
    bundles.bundle()
    assert clocked.open_readers == 2
    bundles.fn.teardown()
    bundles.fn.teardown()
    assert clocked.open_readers == 0


def test_a_finished_queues_reader_is_closed_at_once(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 3)
    bundles = QueueBundles(clocked, [queue], stop=StopAt.latest())
    assert bundles.bundle() == bodies(queue, range(3))
    assert clocked.open_readers == 0
    assert bundles.left[queue] == QueueRange(0, 0)


def test_a_run_ends_at_what_its_bodies_take_however_small_they_were_stored() -> None:
    """Compressed a thousandfold, messages that fit the bytes of a run would be half a gigabyte."""
    record = record_of(b"x" * 600 * 1024)._replace(stored_size=600)

    class Endless:
        polls = 0

        def is_ready(self) -> bool:
            return True

        def poll(self) -> FetchedBatch:
            self.polls += 1
            return FetchedBatch([record], (), 0, 1_000)

    reader = Endless()
    run = ReadQueueFn._more(object.__new__(ReadQueueFn), reader, reader.poll(), 5_000, float("inf"))  # type: ignore[arg-type]
    assert len(run.records) == reader.polls == 2
