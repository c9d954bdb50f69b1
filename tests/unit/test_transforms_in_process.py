"""The endless read that finds its queues itself: in Beam's in-process runner until its sink stops it, and by hand."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rmqio import MessageQueue, ReadOptions, StartFrom
from rmqio.errors import LocalError, OffsetOutOfRange, TopicNotExist, TransportError, WireError
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.transforms.discovery import Known
from rmqio.transforms.in_process import Found, QueueClaim, Subscribed, SubscribedCoder, SubscribedTracker
from rmqio.transforms.restriction import Claim, QueueRange
from rmqio.transforms.shared import shared_client
from tests.helpers.reading import (
    T0,
    Script,
    ScriptedSink,
    Stop,
    SubscriptionBundles,
    append,
    bodies,
    body,
    clean_cluster,
    clocked_cluster,
    elements_of,
    fill,
    read,
)  # fmt: skip

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


@pytest.fixture
def clocked() -> Iterator[InMemoryCluster]:
    with clocked_cluster() as made:
        yield made


# ---- in the runner --------------------------------------------------------------------------------------------------


def run_script(transform: Any, script: Script, name: str) -> None:
    """Run an endless pipeline until the script has had its elements."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | transform | beam.Map(body) | beam.ParDo(ScriptedSink(name))
    with pytest.raises(Exception, match=f"after {script.stop_after} elements") as caught:
        pipeline.run()
    assert isinstance(caught.value, Stop) or "Stop" in str(caught.value)


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
            run_script(transform, script, cluster.name)
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
        run_script(read(cluster, stop=None, options=options), script, cluster.name)
        for queue, count in zip(queues, written, strict=True):
            prefix = b"t/%d/" % queue.queue_id
            assert [one for one in script.elements if one.startswith(prefix)] == bodies(queue, range(count))


# ---- where queues start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartFrom.earliest(), {Q0: 0, Q1: 0}),
        (StartFrom.latest(), {Q0: 5, Q1: 3}),
        (StartFrom.timestamp(T0 + 1500), {Q0: 1, Q1: 1}),
        (StartFrom.specific_offsets({Q0: 4}, "latest"), {Q0: 4, Q1: 3}),
        (StartFrom.group_offsets("earliest"), {Q0: 2, Q1: 0}),
    ],
    ids=["earliest", "latest", "time", "offsets", "group"],
)
@pytest.mark.parametrize("new_queue_start", ["earliest", "latest"])
def test_the_first_queues_start_by_the_strategy_and_later_ones_at_new_queue_start(
    clocked: InMemoryCluster, start: StartFrom, first: dict[MessageQueue, int], new_queue_start: str
) -> None:
    fill(clocked, 5, 3)
    clocked.commit("g", Q0, 2)
    bundles = SubscriptionBundles(clocked, start=start, new_queue_start=new_queue_start)
    assert bundles.bundle() == bodies(Q0, range(first[Q0], 5)) + bodies(Q1, range(first[Q1], 3))
    (q2,) = clocked.add_queues("t", 1)
    append(clocked, q2, 4)
    clocked.commit("g", q2, 1)
    old = range(4) if new_queue_start == "earliest" else range(0)
    assert bundles.bundle() == bodies(q2, old)
    append(clocked, q2, 2)
    append(clocked, Q0, 1)
    assert bundles.bundle() == bodies(Q0, [5]) + bodies(q2, [4, 5])
    assert bundles.starts == {Q0: 6, Q1: 3, q2: 6}
    assert bundles.left.known == {Q0, Q1, q2}


def test_a_pattern_that_matches_nothing_yet_is_looked_up_again_and_then_starts_by_the_strategy(
    clocked: InMemoryCluster,
) -> None:
    bundles = SubscriptionBundles(clocked, re.compile("t+"), start=StartFrom.specific_offsets({Q0: 2}, "earliest"))
    assert bundles.bundle() == []
    assert bundles.left == Subscribed(Known())
    fill(clocked, 4)
    assert bundles.bundle() == bodies(Q0, [2, 3])


def test_only_the_subscribed_queues_are_read(clocked: InMemoryCluster) -> None:
    fill(clocked, 2, 2)
    bundles = SubscriptionBundles(clocked, Q1)
    assert bundles.bundle() == bodies(Q1, range(2))
    clocked.add_queues("t", 1)
    bundles.bundle()
    assert bundles.left.known == {Q1}


# ---- looking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation"), ["queues", "min_offset"])
def test_an_error_of_the_first_look_is_raised_and_of_a_later_one_survived_and_logged(
    clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture, operation: Any
) -> None:
    fill(clocked, 2)
    clocked.fail_next(operation, TransportError("reset"))
    bundles = SubscriptionBundles(clocked)
    with pytest.raises(TransportError, match="reset"):
        bundles.bundle()
    assert caplog.records == []
    assert bundles.bundle() == bodies(Q0, range(2))
    (q1,) = clocked.add_queues("t", 1)
    append(clocked, Q0, 1)
    append(clocked, q1, 1)
    clocked.fail_next(operation, TransportError("reset"))
    with caplog.at_level(logging.INFO, "rmqio"):
        assert bundles.bundle() == bodies(Q0, [2]), "what is known is read on"
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        assert caplog.messages == ["t: queues could not be looked up: reset"]
        assert bundles.bundle() == bodies(q1, [0]), "found by the next look"
    assert caplog.messages[1:] == [f"t: found 1 new queues: {q1}"]


def test_a_missing_topic_fails_the_first_look_and_a_deleted_one_is_not_a_reason_to_stop_looking(
    clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicNotExist, match="gone"):
        SubscriptionBundles(clocked, "gone").bundle()
    with pytest.raises(LocalError, match="does not exist"):
        fill(clocked, 1)
        SubscriptionBundles(clocked, Q1).bundle()
    fill(clocked, 1, topic="u")
    bundles = SubscriptionBundles(clocked, ["t", "u"])
    bundles.bundle()
    clocked.delete_topic("u")
    clocked.add_queues("t", 1)
    bundles.fn._look(RestrictionTrackerView(bundles._open(bundles.left)))
    assert caplog.records == []


def test_it_looks_at_once_and_then_every_interval(clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(clocked, 1)
    now = [1_000.0]
    monkeypatch.setattr("rmqio.transforms.in_process.time", SimpleNamespace(monotonic=lambda: now[0]))
    looks: list[str] = []
    bundles = SubscriptionBundles(clocked, interval_ms=30_000)
    client: Any = shared_client(bundles.config.factory)
    queues = client.queues
    client.queues = lambda topic: looks.append(topic) or queues(topic)
    for seconds, expected in [(0.0, 1), (29.0, 1), (0.9, 1), (0.2, 2), (29.9, 2), (0.1, 3)]:
        now[0] += seconds
        bundles.bundle()
        assert len(looks) == expected


def test_without_any_queue_it_sleeps_instead_of_spinning(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    fake = SimpleNamespace(monotonic=lambda: 0.0, sleep=slept.append)
    monkeypatch.setattr("rmqio.transforms.in_process.time", fake)
    bundles = SubscriptionBundles(clocked, re.compile("none"), options=ReadOptions(poll_timeout_ms=700))
    assert bundles.bundle() == []
    assert slept == [0.7]


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
    monkeypatch.setattr("rmqio.transforms.read_fn.time.time", lambda: 1_800_000_000.0)
    bundles.bundle()
    assert bundles.watermark == MIN_TIMESTAMP, "nothing is known of the third queue"
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
    assert bundles.fn.truncate(b"", left) is None
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


# ---- the law of the tracker -----------------------------------------------------------------------------------------

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]
starts = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 5), max_size=4)


@dataclass
class Law:
    """Looks, claims and checkpoints at random; keeps what was claimed of each queue."""

    data: st.DataObject
    begun: dict[MessageQueue, int] = field(default_factory=dict)
    claimed: dict[MessageQueue, list[int]] = field(default_factory=dict)

    def bundle(self, restriction: Subscribed) -> Subscribed:
        """One bundle; gives the residual after its coder."""
        tracker = ThreadsafeRestrictionTracker(SubscribedTracker(restriction))
        view = RestrictionTrackerView(tracker)
        residual: Subscribed | None = None
        for _ in range(self.data.draw(st.integers(0, 6))):
            action = self.data.draw(st.sampled_from(["look", "claim", "claim", "claim", "split", "checkpoint"]))
            if action == "look":
                self.look(view, is_over=residual is not None)
            elif action == "claim" and self.begun:
                self.claim(view, is_over=residual is not None)
            elif action == "split":
                before = tracker.current_restriction()
                assert tracker.try_split(self.data.draw(st.sampled_from([0.01, 0.5, 1.0]))) is None
                assert tracker.current_restriction() == before
            elif action == "checkpoint":
                split = tracker.try_split(0)
                assert (split is None) == (residual is not None), "one checkpoint, always granted"
                if split is not None:
                    residual = self.partition(restriction, *split)
                    assert split[0] == tracker.current_restriction()
        if residual is None:
            with pytest.raises(ValueError, match="without a checkpoint"):
                tracker.check_done()
            view.defer_remainder(Duration(seconds=1))
            status = tracker.deferred_status()
            assert status is not None
            residual = self.partition(restriction, tracker.current_restriction(), status[0])
        else:
            view.defer_remainder(Duration(seconds=1))
            assert tracker.deferred_status() is None
        tracker.check_done()
        assert not tracker.is_bounded()
        coder = SubscribedCoder()
        return coder.decode(coder.encode(residual))

    def look(self, view: RestrictionTrackerView, *, is_over: bool) -> None:
        known = view.current_restriction().known
        found = {queue: start for queue, start in self.data.draw(starts).items() if queue not in known}
        assert view.try_claim(Found(found)) is not is_over
        if not is_over:
            self.begun |= found
            assert view.current_restriction().known == known | set(found)

    def claim(self, view: RestrictionTrackerView, *, is_over: bool) -> None:
        ranges = dict(view.current_restriction().ranges)
        queue = self.data.draw(st.sampled_from(sorted(ranges)))
        done = self.claimed.setdefault(queue, [])
        position = done[-1] + 1 if done else self.begun[queue]
        last = position + self.data.draw(st.integers(0, 4))
        assert view.try_claim(QueueClaim(queue, Claim(last, 1))) is not is_over
        if not is_over:
            done.extend(range(position, last + 1))

    def partition(self, before: Subscribed, primary: Subscribed, residual: Subscribed) -> Subscribed:
        """Each queue is cut at one offset: what has been claimed of it below, what is left above."""
        assert before.known <= primary.known == residual.known == set(self.begun)
        cut = dict(primary.ranges)
        assert set(cut) == set(self.begun)
        assert dict(residual.ranges) == {queue: QueueRange(one.stop) for queue, one in cut.items()}
        for queue, one in before.ranges:
            assert cut[queue].start == one.start
        for queue, one in cut.items():
            done = self.claimed.get(queue)
            assert one.stop == (done[-1] + 1 if done else self.begun[queue])
        assert residual, "Beam drops a residual that is false"
        return residual


@given(st.data())
def test_every_offset_of_every_queue_is_claimed_exactly_once_over_any_checkpoints(data: st.DataObject) -> None:
    law = Law(data)
    left = Subscribed(Known())
    for _ in range(data.draw(st.integers(1, 4))):
        left = law.bundle(left)
    for queue, offsets in law.claimed.items():
        assert offsets == list(range(law.begun[queue], law.begun[queue] + len(offsets)))
    assert dict(left.ranges) == {
        queue: QueueRange(start + len(law.claimed.get(queue, ()))) for queue, start in law.begun.items()
    }


def test_progress_counts_the_queues_and_never_ends() -> None:
    progress = SubscribedTracker(Subscribed(Known({Q0, Q1}))).current_progress()
    assert (progress.completed_work, progress.remaining_work) == (2.0, 1.0)


# ---- the coder ------------------------------------------------------------------------------------------------------

offsets = st.integers(0, (1 << 63) - 1)
some_text = st.text(st.characters(), max_size=5)
some_queues = st.builds(MessageQueue, some_text, some_text, st.integers(0, 99))
subscribed = st.builds(
    lambda ranges, more: Subscribed(Known({*ranges, *more}), tuple(sorted(ranges.items()))),
    st.dictionaries(some_queues, st.builds(QueueRange, offsets, st.none() | offsets), max_size=4),
    st.sets(some_queues, max_size=2),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(subscribed)
def test_a_restriction_survives_its_coder(value: Subscribed) -> None:
    coder = SubscribedCoder()
    decoded = coder.decode(coder.encode(value))
    assert decoded == value
    assert type(decoded.known) is Known
    assert all(type(queue) is MessageQueue and type(left) is QueueRange for queue, left in decoded.ranges)


@given(subscribed)
def test_equal_restrictions_have_one_encoding(value: Subscribed) -> None:
    other = Subscribed(Known(reversed(list(value.known))), tuple(reversed(value.ranges)))
    assert SubscribedCoder().encode(other) == SubscribedCoder().encode(value)


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, 5, "x", {"known": []}, {"ranges": []}, {"known": 5, "ranges": []}, {"known": [5], "ranges": []},
        {"known": [["t", "b"]], "ranges": []}, {"known": [["t", "b", 1, 2]], "ranges": []},
        {"known": [], "ranges": [[["t", "b", 1]]]}, {"known": [], "ranges": [[["t", "b", 1], [1, 2, 3, 4]]]},
        {"known": [], "ranges": [[["t", "b", 1], []]]}, {"known": [[[], "b", 1]], "ranges": []},
    ],
)  # fmt: skip
def test_json_of_another_shape_is_no_restriction(value: Any) -> None:
    with pytest.raises(WireError, match="not a restriction of a subscription"):
        SubscribedCoder().decode(json.dumps(value).encode())


@given(
    st.binary(max_size=40)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.builds(lambda known, ranges: json.dumps({"known": known, "ranges": ranges}).encode(), json_values, json_values)
)
def test_garbage_is_a_wire_error_or_a_restriction(data: bytes) -> None:
    try:
        assert isinstance(SubscribedCoder().decode(data), Subscribed)
    except WireError:
        return


@given(subscribed, st.data())
def test_a_cut_off_restriction_is_a_wire_error(value: Subscribed, data: st.DataObject) -> None:
    encoded = SubscribedCoder().encode(value)
    with pytest.raises(WireError):
        SubscribedCoder().decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_the_coder_is_deterministic_and_equal_by_type() -> None:
    coder = SubscribedCoder()
    assert coder.is_deterministic()
    assert coder == SubscribedCoder()
    assert hash(coder) == hash(SubscribedCoder())
    assert coder.to_type_hint() is Subscribed
