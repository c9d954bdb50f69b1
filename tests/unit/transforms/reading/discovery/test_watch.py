"""The endless search for queues."""

from __future__ import annotations

import logging
import pickle
import re
import time
from contextlib import nullcontext
from typing import Any

import pytest
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio.errors import (
    BrokerSilent,
    LocalError,
    NoPermission,
    QueueNotReadable,
    RmqioError,
    SetupError,
    TopicNotExist,
    TransportError,
)
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import (
    DiscoverFn,
    DiscoveryConfig,
    Known,
    KnownCoder,
    KnownTracker,
    WatchFn,
    describe,
)
from rmqio.transforms.reading.restriction import QueueDescriptor, QueueWatermark
from tests.helpers.client.discovering import client_of, config, filled

Q0, Q1, Q2 = (MessageQueue("t", "b", number) for number in range(3))

# ---- the endless search ---------------------------------------------------------------------------------------------


def test_tracker_claims_grow_what_is_known_and_a_checkpoint_ends_it() -> None:
    tracker = KnownTracker(Known({Q0}))
    assert tracker.try_claim(Known({Q0, Q1}))
    assert tracker.current_restriction() == Known({Q0, Q1})
    assert tracker.try_split(0.5) is None
    with pytest.raises(ValueError, match="without a checkpoint"):
        tracker.check_done()
    assert tracker.try_split(0) == (Known({Q0, Q1}), Known({Q0, Q1}))
    assert tracker.try_split(0) is None
    assert not tracker.try_claim(Known({Q0, Q1, Q2}))
    assert tracker.current_restriction() == Known({Q0, Q1})
    tracker.check_done()
    assert not tracker.is_bounded()
    assert tracker.current_progress().completed_work == 2.0


@pytest.mark.parametrize(
    "known",
    [
        Known(),
        Known({Q0}),
        Known((), 1_700_000_000_000),
        Known({Q0, Q1, MessageQueue("%RETRY%g", "b-1", 12)}, 5, {Q2, MessageQueue("t", "b-1", 0)}),
        Known({Q0}, 5, {Q1}, {Q2, MessageQueue("t", "b-1", 0)}),
    ],
)
def test_what_is_known_survives_its_coder(known: Known) -> None:
    coder = KnownCoder()
    for again in (coder.decode(coder.encode(known)), pickle.loads(pickle.dumps(known))):
        assert type(again) is Known
        assert (again, again.began_ms) == (known, known.began_ms)
        assert (again.waiting, again.away) == (known.waiting, known.away)
    assert coder.is_deterministic()


class Watch:
    """Drives `WatchFn` as a harness does, bundle by bundle."""

    def __init__(self, found: DiscoveryConfig) -> None:
        self.fn = WatchFn(found)
        self.restriction: Any = self.fn.initial_restriction(b"")
        self.estimator = QueueWatermark(int(MIN_TIMESTAMP.micros))

    def bundle(self) -> list[Any]:
        coder = self.fn.restriction_coder()
        restriction = coder.decode(coder.encode(self.restriction))
        tracker = ThreadsafeRestrictionTracker(self.fn.create_tracker(restriction))
        outputs = list(self.fn.process(b"", RestrictionTrackerView(tracker), self.estimator))
        tracker.check_done()
        status = tracker.deferred_status()
        assert status is not None, "the search must go on"
        self.restriction = status[0]
        assert all(output.timestamp == MIN_TIMESTAMP for output in outputs)
        return [output.value for output in outputs]


def test_watch_gives_each_queue_once_and_added_ones_from_the_start_asked_for(cluster: InMemoryCluster) -> None:
    queues = cluster.create_topic("t", 2)
    watch = Watch(config(cluster, interval_ms=0))
    assert watch.bundle() == [QueueDescriptor(queue, StartFrom.resolved(queue, 0)) for queue in queues]
    assert watch.bundle() == []
    (added,) = cluster.add_queues("t", 1)
    assert watch.bundle() == [QueueDescriptor(added, StartFrom.resolved(added, 0))]
    assert watch.bundle() == []


def test_watch_can_start_added_queues_at_their_end(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    watch = Watch(config(cluster, interval_ms=0, new_queue_start="latest"))
    watch.bundle()
    (added,) = cluster.add_queues("t", 1)
    cluster.append("t", b"", queue_id=added.queue_id)
    assert watch.bundle() == [QueueDescriptor(added, StartFrom.resolved(added, 1))]


def test_watch_goes_on_where_the_group_is_in_a_queue_that_was_away_at_the_start(cluster: InMemoryCluster) -> None:
    filled(cluster, 1)
    watch = Watch(config(cluster, interval_ms=0, start=StartFrom.group_offsets("earliest"), group="g"))
    watch.bundle()
    (late,) = cluster.add_queues("t", 1)
    for _ in range(4):
        cluster.append("t", b"", queue_id=late.queue_id)
    cluster.commit("g", late, 2)
    assert watch.bundle() == [QueueDescriptor(late, StartFrom.resolved(late, 2))]


def test_watch_waits_for_a_silent_broker_and_then_starts_its_queue_as_if_it_had_answered(
    cluster: InMemoryCluster,
) -> None:
    first, second = filled(cluster, 3, 0)
    cluster.fail_next("max_offset", BrokerSilent("b is silent"), queue=second)
    watch = Watch(config(cluster, interval_ms=60_000, start=StartFrom.latest()))
    assert watch.bundle() == [QueueDescriptor(first, StartFrom.resolved(first, 3))]
    assert watch.restriction.waiting == {second}
    assert watch.estimator.current_watermark() == MIN_TIMESTAMP, "its messages may be older than the clock"
    cluster.append("t", b"", queue_id=second.queue_id)
    assert watch.bundle() == [QueueDescriptor(second, StartFrom.resolved(second, 0))], "stored since the start"
    assert watch.restriction.waiting == frozenset()
    watch.bundle()
    assert watch.estimator.current_watermark() > MIN_TIMESTAMP


def test_watch_waits_for_a_late_queue_of_a_silent_broker_that_is_forgotten(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name servers forget the broker, and the job restarts from a checkpoint: the watermark still waits."""
    filled(cluster, 3)
    settings = config(cluster, interval_ms=0, start=StartFrom.latest())
    watch = Watch(settings)
    watch.bundle()
    (late,) = cluster.add_queues("t", 1)
    cluster.append("t", b"", queue_id=late.queue_id)
    cluster.fail_next("min_offset", BrokerSilent("silent"), queue=late, times=2)
    assert watch.bundle() == []
    assert watch.restriction.away == {late}
    before = watch.estimator.current_watermark()
    restored = KnownCoder().decode(KnownCoder().encode(watch.restriction))
    assert restored == watch.restriction
    assert restored.away == {late}
    found = Subscription.find_queues
    monkeypatch.setattr(Subscription, "find_queues", lambda *args, **named: {*found(*args, **named)} - {late})
    watch = Watch(settings)
    watch.restriction = restored
    assert watch.bundle() == []
    assert watch.estimator.current_watermark() <= before
    assert watch.bundle() == [QueueDescriptor(late, StartFrom.resolved(late, 0))]
    assert watch.restriction.away == frozenset()


def test_a_queue_that_is_added_during_the_first_look_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr("rmqio.transforms.reading.discovery.time", clock)
    find = Subscription.find_queues
    with InMemoryCluster(clock=clock) as cluster:
        filled(cluster, 1)

        def find_and_add(self: Subscription, client: Any, *, missing_ok: bool = False) -> list[MessageQueue]:
            found = find(self, client, missing_ok=missing_ok)
            if not missing_ok:
                clock.advance(1)
                (added,) = cluster.add_queues("t", 1)
                for _ in range(5):
                    cluster.append("t", b"", queue_id=added.queue_id)
                clock.advance(1)
            return found

        monkeypatch.setattr(Subscription, "find_queues", find_and_add)
        clock.advance(1)
        watch = Watch(config(cluster, interval_ms=0, start=StartFrom.latest()))
        watch.bundle()
        (late,) = watch.bundle()
        assert late.start == StartFrom.resolved(late.queue, 0)


def test_a_look_that_fails_does_not_forget_that_a_queue_waits(cluster: InMemoryCluster) -> None:
    filled(cluster, 1)
    watch = Watch(config(cluster, interval_ms=0))
    watch.bundle()
    (late,) = cluster.add_queues("t", 1)
    cluster.fail_next("min_offset", BrokerSilent("silent"), queue=late)
    before = watch.estimator.current_watermark()
    watch.bundle()
    cluster.fail_next("queues", TransportError("no name server"))
    time.sleep(0.002)
    watch.bundle()
    assert watch.estimator.current_watermark() == before
    assert [descriptor.queue for descriptor in watch.bundle()] == [late]


@pytest.mark.parametrize("waits", [True, False])
def test_what_does_not_pass_by_itself_is_raised(cluster: InMemoryCluster, waits: bool) -> None:
    (queue,) = filled(cluster, 1)
    cluster.fail_next("min_offset", BrokerSilent("silent") if waits else NoPermission(16, "no", "min"), times=2)
    with pytest.raises(BrokerSilent if waits else NoPermission):
        Watch(config(cluster)).bundle()  # no queue can be read
    with pytest.raises(BrokerSilent if waits else NoPermission):
        list(describe([queue], client_of(cluster), config(cluster, stop=StopAt.latest())))


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [(QueueNotReadable("its permission is 2"), False), (SetupError("no such certificate"), True)],
)
def test_a_late_queue_is_passed_over_only_if_it_is_not_there_to_read(
    cluster: InMemoryCluster, error: RmqioError, is_raised: bool
) -> None:
    filled(cluster, 1)
    watch = Watch(config(cluster, interval_ms=0))
    watch.bundle()
    (late,) = cluster.add_queues("t", 1)
    cluster.fail_next("min_offset", error, queue=late)
    with pytest.raises(SetupError) if is_raised else nullcontext():
        assert watch.bundle() == []
    assert [descriptor.queue for descriptor in watch.bundle()] == [late]


# ---- queues that are named ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        (MessageQueue("t", "broker-a", 7), "broker 'broker-a' has queues 0 to 1 of 't'"),
        (MessageQueue("t", "brokr-a", 1), "the nearest of those is queue t/broker-a/1. If broker 'brokr-a' is down"),
        (MessageQueue("tt", "broker-a", 1), "the nearest of those is queue t/broker-a/1"),
    ],
)
@pytest.mark.parametrize("bounded", [True, False])
def test_an_offset_of_a_queue_that_is_not_read_is_refused_with_the_nearest(
    cluster: InMemoryCluster, queue: MessageQueue, message: str, bounded: bool
) -> None:
    cluster.create_topic("t", 2)
    if bounded:
        found = config(cluster, stop=StopAt.offsets({queue: 3}))
    else:
        found = config(cluster, start=StartFrom.specific_offsets({queue: 3}))
    with pytest.raises(LocalError, match=re.escape(message)):
        list(DiscoverFn(found).process(b"")) if bounded else Watch(found).bundle()


def test_watch_goes_on_when_a_pattern_matches_nothing_at_first(cluster: InMemoryCluster) -> None:
    watch = Watch(config(cluster, subscription=Subscription.of(re.compile("t.*")), interval_ms=0))
    assert watch.bundle() == []
    assert watch.estimator.current_watermark() == MIN_TIMESTAMP
    (queue,) = cluster.create_topic("t1", 1)
    assert [descriptor.queue for descriptor in watch.bundle()] == [queue]


def test_watch_looks_again_only_after_its_interval(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    watch = Watch(config(cluster, interval_ms=60_000))
    assert len(watch.bundle()) == 1
    cluster.add_queues("t", 1)
    assert watch.bundle() == []


def test_watch_holds_no_watermark_back_once_it_has_found_queues(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    watch = Watch(config(cluster, interval_ms=60_000))
    watch.bundle()
    assert watch.estimator.current_watermark() > MIN_TIMESTAMP


def test_watch_fails_on_a_missing_topic_at_first_and_later_only_warns(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicNotExist):
        Watch(config(cluster, interval_ms=0)).bundle()
    cluster.create_topic("t", 1)
    watch = Watch(config(cluster, interval_ms=0))
    watch.bundle()
    cluster.fail_next("queues", TransportError("reset"))
    (added,) = cluster.add_queues("t", 1)
    with caplog.at_level(logging.WARNING, "rmqio"):
        assert watch.bundle() == []
    assert "t: queues could not be looked up: reset" in caplog.text
    assert [descriptor.queue for descriptor in watch.bundle()] == [added]
