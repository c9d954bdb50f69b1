"""The plan of a reader, against simulated brokers with any limits."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.client.read_ahead import NoProgress, ReadAhead, Segment
from rmqio.errors import CorruptMessage, WireError
from rmqio.model import PullResult, PullStatus, Record


def record(offset: int) -> Record:
    return Record("t", "b", 0, offset, b"x", 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 1)


def found(begin: int, end: int, maximum: int, *, next_offset: int | None = None) -> PullResult:
    records = [record(offset) for offset in range(begin, end)]
    return PullResult(PullStatus.FOUND, end if next_offset is None else next_offset, 0, maximum, records)


def nothing(offset: int) -> PullResult:
    return PullResult(PullStatus.NO_NEW_MESSAGE, offset, 0, offset, [], remark="OFFSET_OVERFLOW_ONE")


def plan_of(position: int = 0, *, depth: int = 4, batch: int = 32, is_filtered: bool = False) -> ReadAhead[str]:
    return ReadAhead(position, depth=depth, batch=batch, is_filtered=is_filtered, max_bytes=1 << 20)


def sent(plan: ReadAhead[str]) -> list[tuple[int, int, bool]]:
    """Marks what is to be sent as sent; begin, messages asked for, long poll or not."""
    segments = plan.plan()
    for segment in segments:
        segment.call = "on its way"
    return [(segment.begin, segment.max_messages, segment.is_long_poll) for segment in segments]


def test_first_pull_goes_alone_and_is_not_held_because_the_end_is_unknown() -> None:
    plan = plan_of(100)
    assert sent(plan) == [(100, 32, False)]
    assert sent(plan) == []


def test_backlog_is_pulled_ahead_up_to_the_known_end_and_not_beyond() -> None:
    plan = plan_of(0, depth=8)
    sent(plan)
    plan.take(found(0, 32, 100), 1)
    assert sent(plan) == [(32, 32, False), (64, 32, False), (96, 32, False)]


def test_refill_comes_in_bulk() -> None:
    plan = plan_of(0, depth=4)
    sent(plan)
    plan.take(found(0, 32, 10_000), 1)
    assert [begin for begin, _, _ in sent(plan)] == [32, 64, 96, 128]
    plan.take(found(32, 64, 10_000), 1)
    assert sent(plan) == []
    plan.take(found(64, 96, 10_000), 1)
    assert [begin for begin, _, _ in sent(plan)] == [160, 192]


def test_exhausted_queue_gets_one_long_poll() -> None:
    plan = plan_of(0)
    sent(plan)
    plan.take(found(0, 5, 5), 1)
    assert sent(plan) == [(5, 32, True)]
    plan.take(nothing(5), 0)
    assert sent(plan) == [(5, 32, True)]
    assert plan.position == 5


def test_rest_of_a_short_answer_is_asked_for_in_front_of_the_later_pulls() -> None:
    plan = plan_of(0, depth=4)
    sent(plan)
    plan.take(found(0, 32, 1_000), 1)
    assert [begin for begin, _, _ in sent(plan)] == [32, 64, 96, 128]
    plan.take(found(32, 44, 1_000), 1)  # the byte limit: 12 instead of 32
    assert plan.position == 44
    assert plan.span == 12
    assert sent(plan) == [(44, 12, False), (56, 8, False)]
    plan.take(found(44, 56, 1_000), 1)
    plan.take(found(56, 64, 1_000), 1)
    taken = plan.take(found(64, 96, 1_000), 1)
    assert [r.queue_offset for r in taken.records] == list(range(64, 96))


def test_span_grows_again_after_full_answers() -> None:
    plan = plan_of(0, depth=2)
    sent(plan)
    plan.take(found(0, 4, 100_000), 1)
    assert plan.span == 4
    for _ in range(100):
        sent(plan)
        head = plan.head
        assert head is not None
        plan.take(found(head.begin, head.end, 100_000), 1)
    assert plan.span == 32


def test_large_answers_make_the_plan_shallower() -> None:
    plan = plan_of(0, depth=16)
    sent(plan)
    plan.take(found(0, 1, 100), 1 << 22)
    assert len(sent(plan)) == 2


def test_what_belongs_to_the_next_segment_is_cut_off() -> None:
    plan = plan_of(0, depth=3, is_filtered=True)
    sent(plan)
    plan.take(PullResult(PullStatus.NO_MATCH, 50, 0, 1_000, []), 0)
    assert sent(plan) == [(50, 32, False), (100, 32, False), (150, 32, False)]
    answer = PullResult(PullStatus.FOUND, 130, 0, 1_000, [record(60), record(99), record(100), record(120)])
    taken = plan.take(answer, 1)
    assert [r.queue_offset for r in taken.records] == [60, 99]
    assert plan.position == 100
    taken = plan.take(PullResult(PullStatus.FOUND, 150, 0, 1_000, [record(100), record(120)]), 1)
    assert [r.queue_offset for r in taken.records] == [100, 120]


def test_gap_without_a_filter_is_counted() -> None:
    plan = plan_of(0)
    sent(plan)
    answer = PullResult(PullStatus.FOUND, 20, 0, 20, [record(n) for n in range(5, 20)])
    assert plan.take(answer, 1).skipped == 5
    sent(plan)
    jump = PullResult(PullStatus.NO_NEW_MESSAGE, 300, 0, 400, [], remark="OFFSET_FOUND_NULL")
    assert plan.take(jump, 0).skipped == 280
    assert plan.position == 300


def test_corrupt_messages_are_not_gaps() -> None:
    plan = plan_of(0)
    sent(plan)
    corrupt = (
        CorruptMessage("crc", queue_offset=2, next_offset=3),
        CorruptMessage("inner batch", queue_offset=5, next_offset=9),
    )
    answer = PullResult(PullStatus.FOUND, 10, 0, 10, [record(n) for n in (0, 1, 3, 4, 9)], corrupt)
    taken = plan.take(answer, 1)
    assert (taken.skipped, taken.corrupt) == (0, corrupt)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(PullResult(PullStatus.NO_MATCH, 10, 0, 50, []), id="no match, same offset"),
        pytest.param(PullResult(PullStatus.NO_MATCH, 3, 0, 50, []), id="no match, backwards"),
        pytest.param(PullResult(PullStatus.FOUND, 10, 0, 50, []), id="found nothing"),
    ],
)
def test_answer_that_does_not_move_on_is_no_progress_and_leaves_the_plan(answer: PullResult) -> None:
    plan = plan_of(10)
    sent(plan)
    with pytest.raises(NoProgress):
        plan.take(answer, 0)
    assert plan.position == 10
    assert NoProgress.retriable


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param([9, 10, 11], id="before the begin"),
        pytest.param([10, 11, 12], id="at the next offset"),
        pytest.param([10, 10, 10, 10], id="more than there can be"),
        pytest.param([11, 10], id="backwards"),
    ],
)
def test_answer_with_offsets_that_cannot_be_is_refused(offsets: list[int]) -> None:
    plan = plan_of(10)
    sent(plan)
    with pytest.raises(WireError):
        plan.take(PullResult(PullStatus.FOUND, 12, 0, 50, [record(n) for n in offsets]), 1)
    assert plan.position == 10


def test_restart_forgets_the_end_and_gives_back_what_was_planned() -> None:
    plan = plan_of(0, depth=2)
    sent(plan)
    plan.take(found(0, 32, 1_000), 1)
    sent(plan)
    dropped = plan.restart(7)
    assert [segment.begin for segment in dropped] == [32, 64]
    assert plan.known_max is None
    assert sent(plan) == [(7, 32, False)]


class SimulatedBroker:
    """A queue of offsets [0, size) with limits on messages, bytes and offsets scanned, some of them filtered out."""

    def __init__(self, sizes: list[int], matches: list[bool], *, max_count: int, max_bytes: int, max_scan: int) -> None:
        self.sizes, self.matches = sizes, matches
        self.max_count, self.max_bytes, self.max_scan = max_count, max_bytes, max_scan

    def pull(self, offset: int, max_messages: int, end: int) -> tuple[PullResult, int]:
        if offset >= end:
            return nothing(offset), 0
        records: list[Record] = []
        total = 0
        at = offset
        while at < end and at - offset < self.max_scan and len(records) < min(self.max_count, max_messages):
            if self.matches[at]:
                if records and total + self.sizes[at] > self.max_bytes:
                    break
                total += self.sizes[at]
                records.append(record(at))
            at += 1
        status = PullStatus.FOUND if records else PullStatus.NO_MATCH
        return PullResult(status, at, 0, end, records), total


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 600),
    depth=st.integers(1, 12),
    batch=st.integers(1, 64),
    max_count=st.integers(1, 40),
    max_bytes=st.integers(1, 2_000),
    max_scan=st.integers(1, 100),
    share=st.sampled_from([None, 0.0, 0.02, 0.5, 0.98]),
    start=st.integers(0, 100),
)
def test_every_offset_comes_once_and_in_order_whatever_the_limits(
    seed: int,
    size: int,
    depth: int,
    batch: int,
    max_count: int,
    max_bytes: int,
    max_scan: int,
    share: float | None,
    start: int,
) -> None:
    chance = random.Random(seed)
    start = min(start, size)
    matches = [share is None or chance.random() < share for _ in range(size)]
    broker = SimulatedBroker(
        [chance.choice((1, 10, 900)) for _ in range(size)],
        matches,
        max_count=max_count,
        max_bytes=max_bytes,
        max_scan=max_scan,
    )
    visible = chance.randint(start, size)  # the queue grows while it is read
    plan: ReadAhead[tuple[PullResult, int]] = ReadAhead(
        start, depth=depth, batch=batch, is_filtered=share is not None, max_bytes=100_000
    )
    seen: list[int] = []
    for _ in range(20 * size + 200):
        segments = plan.plan()
        assert len(plan.segments) <= 2 * max(depth, 2)
        for segment in segments:
            held = segment.is_long_poll and segment.begin >= visible
            segment.call = broker.pull(segment.begin, segment.max_messages, size if held else visible)
        visible = min(size, visible + chance.choice((0, 0, 1, 30)))
        assert _is_contiguous(list(plan.segments), plan.position)
        head = plan.head
        assert head is not None
        assert head.call is not None
        before = plan.position
        taken = plan.take(*head.call)
        assert taken.skipped == 0
        assert plan.position >= before
        seen += [r.queue_offset for r in taken.records]
        if plan.position >= size:
            break
    assert plan.position == size
    assert seen == [offset for offset in range(start, size) if matches[offset]]


def _is_contiguous(segments: list[Segment[tuple[PullResult, int]]], position: int) -> bool:
    begins = [segment.begin for segment in segments]
    return begins == [position, *(segment.end for segment in segments)][: len(begins)]


def broken(offset: int, next_offset: int | None) -> CorruptMessage:
    return CorruptMessage("CRC", topic="t", broker="b", queue_id=0, queue_offset=offset, next_offset=next_offset)


@pytest.mark.parametrize("next_offset", [1_000, None], ids=["that says how long it is", "that does not"])
def test_a_broken_inner_batch_is_reported_once_however_many_pulls_are_on_their_way_in_it(
    next_offset: int | None,
) -> None:
    plan = plan_of(0, depth=16)
    sent(plan)
    plan.take(found(0, 10, 3_000), 1)
    told: list[CorruptMessage] = []
    pulls = 0
    while plan.position < 1_000:
        pulls += len(sent(plan))
        answer = PullResult(PullStatus.FOUND, 1_000, 0, 3_000, [], (broken(10, next_offset),))
        told += plan.take(answer, 1).corrupt
    assert [error.queue_offset for error in told] == [10]
    assert pulls <= 16


def test_pulls_into_a_broken_inner_batch_are_given_up_and_what_is_behind_it_is_asked_for() -> None:
    plan = plan_of(0, depth=8, batch=10)
    sent(plan)
    plan.take(found(0, 10, 200), 1)
    assert [begin for begin, _, _ in sent(plan)] == [10, 20, 30, 40, 50, 60, 70, 80]
    for number, segment in enumerate(plan.segments):
        segment.call = f"pull {number}"
    records = [*map(record, range(10, 15)), *map(record, range(45, 48))]
    taken = plan.take(PullResult(PullStatus.FOUND, 48, 0, 200, records, (broken(15, 45),)), 1)
    assert [r.queue_offset for r in taken.records] == [10, 11, 12, 13, 14]
    assert (taken.skipped, plan.position) == (0, 45)
    assert taken.given_up == ("pull 1", "pull 2", "pull 3")
    assert _spans(plan) == [
        (45, 50, None),
        (50, 60, "pull 4"),
        (60, 70, "pull 5"),
        (70, 80, "pull 6"),
        (80, 90, "pull 7"),
    ]
    assert plan.plan()[0] is plan.head


def test_a_broken_message_of_one_offset_gives_no_pull_up() -> None:
    plan = plan_of(0, depth=4, batch=10)
    sent(plan)
    plan.take(found(0, 10, 200), 1)
    sent(plan)
    before = _spans(plan)
    records = [record(offset) for offset in range(10, 25) if offset != 19]
    taken = plan.take(PullResult(PullStatus.FOUND, 25, 0, 200, records, (broken(19, 20), broken(25, 26))), 1)
    assert ([error.queue_offset for error in taken.corrupt], taken.given_up, plan.position) == ([19], (), 20)
    assert _spans(plan) == before[1:]


def _spans(plan: ReadAhead[str]) -> list[tuple[int, int, str | None]]:
    return [(segment.begin, segment.end, segment.call) for segment in plan.segments]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 5, 40, 300]), st.booleans()), min_size=1, max_size=60), st.data())
def test_of_inner_batches_of_any_sizes_the_broken_are_reported_once_and_the_others_read_whole(
    batches: list[tuple[int, bool]], data: st.DataObject
) -> None:
    bases = [0, *accumulate(size for size, _ in batches)]
    begin = data.draw(st.integers(0, bases[-1] - 1))
    depth = data.draw(st.integers(1, 16))
    plan = plan_of(begin, depth=depth)
    seen: list[int] = []
    told: list[int] = []
    while plan.position < bases[-1]:
        sent(plan)
        head = plan.head
        assert head is not None
        first = last = bisect_right(bases, head.begin) - 1
        while last == first or (last < len(batches) and bases[last + 1] - bases[first] <= head.max_messages):
            last += 1  # the first is always given, and whole
        there = [n for n in range(first, last) if batches[n][1]]
        records = [record(offset) for n in there for offset in range(max(bases[n], head.begin), bases[n + 1])]
        corrupt = tuple(broken(bases[n], bases[n + 1]) for n in range(first, last) if not batches[n][1])
        taken = plan.take(PullResult(PullStatus.FOUND, bases[last], 0, bases[-1], records, corrupt), 1)
        assert taken.skipped == 0
        assert _spans(plan)[:1] == [] or _spans(plan)[0][0] == plan.position
        seen += [r.queue_offset for r in taken.records]
        told += [error.queue_offset for error in taken.corrupt]
    good = [n for n, (_, is_good) in enumerate(batches) if is_good]
    assert seen == [offset for n in good for offset in range(max(bases[n], begin), bases[n + 1])]
    assert told == [bases[n] for n, (_, is_good) in enumerate(batches) if not is_good and bases[n + 1] > begin]
