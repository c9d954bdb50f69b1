"""From what the user named to queues: subscriptions, shares of a record limit, and the endless search."""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import BrokerSilent, LocalError, NoPermission, TopicNotExist, TransportError
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StartOffsetError, StopAt
from rmqio.subscription import Subscription
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.reading.discovery import (
    DiscoverFn,
    DiscoveryConfig,
    WatchFn,
    describe,
    share_limit,
)
from rmqio.transforms.reading.known import Known, KnownCoder, KnownTracker
from rmqio.transforms.reading.watermark import QueueWatermark
from rmqio.transforms.shared import close_shared_clients

Q0, Q1, Q2 = (MessageQueue("t", "b", number) for number in range(3))


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        yield made
        close_shared_clients()


def client_of(cluster: InMemoryCluster) -> Any:
    return InMemoryClientFactory(cluster.name).queue_client()


# ---- subscriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("t", Subscription(topics=("t",))),
        (["b", "a", "b"], Subscription(topics=("a", "b"))),
        (("a",), Subscription(topics=("a",))),
        ({"a"}, Subscription(topics=("a",))),
        (re.compile("t.*"), Subscription(pattern="t.*", flags=re.UNICODE)),
        (re.compile("T.*", re.I), Subscription(pattern="T.*", flags=re.UNICODE | re.IGNORECASE)),
        (Q0, Subscription(queues=(Q0,))),
        ([Q1, Q0, Q1], Subscription(queues=(Q0, Q1))),
    ],
)
def test_what_can_be_subscribed_to(what: Any, expected: Subscription) -> None:
    assert Subscription.of(what) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    "what", [None, "", [], [""], 5, b"t", ["t", 5], ["t", Q0], [("t", "b", 0)], re.compile(b"t"), re.compile("")]
)
def test_what_cannot_is_refused_and_the_error_shows_it(what: Any) -> None:
    shown = [what] if isinstance(what, str) else what
    with pytest.raises(LocalError, match=re.escape(f"topic is {shown!r:.40}")):
        Subscription.of(what)


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        (Subscription(topics=("a", "b")), "a, b"),
        (Subscription(pattern="t.*"), "topics that match 't.*'"),
        (Subscription(queues=(Q0,)), "queue t/b/0"),
    ],
)
def test_a_subscription_reads_as_text(subscription: Subscription, text: str) -> None:
    assert str(subscription) == text


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("t", ["t/0", "t/1"]),
        (["t", "other"], ["other/0", "t/0", "t/1"]),
        (re.compile("t.*"), ["t/0", "t/1", "t2/0"]),
        (re.compile("t"), ["t/0", "t/1"]),
        (re.compile("OTHER", re.I), ["other/0"]),
        (re.compile("none.*"), []),
        (re.compile(".*RETRY.*"), []),
        (MessageQueue("t", "broker-a", 1), ["t/1"]),
        ([MessageQueue("t2", "broker-a", 0), MessageQueue("t", "broker-a", 1)], ["t/1", "t2/0"]),
    ],
)
def test_queues_are_found(cluster: InMemoryCluster, what: Any, found: list[str]) -> None:
    for topic, count in (("t", 2), ("t2", 1), ("other", 1), ("%RETRY%g", 1)):
        cluster.create_topic(topic, count)
    queues = Subscription.of(what).find_queues(client_of(cluster))
    assert [f"{queue.topic}/{queue.queue_id}" for queue in queues] == found


@pytest.mark.parametrize("what", ["gone", ["t", "gone"], MessageQueue("gone", "broker-a", 0)])
def test_a_missing_topic_is_an_error_where_it_was_named(cluster: InMemoryCluster, what: Any) -> None:
    cluster.create_topic("t", 1)
    with pytest.raises(TopicNotExist, match="gone"):
        Subscription.of(what).find_queues(client_of(cluster))


def test_a_missing_topic_may_be_tolerated(cluster: InMemoryCluster) -> None:
    (queue,) = cluster.create_topic("t", 1)
    assert Subscription.of(["t", "gone"]).find_queues(client_of(cluster), missing_ok=True) == [queue]


def test_a_missing_queue_is_an_error_that_names_it_unless_tolerated(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    subscription = Subscription.of(MessageQueue("t", "broker-a", 7))
    with pytest.raises(LocalError, match="queue t/broker-a/7 does not exist or cannot be read"):
        subscription.find_queues(client_of(cluster))
    assert subscription.find_queues(client_of(cluster), missing_ok=True) == []


def test_a_topic_that_vanishes_between_list_and_lookup_is_passed_over(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t1", 1)
    (left,) = cluster.create_topic("t2", 1)
    cluster.fail_next("queues", TopicNotExist(17, "gone", "route"))
    assert Subscription.of(re.compile("t.")).find_queues(client_of(cluster)) == [left]


# ---- shares of a limit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "available", "shares"),
    [
        (10, [None, None], [5, 5]),
        (10, [100, 100, 100], [4, 3, 3]),
        (10, [1, 100], [1, 9]),
        (10, [0, 3, None], [0, 3, 7]),
        (10, [2, 3], [2, 3]),
        (1, [None, None, None], [1, 0, 0]),
        (10, [], []),
        (10, [0, 0], [0, 0]),
    ],
)
def test_shares_of_a_limit(limit: int, available: list[int | None], shares: list[int]) -> None:
    assert share_limit(limit, available) == shares


@given(st.integers(1, 10_000), st.lists(st.none() | st.integers(0, 2_000), max_size=12))
def test_shares_add_up_fit_and_are_as_even_as_can_be(limit: int, available: list[int | None]) -> None:
    shares = share_limit(limit, available)
    there = limit if None in available else min(limit, sum(most or 0 for most in available))
    assert sum(shares) == there
    assert all(share >= 0 and (most is None or share <= most) for share, most in zip(shares, available, strict=True))
    open_ones = [share for share, most in zip(shares, available, strict=True) if most is None or share < most]
    if open_ones:
        assert max(shares) <= min(open_ones) + 1, "who could take more has no less than the others"


def config(cluster: InMemoryCluster, **changes: Any) -> DiscoveryConfig:
    fields: dict[str, Any] = {
        "subscription": Subscription.of("t"),
        "factory": InMemoryClientFactory(cluster.name),
        "group": None,
        "start": StartFrom.earliest(),
        "stop": None,
    }
    return DiscoveryConfig(**fields | changes)


def filled(cluster: InMemoryCluster, *counts: int) -> tuple[MessageQueue, ...]:
    queues = cluster.create_topic("t", len(counts))
    for queue, count in zip(queues, counts, strict=True):
        for number in range(count):
            cluster.append("t", b"%d" % number, queue_id=queue.queue_id)
    return queues


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"max_num_records": None}, [None, None, None]),
        ({"max_num_records": 9}, [2, 7]),
        ({"max_num_records": 15}, [3, 11, 1]),
        ({"max_num_records": 9, "stop": StopAt.latest()}, [2, 7]),
        ({"max_num_records": 99, "stop": StopAt.latest()}, [2, 10]),
        ({"max_num_records": 9, "stop": StopAt.latest(), "start": StartFrom.latest()}, []),
    ],
)
def test_descriptors_share_the_limit_and_queues_without_a_share_are_left_out(
    cluster: InMemoryCluster, changes: dict[str, Any], limits: list[int | None]
) -> None:
    queues = filled(cluster, 2, 10, 0)
    described = list(describe(queues, client_of(cluster), config(cluster, **changes)))
    assert [one.limit for one in described] == limits


def test_a_limit_is_shared_under_the_same_policies_as_the_read_has(cluster: InMemoryCluster) -> None:
    (queue,) = filled(cluster, 10)
    cluster.delete_before(queue, 4)
    found = config(
        cluster,
        max_num_records=9,
        stop=StopAt.latest(),
        start=StartFrom.specific_offsets({queue: 1}),
        on_out_of_range="earliest",
    )
    assert [one.limit for one in describe([queue], client_of(cluster), found)] == [6]


def test_a_limit_asks_no_start_of_a_queue_that_has_no_stop(cluster: InMemoryCluster) -> None:
    first, second = filled(cluster, 5, 5)
    start = StartFrom.specific_offsets({first: 1}, reset="error")
    with pytest.raises(StartOffsetError):
        start.resolve(second, client_of(cluster), group="g")
    found = config(cluster, max_num_records=9, stop=StopAt.offsets({first: 3}), start=start, group="g")
    described = list(describe([first, second], client_of(cluster), found))
    assert described == [QueueDescriptor(first, StartFrom.resolved(first, 1), StopAt.offsets({first: 3}), limit=2)]


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
    ],
)
def test_what_is_known_survives_its_coder(known: Known) -> None:
    coder = KnownCoder()
    for again in (coder.decode(coder.encode(known)), pickle.loads(pickle.dumps(known))):
        assert type(again) is Known
        assert (again, again.began_ms, again.waiting) == (known, known.began_ms, known.waiting)
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
