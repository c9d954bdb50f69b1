"""The endless read that finds its queues itself: in Beam's in-process runner until its sink stops it, and by hand."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp

from rmqio import MessageQueue, ReadOptions, StartFrom
from rmqio.errors import OffsetOutOfRange, TransportError
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.transforms.reading.discovery import Known
from rmqio.transforms.reading.in_process import Subscribed
from rmqio.transforms.reading.restriction import QueueRange
from tests.helpers.transforms.reading import (
    T0,
    Script,
    ScriptedSink,
    SubscriptionBundles,
    append,
    bodies,
    body,
    clean_cluster,
    clocked_cluster,
    elements_of,
    fill,
    given_up,
    read,
)

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)

# ---- in the runner --------------------------------------------------------------------------------------------------


def run_script(cluster: InMemoryCluster, transform: Any, script: Script) -> None:
    """Run an endless pipeline until the script has had its elements; fail when they do not come."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | transform | beam.Map(body) | beam.ParDo(ScriptedSink(cluster.name))
    ended = pytest.raises(Exception, match=f"Stop: after {script.stop_after} elements|^after {script.stop_after} ")
    with given_up(cluster, "too few elements came"), ended:
        pipeline.run()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["names", "pattern"])
def test_queues_and_topics_that_appear_while_it_runs_are_read_each_record_once(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    with clean_cluster() as cluster:
        q0, q1 = fill(cluster, 5, 0)
        expected = bodies(q0, range(2, 5))

        def grow() -> None:
            cluster.fail_next("topics" if what == "pattern" else "queues", TransportError("name server away"), times=2)
            (q2,) = cluster.add_queues("t", 1)
            append(cluster, q2, 4)
            (u0,) = fill(cluster, 2, topic="u")
            fill(cluster, 1, topic="other")
            expected.extend(bodies(q2, range(4)))
            expected.extend(bodies(u0, range(2)) if what == "pattern" else [])

        def go_on() -> None:
            append(cluster, q0, 1)
            append(cluster, q1, 2)
            append(cluster, MessageQueue("t", "broker-a", 2), 1)
            expected.extend([*bodies(q0, [5]), *bodies(q1, range(2)), *bodies(MessageQueue("t", "broker-a", 2), [4])])

        grown = 9 if what == "pattern" else 7
        script = Script(cluster.name, {3: grow, grown: go_on}, stop_after=grown + 4)
        transform = read(
            cluster,
            re.compile("[a-z]") if what == "pattern" else "t",
            start=StartFrom.timestamp(T0 + 2500),
            stop=None,
            options=ReadOptions(poll_timeout_ms=2, discovery_interval_ms=1, new_queue_start="earliest"),
        )
        with caplog.at_level(logging.WARNING, "rmqio"):
            run_script(cluster, transform, script)
        assert sorted(script.elements) == sorted(expected)
        assert caplog.text.count("queues could not be looked up: name server away") == 2


@pytest.mark.timeout(60)
def test_what_is_read_comes_out_while_it_runs_and_each_record_once_over_many_bundles() -> None:
    with clean_cluster(poll_records=7) as cluster:
        queues = fill(cluster, 50, 0, 23)
        written = [50, 0, 23]

        def more() -> None:
            for index, queue in enumerate(queues):
                append(cluster, queue, 9)
                written[index] += 9

        script = Script(cluster.name, {10: more, 60: more, 110: more}, stop_after=73 + 3 * 27)
        options = ReadOptions(poll_timeout_ms=2, max_records_per_bundle=3)
        run_script(cluster, read(cluster, stop=None, options=options), script)
        for queue, count in zip(queues, written, strict=True):
            prefix = b"t/%d/" % queue.queue_id
            assert [one for one in script.elements if one.startswith(prefix)] == bodies(queue, range(count))


# ---- waiting --------------------------------------------------------------------------------------------------------


def test_a_bundle_waits_once_for_all_its_queues(clocked: InMemoryCluster) -> None:
    fill(clocked, 0, 0, 0)
    bundles = SubscriptionBundles(clocked, options=ReadOptions(poll_timeout_ms=700))
    assert bundles.bundle() == []
    assert bundles.waits == [], "on the first visit the others have no reader yet"
    assert bundles.bundle() == []
    assert bundles.waits == [(3, 700)]


@pytest.mark.parametrize("busy_at", [0, 1, 2])
def test_idle_queues_do_not_hold_up_a_busy_one(clocked: InMemoryCluster, busy_at: int) -> None:
    queues = fill(clocked, 0, 0, 0)
    busy = queues[busy_at]
    bundles = SubscriptionBundles(clocked, options=ReadOptions(poll_timeout_ms=10_000))
    bundles.bundle()
    for number in range(4):
        append(clocked, busy, 1)
        before = clocked.clock.monotonic()
        assert bundles.bundle() == bodies(busy, [number])
        assert clocked.clock.monotonic() == before, "no time passed"
        assert bundles.waits == ([] if busy_at == 0 else [(3, 10_000)])


def test_the_wait_ends_with_a_message_and_all_queues_behind_are_read_in_the_same_bundle(
    clocked: InMemoryCluster,
) -> None:
    _, _, q2 = fill(clocked, 0, 0, 0)
    bundles = SubscriptionBundles(clocked, options=ReadOptions(poll_timeout_ms=10_000))
    bundles.bundle()
    assert isinstance(clocked.clock, ManualClock)
    clocked.clock.call_later(3, lambda: append(clocked, q2, 2))
    assert bundles.bundle() == bodies(q2, range(2))
    assert bundles.waits == [(3, 10_000)]


# ---- watermark, offsets, commits ------------------------------------------------------------------------------------


def test_the_watermark_is_the_least_of_the_queues(clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(clocked, 5, 3, 0)
    bundles = SubscriptionBundles(clocked, options=ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000))
    now = [100.0]
    assert bundles.fn._readers is not None
    bundles.fn._readers._monotonic = lambda: now[0]
    monkeypatch.setattr("rmqio.transforms.reading.read_fn.time.time", lambda: 1_800_000_000.0)
    bundles.bundle()
    assert bundles.watermark <= MIN_TIMESTAMP + Duration(micros=1000), "nothing is known of the third queue"
    q2 = MessageQueue("t", "broker-a", 2)
    append(clocked, q2, 2)
    bundles.bundle()
    assert bundles.watermark == Timestamp(micros=(T0 + 1_000) * 1000)
    append(clocked, q2, 2)
    bundles.bundle()
    assert bundles.watermark == Timestamp(micros=(T0 + 2_000) * 1000)
    now[0] += 1.1  # the first two have been idle since
    append(clocked, q2, 6)
    bundles.bundle()
    assert bundles.watermark == Timestamp(micros=(T0 + 9_000) * 1000)
    (q3,) = clocked.add_queues("t", 1)
    append(clocked, q3, 1)
    bundles.bundle()
    assert bundles.watermark == Timestamp(micros=(T0 + 9_000) * 1000), "never back, though the new queue is behind"
    now[0] += 0.5
    bundles.bundle()
    assert bundles.watermark == Timestamp(micros=(T0 + 9_000) * 1000), "and no further while that holds it"
    now[0] += 1.1
    bundles.bundle()
    assert bundles.watermark == Timestamp(1_800_000_000), "all are idle"


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [5, 6, 7]), ("latest", []), ("fail", None)])
def test_a_queue_goes_on_behind_deleted_messages_by_policy(
    clocked: InMemoryCluster, policy: Any, expected: list[int] | None
) -> None:
    fill(clocked, 3, 1)
    bundles = SubscriptionBundles(clocked, options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    bundles.bundle()
    append(clocked, Q0, 5)
    append(clocked, Q1, 1)
    clocked.delete_before(Q0, 5)
    if expected is None:
        with pytest.raises(OffsetOutOfRange, match=r"offset 3 is not available; the broker holds \[5, 8\)"):
            bundles.bundle()
        return
    assert bundles.bundle() == bodies(Q0, expected) + bodies(Q1, [1])
    assert bundles.starts == {Q0: 8, Q1: 2}


def test_each_queue_is_committed_when_the_bundle_is_final(clocked: InMemoryCluster) -> None:
    fill(clocked, 5, 3)
    bundles = SubscriptionBundles(clocked, options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=0))
    bundles.bundle()
    assert clocked.commits == []
    bundles.finalizer.finalize()
    assert clocked.commits == [("g", Q0, 5), ("g", Q1, 3)]


def test_size_is_the_sum_a_drain_ends_it_and_teardown_closes_its_readers(clocked: InMemoryCluster) -> None:
    fill(clocked, 5, 3)
    bundles = SubscriptionBundles(clocked)
    left = Subscribed(Known({Q0, Q1}), ((Q0, QueueRange(1)), (Q1, QueueRange(9))))
    assert bundles.fn.restriction_size(b"", left) == 4 * 1024.0
    truncate: Callable[[bytes, Subscribed], object] = bundles.fn.truncate
    assert truncate(b"", left) is None
    bundles.bundle()
    assert clocked.open_readers == 2
    bundles.fn.teardown()
    assert clocked.open_readers == 0


# ---- resuming -------------------------------------------------------------------------------------------------------


def test_another_instance_goes_on_with_the_residual_whatever_the_start(clocked: InMemoryCluster) -> None:
    fill(clocked, 5, 3)
    first = SubscriptionBundles(clocked)
    first.bundle()
    append(clocked, Q1, 2)
    (q2,) = clocked.add_queues("t", 1)
    append(clocked, q2, 1)
    second = SubscriptionBundles(clocked, start=StartFrom.latest())
    second.left = first.left
    assert second.bundle() == bodies(Q1, [3, 4]) + bodies(q2, [0])


def test_a_retried_bundle_reads_the_same_again_on_the_same_instance(clocked: InMemoryCluster) -> None:
    fill(clocked, 5, 3)
    bundles = SubscriptionBundles(clocked)
    bundles.bundle()
    append(clocked, Q0, 2)
    before = bundles.left
    assert bundles.bundle() == bodies(Q0, [5, 6])
    bundles.left = before
    assert bundles.bundle() == bodies(Q0, [5, 6])


@pytest.mark.timeout(60)
def test_a_runners_checkpoint_while_reading_leaves_the_rest_of_all_queues_to_the_residual() -> None:
    with clocked_cluster(poll_records=256) as cluster:
        fill(cluster, 600, 700)
        bundles = SubscriptionBundles(cluster)
        outputs, tracker = bundles.begin()
        runs = [next(outputs)]
        split = tracker.try_split(0)
        assert split is not None
        primary, residual = split
        assert residual == Subscribed(Known({Q0, Q1}), ((Q0, QueueRange(512)), (Q1, QueueRange(0))))
        assert dict(primary.ranges) == {Q0: QueueRange(0, 512), Q1: QueueRange(0, 0)}
        assert [*outputs] == [], "nothing more is claimed"
        tracker.check_done()
        assert tracker.deferred_status() is None
        bundles.left = residual
        found = elements_of(runs) + bundles.bundle()
        assert found == bodies(Q0, range(600)) + bodies(Q1, range(700))
