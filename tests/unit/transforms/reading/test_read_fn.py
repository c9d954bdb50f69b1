"""The DoFn that reads one queue, driven by hand: runs, resuming, waiting, watermarks, splits, commits; its readers."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from rmqio import MessageQueue, QueueDescriptor, ReadOptions, StartFrom, StopAt
from rmqio.errors import OffsetOutOfRange, TransportError, WireError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.descriptor import QueueDescriptorCoder
from rmqio.transforms.reading.read_fn import ReadQueueFn
from rmqio.transforms.reading.readers import Readers, Slot
from rmqio.transforms.reading.restriction import QueueRange
from rmqio.transforms.shared import shared_client
from tests.helpers.reading import T0, QueueBundles, append, bodies, clocked_cluster, elements_of, fill
from tests.helpers.records import record_of

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


@pytest.fixture
def clocked() -> Iterator[InMemoryCluster]:
    with clocked_cluster() as made:
        yield made


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


def slot_of(readers: Readers, queue: MessageQueue, offset: int) -> Slot:
    slot = readers.slot(queue, offset)
    assert slot is not None
    return slot


def test_an_error_behind_what_has_arrived_waits_until_that_is_through() -> None:
    with clocked_cluster(poll_records=2) as cluster:
        (queue,) = fill(cluster, 9)
        bundles = QueueBundles(cluster, [queue])
        assert bundles.fn._readers is not None
        slot = slot_of(bundles.fn._readers, queue, 0)
        reader, polls = slot.reader, itertools.count(1)

        class FailsAfterTwo:
            """The reader, whose third poll finds its messages deleted."""

            def __getattr__(self, name: str) -> Any:
                return getattr(reader, name)

            def poll(self) -> FetchedBatch | None:
                if next(polls) == 3:
                    cluster.delete_before(queue, 7)
                return reader.poll()

        slot.reader = FailsAfterTwo()
        outputs, _ = bundles.begin(queue)
        assert elements_of([next(outputs)]) == bodies(queue, range(4))
        with pytest.raises(OffsetOutOfRange, match=r"offset 4 is not available; the broker holds \[7, 9\)"):
            next(outputs)


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


# ---- readers --------------------------------------------------------------------------------------------------------


class SlowReader:
    """A reader whose pull is not answered."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue, self.position, self.is_at_end = queue, 0, False

    def is_ready(self) -> bool:
        return False

    def poll(self) -> FetchedBatch | None:
        return None

    def seek(self, offset: int) -> None:
        self.position = offset

    def close(self) -> None:
        pass


def test_a_broker_that_does_not_answer_costs_a_bundle_its_wait_once_and_not_once_a_queue(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = fill(clocked, 0, 0, 0)
    factory = InMemoryClientFactory(clocked.name)
    client: Any = shared_client(factory)
    waits: list[int] = []
    monkeypatch.setattr(client, "open_reader", lambda queue, offset, message_filter: SlowReader(queue))
    monkeypatch.setattr(client, "wait", lambda readers, timeout_ms: waits.append(timeout_ms))
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=300)
    readers.start_bundle()
    for queue in queues:
        assert not readers.await_data(slot_of(readers, queue, 0))
    assert sum(waits) == 300
    waits.clear()
    readers.start_bundle()
    readers.await_data(slot_of(readers, queues[0], 0))
    assert waits == [200], "a new bundle has a new budget"


def test_a_reader_that_has_not_been_used_for_half_a_minute_is_closed(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 1, 1)
    now = [0.0]
    factory = InMemoryClientFactory(clocked.name)
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=1, monotonic=lambda: now[0])
    readers.slot(q0, 0)
    now[0] = 29.0
    readers.slot(q1, 0)
    readers.start_bundle()
    assert clocked.open_readers == 2
    now[0] = 31.0
    readers.start_bundle()
    assert clocked.open_readers == 1
    readers.close()
    assert clocked.open_readers == 0


def test_a_slot_is_positioned_where_its_restriction_begins(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 9)
    readers = Readers(InMemoryClientFactory(clocked.name), MessageFilter(), poll_timeout_ms=1)
    slot = slot_of(readers, queue, 3)
    assert slot.reader.position == 3
    slot.reader.poll()
    assert readers.slot(queue, 5) is slot
    assert slot.reader.position == 5
    readers.close()


# ---- values of the read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "descriptor",
    [
        QueueDescriptor(Q0),
        QueueDescriptor(Q0, StartFrom.earliest(), StopAt.latest(), 5),
        QueueDescriptor(Q0, StartFrom.timestamp(T0), StopAt.timestamp(T0)),
        QueueDescriptor(Q0, StartFrom.group_offsets("error"), StopAt.offsets({Q0: 9})),
        QueueDescriptor(Q0, StartFrom.specific_offsets({Q0: 4}, "earliest")),
    ],
)
def test_a_descriptor_survives_its_coder(descriptor: QueueDescriptor) -> None:
    coder = QueueDescriptorCoder()
    assert coder.decode(coder.encode(descriptor)) == descriptor
    assert coder.encode(descriptor) == coder.encode(coder.decode(coder.encode(descriptor)))


def test_a_descriptor_carries_the_offsets_of_its_own_queue_only() -> None:
    both = {Q0: 4, Q1: 5}
    encoded = QueueDescriptorCoder().encode(QueueDescriptor(Q1, StartFrom.specific_offsets(both), StopAt.offsets(both)))
    decoded = QueueDescriptorCoder().decode(encoded)
    assert decoded.start == StartFrom.specific_offsets({Q1: 5})
    assert decoded.stop == StopAt.offsets({Q1: 5})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"null", json.dumps({"queue": [1]}).encode()])
def test_garbage_is_no_descriptor(data: bytes) -> None:
    with pytest.raises(WireError, match="not a queue descriptor"):
        QueueDescriptorCoder().decode(data)


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
