"""Laws of the queue range's tracker: whatever claims, checkpoints and splits come, every offset is had exactly once."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from apache_beam.coders import registry
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Duration
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rmqio.transforms  # noqa: F401 (registers the coders)
from rmqio.errors import WireError
from rmqio.transforms.reading.restriction import Claim, QueueRange, QueueRangeCoder, QueueRangeTracker, Start

END = 60
"""The broker's end in these tests: an endless range is read up to here."""


@dataclass
class Run:
    """Takes ranges apart at random; keeps what was claimed and the primaries that are left behind."""

    gaps: bool
    data: st.DataObject
    claimed: list[int] = field(default_factory=list)
    records: int = 0
    primaries: list[QueueRange] = field(default_factory=list)
    waiting: list[QueueRange] = field(default_factory=list)

    def run(self, whole: QueueRange) -> None:
        self.waiting.append(whole)
        while self.waiting:
            self._process(self.waiting.pop())

    def _process(self, restriction: QueueRange) -> None:
        """One bundle on one restriction, through Beam's own wrappers, as an SDK harness does it."""
        tracker = ThreadsafeRestrictionTracker(QueueRangeTracker(restriction))
        view = RestrictionTrackerView(tracker)
        position, left = restriction.start, restriction.limit
        for _ in range(self.data.draw(st.integers(0, 6))):
            if self.data.draw(st.booleans()):
                position, left = self._claim(view, position, left)
            else:
                fraction = self.data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
                self._runner_splits(tracker, fraction)
        if self.data.draw(st.integers(0, 9)) == 0:
            # Reads all that is left, so that an endless range or a large one comes to its end.
            while True:
                before = position
                position, left = self._claim(view, position, left)
                if position == before:
                    break
        view.defer_remainder(Duration(seconds=1))
        status = tracker.deferred_status()
        if status is not None:
            residual, delay = status
            assert isinstance(residual, QueueRange)
            assert delay <= Duration(seconds=1)
            if residual.start < END:
                self.waiting.append(residual)
        tracker.check_done()
        self.primaries.append(tracker.current_restriction())

    def _claim(self, view: RestrictionTrackerView, position: int, left: int | None) -> tuple[int, int | None]:
        restriction = view.current_restriction()
        stop = END if restriction.stop is None else restriction.stop
        size = self.data.draw(st.integers(1, 15))
        last = min(position + size, stop, END) - 1
        if last < position:
            return position, left
        found = [offset for offset in range(position, last + 1) if not (self.gaps and offset % 3 == 0)]
        if left is not None and len(found) >= left:
            found = found[:left]
            last = found[-1] if found else last
        if left == 0:
            return position, left
        assert view.try_claim(Claim(last, len(found), END))
        self.claimed.extend(range(position, last + 1))
        self.records += len(found)
        return last + 1, None if left is None else left - len(found)

    def _runner_splits(self, tracker: ThreadsafeRestrictionTracker, fraction: float) -> None:
        before = tracker.current_restriction()
        split = tracker.try_split(fraction)
        if split is None:
            assert tracker.current_restriction() == before
            return
        primary, residual = split
        assert primary == tracker.current_restriction()
        assert (primary.start, residual.stop) == (before.start, before.stop)
        assert primary.stop == residual.start, "residual and primary partition the range"
        assert primary.start <= primary.stop
        self.waiting.append(residual)


ranges = st.builds(
    lambda start, length: QueueRange(start, None if length is None else start + length),
    st.integers(0, 30),
    st.none() | st.integers(0, 30),
)


@given(ranges, st.booleans(), st.data())
def test_every_offset_is_claimed_exactly_once_and_the_primaries_partition_the_range(
    whole: QueueRange, gaps: bool, data: st.DataObject
) -> None:
    run = Run(gaps, data)
    run.run(whole)
    stop = END if whole.stop is None else whole.stop
    assert sorted(run.claimed) == list(range(whole.start, stop))
    borders = sorted((primary.start, primary.stop) for primary in run.primaries if primary.start != primary.stop)
    joined = whole.start
    for begin, end in borders:
        assert begin == joined
        assert end is not None
        joined = end
    assert joined == stop


@given(ranges, st.integers(0, 25), st.booleans(), st.data())
def test_under_a_limit_as_many_records_come_as_the_limit_or_the_range_permits_from_its_start_on(
    whole: QueueRange, limit: int, gaps: bool, data: st.DataObject
) -> None:
    run = Run(gaps, data)
    run.run(whole._replace(limit=limit))
    stop = END if whole.stop is None else whole.stop
    passing = [offset for offset in range(whole.start, stop) if not (gaps and offset % 3 == 0)]
    assert run.records == min(limit, len(passing))
    assert sorted(run.claimed) == list(range(whole.start, whole.start + len(run.claimed)))


@given(
    st.integers(0, 20),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 10),
    st.lists(st.integers(1, 8), max_size=5),
)
def test_check_done_raises_if_and_only_if_something_is_left(
    start: int, length: int | None, limit: int | None, sizes: list[int]
) -> None:
    stop = None if length is None else start + length
    tracker = QueueRangeTracker(QueueRange(start, stop, limit))
    position, left = start, limit
    for size in sizes:
        if tracker.try_claim(Claim(position + size - 1, size)):
            position += size
            left = None if left is None else left - size
    is_left = not ((stop is not None and position >= stop) or left == 0)
    if is_left:
        with pytest.raises(ValueError, match=f"offsets from {position} on of .* neither read nor deferred"):
            tracker.check_done()
        assert tracker.try_split(0) == (QueueRange(start, position), QueueRange(position, stop, left))
    tracker.check_done()
    assert tracker.try_split(0) is None


@pytest.mark.parametrize(
    ("restriction", "bounded", "done"),
    [
        (QueueRange(5), False, False),
        (QueueRange(5, 9), True, False),
        (QueueRange(5, 5), True, True),
        (QueueRange(9, 5), True, True),
        (QueueRange(5, None, 3), True, False),
        (QueueRange(5, None, 0), True, True),
        (QueueRange(5, 9, 0), True, True),
    ],
)
def test_only_a_stop_or_a_limit_bounds_a_range(restriction: QueueRange, bounded: bool, done: bool) -> None:
    tracker = QueueRangeTracker(restriction)
    assert restriction.is_bounded is tracker.is_bounded() is bounded
    assert restriction.is_done is done
    assert ThreadsafeRestrictionTracker(tracker).is_bounded() is bounded


# range, claims before, fraction, residual's start (None: refused)
SPLITS: list[tuple[QueueRange, int, float, int | None]] = [
    (QueueRange(0), 0, 0.0, 0),
    (QueueRange(0), 10, 0.0, 10),
    (QueueRange(0), 10, 0.5, None),
    (QueueRange(0), 10, 1.0, None),
    (QueueRange(0, 100), 0, 0.0, 0),
    (QueueRange(0, 100), 10, 0.0, 10),
    (QueueRange(0, 100), 10, 0.5, 55),
    (QueueRange(0, 100), 10, 0.001, 11),
    (QueueRange(0, 100), 10, 1.0, None),
    (QueueRange(0, 100), 99, 0.5, None),
    (QueueRange(0, 100), 100, 0.0, None),
    (QueueRange(0, 100, 50), 10, 0.5, None),
    (QueueRange(0, 100, 50), 10, 0.0, 10),
    (QueueRange(0, None, 50), 10, 0.5, None),
    (QueueRange(0, None, 10), 10, 0.0, None),
]


@pytest.mark.parametrize(("restriction", "claimed", "fraction", "expected"), SPLITS)
def test_a_split_is_cut_where_the_fraction_says_or_refused(
    restriction: QueueRange, claimed: int, fraction: float, expected: int | None
) -> None:
    tracker = QueueRangeTracker(restriction)
    if claimed:
        assert tracker.try_claim(Claim(claimed - 1, claimed))
    split = tracker.try_split(fraction)
    if expected is None:
        assert split is None
        return
    limit = None if restriction.limit is None else restriction.limit - claimed
    assert split == (QueueRange(0, expected), QueueRange(expected, restriction.stop, limit))


def test_after_a_checkpoint_nothing_more_can_be_claimed_and_it_is_done() -> None:
    tracker = QueueRangeTracker(QueueRange(0))
    assert tracker.try_claim(Claim(4, 5))
    assert tracker.try_split(0) is not None
    assert not tracker.try_claim(Claim(5, 1))
    assert tracker.try_split(0) is None
    tracker.check_done()


def test_a_refused_claim_takes_nothing() -> None:
    tracker = QueueRangeTracker(QueueRange(0, 10, 5))
    assert not tracker.try_claim(Claim(10, 1))
    assert not tracker.try_claim(Claim(8, 6))
    assert tracker.try_claim(Claim(0, 1))
    assert tracker.try_split(0) == (QueueRange(0, 1), QueueRange(1, 10, 4))


def test_a_claim_behind_an_earlier_one_is_a_bug_of_the_caller() -> None:
    tracker = QueueRangeTracker(QueueRange(0))
    assert tracker.try_claim(Claim(4, 5))
    with pytest.raises(ValueError, match="claim of offset 4, but everything below 5 is claimed"):
        tracker.try_claim(Claim(4, 1))


# range, broker's end in the claim, completed, remaining
@pytest.mark.parametrize(
    ("restriction", "broker_end", "remaining"),
    [
        (QueueRange(10, 50), 1000, 35.0),
        (QueueRange(10), 1000, 985.0),
        (QueueRange(10), None, 0.0),
        (QueueRange(10), 0, 0.0),
    ],
)
def test_progress_counts_offsets_up_to_the_stop_or_the_brokers_end(
    restriction: QueueRange, broker_end: int | None, remaining: float
) -> None:
    tracker = QueueRangeTracker(restriction)
    assert tracker.try_claim(Claim(14, 5, broker_end))
    progress = tracker.current_progress()
    assert (progress.completed_work, progress.remaining_work) == (5.0, remaining)


# ---- ranges that wait for their broker -------------------------------------------------------------------------------


def test_a_range_that_waits_keeps_waiting_until_its_start_is_claimed() -> None:
    tracker = QueueRangeTracker(QueueRange(0, None, 5, 7))
    assert tracker.try_split(0) == (QueueRange(0, 0), QueueRange(0, None, 5, 7))
    tracker.check_done()
    assert not tracker.try_claim(Start(3)), "the residual has it"


@pytest.mark.parametrize("start", [0, 3])
def test_a_claimed_start_is_where_it_continues(start: int) -> None:
    tracker = QueueRangeTracker(QueueRange(0, None, 5, 7))
    with pytest.raises(ValueError, match="neither read nor deferred"):
        tracker.check_done()
    assert tracker.try_claim(Start(start))
    assert tracker.current_restriction() == QueueRange(start, None, 5)
    assert tracker.try_claim(Claim(start + 1, 2, start + 10))
    progress = tracker.current_progress()
    assert (progress.completed_work, progress.remaining_work) == (2.0, 8.0)
    assert tracker.try_split(0) == (QueueRange(start, start + 2), QueueRange(start + 2, None, 3))


def test_a_range_that_does_not_wait_has_a_start() -> None:
    tracker = QueueRangeTracker(QueueRange(2))
    assert not tracker.try_claim(Start(3))
    assert tracker.current_restriction() == QueueRange(2)


def test_repr_shows_range_and_position() -> None:
    tracker = QueueRangeTracker(QueueRange(1, 5))
    assert "start=1, stop=5" in repr(tracker)
    assert "next=1 taken=0" in repr(tracker)


# ---- coder ----------------------------------------------------------------------------------------------------------

offsets = st.integers(0, (1 << 63) - 1)


@example(QueueRange(0, 0, 0, 0))
@example(QueueRange(0, limit=0))
@given(st.builds(QueueRange, offsets, st.none() | offsets, st.none() | offsets, st.none() | offsets))
def test_coder_round_trip(value: QueueRange) -> None:
    coder = QueueRangeCoder()
    assert coder.decode(coder.encode(value)) == value


def test_coder_writes_the_golden_bytes() -> None:
    assert QueueRangeCoder().encode(QueueRange(1, None, 258)) == (
        b"\x01"  # version
        b"\x00\x00\x00\x00\x00\x00\x00\x01"  # start
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # no stop
        b"\x00\x00\x00\x00\x00\x00\x01\x02"  # limit
    )


def test_a_range_that_waits_has_a_version_of_its_own() -> None:
    encoded = QueueRangeCoder().encode(QueueRange(0, None, 258, 3))
    assert encoded[:1] == b"\x02"
    assert encoded[-8:] == b"\x00\x00\x00\x00\x00\x00\x00\x03"  # since when


def test_coder_is_registered_deterministic_and_equal_by_type() -> None:
    assert isinstance(registry.get_coder(QueueRange), QueueRangeCoder)
    assert QueueRangeCoder().is_deterministic()
    assert QueueRangeCoder() == QueueRangeCoder()
    assert hash(QueueRangeCoder()) == hash(QueueRangeCoder())
    assert QueueRangeCoder().to_type_hint() is QueueRange


@given(st.binary(max_size=40))
@settings(max_examples=200)
def test_garbage_is_a_wire_error_or_a_range(data: bytes) -> None:
    try:
        assert isinstance(QueueRangeCoder().decode(data), QueueRange)
    except WireError:
        assert (len(data), data[:1]) not in ((25, b"\x01"), (33, b"\x02"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "25 bytes, not 0"),
        (bytes(26), "25 bytes, not 26"),
        (struct.pack(">Bqqq", 2, 0, 0, 0), "33 bytes, not 25"),
        (struct.pack(">Bqqq", 3, 0, 0, 0), "version 3; this rmqio reads versions 1, 2"),
    ],
)
def test_other_sizes_and_versions_are_refused_in_words(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        QueueRangeCoder().decode(data)
