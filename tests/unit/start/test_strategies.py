"""A read's start and stop: strategies as tables over a fake lookup that keeps the order of the questions."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, OffsetOutOfRange
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StartOffsetError, StopAt, clamp_offset, to_timestamp_ms

QUEUE = MessageQueue("t", "b", 0)
OTHER = MessageQueue("t", "b", 1)


class FakeLookup:
    """A queue that holds [10, 20), message `n` stored at `n * 100` ms; one more arrives after each question."""

    def __init__(self, committed: int | None = None, *, grows: bool = False) -> None:
        self.minimum, self.maximum, self.committed, self.grows = 10, 20, committed, grows
        self.asked: list[str] = []

    def _ask(self, what: str, answer: int) -> int:
        self.asked.append(what)
        self.maximum += self.grows
        return answer

    def min_offset(self, queue: MessageQueue) -> int:
        return self._ask("min", self.minimum)

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        return self._ask("max", self.maximum)

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._ask("time", min(max(-(-timestamp_ms // 100), self.minimum), self.maximum))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        self.asked.append(f"committed of {group}")
        return self.committed


# strategy, committed offset, where it starts
STARTS: list[tuple[StartFrom, int | None, int]] = [
    (StartFrom.earliest(), 15, 10),
    (StartFrom.latest(), 15, 20),
    (StartFrom.timestamp(1500), None, 15),
    (StartFrom.timestamp(1501), None, 16),
    (StartFrom.timestamp(0), None, 10),
    (StartFrom.timestamp(99_999), None, 20),
    (StartFrom.group_offsets(), 15, 15),
    (StartFrom.group_offsets(), 10, 10),
    (StartFrom.group_offsets(), 20, 20),
    (StartFrom.group_offsets(), None, 20),
    (StartFrom.group_offsets("earliest"), None, 10),
    (StartFrom.earliest().resumed(1500), 13, 13),
    (StartFrom.earliest().resumed(1500), None, 10),
    (StartFrom.latest().resumed(1500), 13, 13),
    (StartFrom.latest().resumed(1500), None, 15),
    (StartFrom.timestamp(1200).resumed(1500), None, 12),
    (StartFrom.group_offsets().resumed(1500), None, 15),
    (StartFrom.group_offsets("earliest").resumed(1500), None, 10),
    (StartFrom.group_offsets("latest"), None, 20),
    (StartFrom.group_offsets("error"), 12, 12),
    (StartFrom.specific_offsets({QUEUE: 13}), 15, 13),
    (StartFrom.specific_offsets({(QUEUE.topic, QUEUE.broker, QUEUE.queue_id): 13}), 15, 13),
    (StartFrom.specific_offsets({OTHER: 13}), 15, 15),
    (StartFrom.specific_offsets({OTHER: 13}), None, 20),
    (StartFrom.specific_offsets({OTHER: 13}, "earliest"), None, 10),
]


@pytest.mark.parametrize(("start", "committed", "expected"), STARTS)
def test_strategy_resolves_to_an_offset(start: StartFrom, committed: int | None, expected: int) -> None:
    assert start.resolve(QUEUE, FakeLookup(committed), group="g") == expected


@pytest.mark.parametrize(
    "start", [StartFrom.group_offsets("error"), StartFrom.specific_offsets({OTHER: 13}, reset="error")]
)
def test_a_group_without_an_offset_is_refused_where_no_reset_is_permitted(start: StartFrom) -> None:
    with pytest.raises(StartOffsetError, match=r"group 'g' has no offset for queue t/b/0.*reset is 'error'"):
        start.resolve(QUEUE, FakeLookup(None), group="g")


def test_specific_offsets_need_no_group_and_ask_for_none() -> None:
    lookup = FakeLookup(15)
    assert StartFrom.specific_offsets({OTHER: 13}, "earliest").resolve(QUEUE, lookup, group=None) == 10
    assert "committed of None" not in lookup.asked


@pytest.mark.parametrize("wanted", [9, 21])
@pytest.mark.parametrize(
    "make",
    [
        lambda wanted: (StartFrom.group_offsets(), wanted),
        lambda wanted: (StartFrom.specific_offsets({QUEUE: wanted}), None),
    ],
)
@pytest.mark.parametrize(("policy", "expected"), [("earliest", 10), ("latest", 20), ("fail", None)])
def test_an_offset_that_the_queue_does_not_hold_follows_the_policy(
    wanted: int, make: Any, policy: Any, expected: int | None
) -> None:
    start, committed = make(wanted)
    if expected is not None:
        assert start.resolve(QUEUE, FakeLookup(committed), group="g", on_out_of_range=policy) == expected
        return
    with pytest.raises(OffsetOutOfRange) as caught:
        start.resolve(QUEUE, FakeLookup(committed), group="g", on_out_of_range=policy)
    assert (caught.value.queue, caught.value.wanted) == (QUEUE, wanted)
    assert (caught.value.minimum, caught.value.maximum) == (10, 20)


@pytest.mark.parametrize("wanted", [10, 15, 20])
@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_an_offset_that_the_queue_holds_is_kept_its_end_included(wanted: int, policy: Any) -> None:
    assert clamp_offset(QUEUE, wanted, FakeLookup(), policy) == wanted


@pytest.mark.parametrize(("timestamp", "refused"), [(1900, False), (1901, True), (99_999, True)])
def test_a_timestamp_after_the_end_can_be_refused(timestamp: int, refused: bool) -> None:
    start = StartFrom.timestamp(timestamp)
    if not refused:
        assert start.resolve(QUEUE, FakeLookup(), group=None, on_timestamp_after_end="fail") == 19
        return
    with pytest.raises(StartOffsetError, match=f"no message stored at or after {timestamp} ms"):
        start.resolve(QUEUE, FakeLookup(), group=None, on_timestamp_after_end="fail")


@pytest.mark.parametrize("strategy", [StartFrom.timestamp(99_999), StopAt.timestamp(99_999)])
def test_the_end_is_taken_before_the_lookup_by_time_so_that_nothing_slips_between(strategy: Any) -> None:
    lookup = FakeLookup(grows=True)
    arguments = {"group": None} if isinstance(strategy, StartFrom) else {}
    assert strategy.resolve(QUEUE, lookup, **arguments) == 20
    assert lookup.asked == ["max", "time"]


STOPS: list[tuple[StopAt, int | None]] = [
    (StopAt.latest(), 20),
    (StopAt.timestamp(1500), 15),
    (StopAt.timestamp(1501), 16),
    (StopAt.timestamp(0), 10),
    (StopAt.timestamp(99_999), 20),
    (StopAt.offsets({QUEUE: 12}), 12),
    (StopAt.offsets({QUEUE: 999}), 999),
    (StopAt.offsets({QUEUE: 0}), 0),
    (StopAt.offsets({OTHER: 12}), None),
]


@pytest.mark.parametrize(("stop", "expected"), STOPS)
def test_stop_resolves_to_the_first_offset_not_read(stop: StopAt, expected: int | None) -> None:
    assert stop.resolve(QUEUE, FakeLookup()) == expected


@pytest.mark.parametrize("value", [row[0] for row in STARTS] + [row[0] for row in STOPS])
def test_strategies_are_values(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)


@pytest.mark.parametrize(
    ("start", "needs_group"),
    [
        (StartFrom.earliest(), False),
        (StartFrom.latest(), False),
        (StartFrom.timestamp(1), False),
        (StartFrom.group_offsets(), True),
        (StartFrom.specific_offsets({QUEUE: 1}), True),
    ],
)
def test_which_strategies_ask_for_a_group(start: StartFrom, needs_group: bool) -> None:
    assert start.needs_group is needs_group


UTC = dt.UTC
BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        (1.5, 1500),
        (1_700_000_000.123, 1_700_000_000_123),
        (4.35, 4350),
        (dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), 1_700_000_000_123),
        (dt.datetime(2023, 11, 14, 23, 13, 20, 123_000, BERLIN), 1_700_000_000_123),
        (dt.datetime(1970, 1, 1, 0, 0, 4, 350_000, UTC), 4350),
    ],
)
def test_times_become_milliseconds(value: Any, milliseconds: int) -> None:
    assert to_timestamp_ms(value) == milliseconds


@given(st.integers(0, 4_102_444_800_000))
def test_a_time_in_whole_milliseconds_loses_none_whatever_its_form(milliseconds: int) -> None:
    aware = dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(milliseconds=milliseconds)
    assert to_timestamp_ms(milliseconds) == milliseconds
    assert to_timestamp_ms(milliseconds / 1000) == milliseconds
    assert to_timestamp_ms(aware) == milliseconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (dt.datetime(2023, 1, 1), "no time zone"),
        (True, "must be milliseconds"),
        ("2023-01-01", "must be milliseconds"),
        (None, "must be milliseconds"),
        (float("nan"), "must be milliseconds"),
        (float("inf"), "must be milliseconds"),
    ],
)
@pytest.mark.parametrize("make", [to_timestamp_ms, StartFrom.timestamp, StopAt.timestamp])
def test_what_is_no_time_is_refused(value: Any, message: str, make: Any) -> None:
    with pytest.raises(LocalError, match=message):
        make(value)


@pytest.mark.parametrize("make", [StartFrom.specific_offsets, StopAt.offsets])
@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({}, "at least one queue"),
        ({QUEUE: -1}, "offset of queue t/b/0 is -1"),
        ({QUEUE: 1.0}, "offset of queue t/b/0 is 1.0"),
        ({QUEUE: True}, "is True"),
        ({QUEUE: None}, "is None"),
    ],
)
def test_bad_offsets_are_refused_naming_the_queue(make: Any, offsets: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        make(offsets)


@pytest.mark.parametrize("make", [StartFrom.group_offsets, lambda reset: StartFrom.specific_offsets({QUEUE: 1}, reset)])
def test_an_unknown_reset_is_refused(make: Any) -> None:
    with pytest.raises(LocalError, match="reset is 'newest'; it must be 'earliest', 'latest' or 'error'"):
        make("newest")
