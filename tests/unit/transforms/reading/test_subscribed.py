"""The restriction of the endless read that finds its queues itself: every offset of every queue exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Duration
from hypothesis import given
from hypothesis import strategies as st

from rmqio import MessageQueue
from rmqio.errors import WireError
from rmqio.transforms.reading.discovery import Known, Look
from rmqio.transforms.reading.in_process import QueueClaim, Subscribed, SubscribedCoder, SubscribedTracker
from rmqio.transforms.reading.restriction import Claim, QueueRange

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
        assert view.try_claim(Look(found, 1)) is not is_over
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
        assert before.known <= primary.known == residual.known == Known(self.begun)
        cut = dict(primary.ranges)
        assert set(cut) == set(self.begun)
        assert dict(residual.ranges) == {queue: QueueRange(one.stop or 0) for queue, one in cut.items()}
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
    progress = SubscribedTracker(Subscribed(Known(QUEUES[:2]))).current_progress()
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
