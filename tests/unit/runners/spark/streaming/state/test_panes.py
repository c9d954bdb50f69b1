"""Panes over many micro-batches, one windowing at a time, with the panes written out."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.coders import Coder
from apache_beam.transforms import trigger, window
from apache_beam.transforms.trigger import AfterCount, AfterProcessingTime, Repeatedly
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming

from rmqio.runners.spark.beam.triggers import StateCodec
from rmqio.runners.spark.streaming.state import NEVER, Store
from rmqio.runners.spark.streaming.windows import Triggered
from tests.helpers.spark.triggered import (
    ACCUMULATING,
    DISCARDING,
    EARLY_AND_LATE,
    MAX,
    MIN,
    SECOND,
    Batches,
    Pane,
    windowing_of,
)

pytestmark = [pytest.mark.slow]

EARLY, ON_TIME, LATE = PaneInfoTiming.EARLY, PaneInfoTiming.ON_TIME, PaneInfoTiming.LATE


def shown(panes: list[Pane]) -> list[tuple[list[bytes], Any, int, bool]]:
    return [(values, info.timing, info.index, info.is_last) for _, _, values, _, info in panes]


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING], ids=["discarding", "accumulating"])
def test_early_on_time_and_late_panes(mode: int) -> None:
    runs = Batches(windowing_of(window.FixedWindows(10), EARLY_AND_LATE, mode, 20))
    more = [b"1", b"2"] if mode == ACCUMULATING else []
    late = [*more, b"3"] if mode == ACCUMULATING else []
    assert runs.run([("a", b"1", 1)], 0) == []
    assert shown(runs.run([("a", b"2", 9)], 0)) == [([b"1", b"2"], EARLY, 0, False)]
    assert runs.run([("a", b"3", 5)], 5 * SECOND) == []
    assert shown(runs.run([], 10 * SECOND)) == [([*more, b"3"], ON_TIME, 1, False)]
    assert shown(runs.run([("a", b"4", 5)], 29 * SECOND)) == [([*late, b"4"], LATE, 2, False)]
    assert len(runs.run([("a", b"5", 5)], 30 * SECOND - 1)) == 1
    assert runs.kept()
    assert runs.run([], 30 * SECOND) == []
    assert runs.kept() == []
    assert runs.run([("a", b"6", 5)], 30 * SECOND) == []
    assert (runs.late, runs.kept()) == (1, [])


def test_each_window_of_a_key_fires_at_its_own_end() -> None:
    runs = Batches(windowing_of(window.FixedWindows(10), trigger.DefaultTrigger(), DISCARDING, 30))
    assert runs.run([("a", b"1", 3), ("a", b"2", 43)], 0) == []
    fired = [[values for _, _, values, _, _ in runs.run([], end * SECOND)] for end in (10, 50)]
    assert fired == [[[b"1"]], [[b"2"]]]


def test_sessions_merge_across_micro_batches() -> None:
    runs = Batches(windowing_of(window.Sessions(5), trigger.DefaultTrigger(), ACCUMULATING))
    assert runs.run([("a", b"1", 0), ("b", b"2", 0)], 1 * SECOND) == []
    assert runs.run([("a", b"3", 8)], 2 * SECOND) == []
    assert runs.run([("a", b"4", 4)], 3 * SECOND) == [], "which joins the two"
    (pane,) = runs.run([], 8 * SECOND)
    assert (pane[0], pane[2]) == ("b", [b"2"])
    (pane,) = runs.run([], 13 * SECOND)
    assert (pane[0], pane[1], sorted(pane[2])) == ("a", window.IntervalWindow(0, 13), [b"1", b"3", b"4"])
    assert runs.kept() == []


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING], ids=["discarding", "accumulating"])
def test_a_late_event_that_joins_a_fired_session_to_an_open_one_gives_a_pane_on_time(mode: int) -> None:
    late = trigger.AfterWatermark(late=AfterCount(1))
    runs = Batches(windowing_of(window.Sessions(10), late, mode, 100))
    runs.run([("a", b"1", 1)], 0)
    assert shown(runs.run([("a", b"2", 18)], 15 * SECOND)) == [([b"1"], ON_TIME, 0, False)]
    assert runs.run([("a", b"late", 9)], 16 * SECOND) == [], "the joined session is open until 28"
    (pane,) = runs.run([], 28 * SECOND)
    assert pane[1] == window.IntervalWindow(1, 28)
    before = [b"1"] if mode == ACCUMULATING else []
    assert shown([pane]) == [([*before, b"2", b"late"], ON_TIME, 0, False)]
    again = [*before, b"2", b"late"] if mode == ACCUMULATING else []
    assert shown(runs.run([("a", b"4", 17)], 30 * SECOND)) == [(sorted([*again, b"4"]), LATE, 1, False)]


def test_events_that_join_a_session_that_is_over_are_counted_as_late_ones() -> None:
    """As in Beam's transcript early_late_sessions."""
    late = trigger.AfterWatermark(late=AfterCount(2))
    runs = Batches(windowing_of(window.Sessions(10), late, ACCUMULATING, 100))
    assert shown(runs.run([("a", b"1", 1), ("a", b"2", 5)], 20 * SECOND)) == [([b"1", b"2"], ON_TIME, 0, False)]
    assert runs.run([("a", b"3", 2)], 21 * SECOND) == []
    assert shown(runs.run([("a", b"4", 3)], 22 * SECOND)) == [([b"1", b"2", b"3", b"4"], LATE, 1, False)]


@pytest.mark.parametrize(("second", "late"), [(4, 0), (3, 1)])
def test_an_event_whose_own_session_is_over_is_late_though_it_would_join_an_open_one(second: int, late: int) -> None:
    """As in Beam, in Java and in Python: they look at the own window of an event first. Flink merges first."""
    runs = Batches(windowing_of(window.Sessions(10), trigger.DefaultTrigger()))
    assert runs.run([("a", b"%d" % n, n) for n in (0, 8, 16, 24)], 14 * SECOND - 1) == []
    assert (runs.run([("a", b"more", second)], 24 * SECOND), runs.late) == ([], late)
    (pane,) = runs.run([], 34 * SECOND)
    assert (pane[1], len(pane[2])) == (window.IntervalWindow(0, 34), 5 - late)


def test_an_earliest_timestamp_holds_the_output_watermark_until_its_pane() -> None:
    earliest = TimestampCombiner.OUTPUT_AT_EARLIEST
    runs = Batches(windowing_of(window.FixedWindows(10), trigger.DefaultTrigger(), timestamp_combiner=earliest))
    runs.run([("a", b"1", 7), ("b", b"2", 3)], 0)
    assert runs.hold > 0, "the watermark has not come to it"
    runs.run([("c", b"3", 12)], 9 * SECOND)
    assert runs.hold == 3 * SECOND - 1
    panes = runs.run([], 10 * SECOND)
    assert {pane[0]: pane[3] for pane in panes} == {"a": 7 * SECOND, "b": 3 * SECOND}
    assert runs.hold > 10 * SECOND
    runs.run([], 15 * SECOND)
    assert runs.hold == 12 * SECOND - 1, "what is left, a moment before it"
    assert [pane[3] for pane in runs.run([], 20 * SECOND)] == [12 * SECOND]
    assert runs.hold == NEVER


def test_a_pane_that_has_fired_holds_nothing_any_more() -> None:
    earliest = TimestampCombiner.OUTPUT_AT_EARLIEST
    windowing = windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(2)), timestamp_combiner=earliest)
    runs = Batches(windowing)
    assert runs.run([("a", b"1", 7)], 9 * SECOND) == []
    assert runs.hold == 7 * SECOND - 1
    assert [pane[3] for pane in runs.run([("a", b"2", 8)], 10 * SECOND)] == [7 * SECOND]
    assert runs.hold == NEVER


def test_processing_time_passes_with_the_clock_alone() -> None:
    after = Repeatedly(AfterProcessingTime(5))
    runs = Batches(windowing_of(window.GlobalWindows(), after))
    assert runs.run([("a", b"1", 1)], 0, 100 * SECOND) == []
    assert runs.is_pending
    assert runs.run([("a", b"2", 2)], 0, 103 * SECOND) == []
    found = runs.run([], 0, 108 * SECOND)
    assert shown(found) == [([b"1", b"2"], EARLY, 0, False)], "the watermark has not come to the window's end"
    assert (runs.is_pending, runs.run([], 0, 200 * SECOND)) == (False, [])
    assert runs.run([("a", b"3", 2)], 0, 201 * SECOND) == []
    assert shown(runs.run([], MAX, 202 * SECOND)) == [([b"3"], ON_TIME, 1, True)], "the window closes first"
    assert (runs.kept(), runs.hold, runs.is_pending) == ([], NEVER, False)


def test_the_clock_says_when_a_pane_comes_and_the_watermark_whether_it_is_early() -> None:
    runs = Batches(windowing_of(window.FixedWindows(10), Repeatedly(AfterProcessingTime(2)), lateness=100))
    runs.run([("a", b"1", 1)], 0, 1_000 * SECOND)
    assert shown(runs.run([], 5 * SECOND, 1_002 * SECOND)) == [([b"1"], EARLY, 0, False)]
    runs.run([("a", b"2", 1)], 50 * SECOND, 1_003 * SECOND)
    assert [pane[4].timing for pane in runs.run([], 51 * SECOND, 1_005 * SECOND)] == [LATE]


def test_counts_in_the_global_window_go_on_over_micro_batches_by_key() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(3))))
    keys = [f"key-{number}" for number in range(200)]
    for turn in range(7):
        panes = runs.run([(key, b"%s %d" % (key.encode(), turn), turn) for key in keys], turn * SECOND)
        expected = [[b"%s %d" % (key.encode(), at) for at in range(turn - 2, turn + 1)] for key in keys]
        assert sorted(pane[2] for pane in panes) == (sorted(expected) if turn % 3 == 2 else [])
        assert {pane[4].index for pane in panes} <= {turn // 3}
    left = runs.run([], MAX)
    assert sorted((pane[0], pane[2]) for pane in left) == sorted((key, [b"%s 6" % key.encode()]) for key in keys)
    assert runs.kept() == []


def test_the_end_of_time_ends_a_window_whatever_its_lateness() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(3)), lateness=10 * 86_400))
    assert runs.run([("a", b"1", 1)], 0) == []
    assert shown(runs.run([], MAX)) == [([b"1"], ON_TIME, 0, True)]
    assert (runs.kept(), runs.hold) == ([], NEVER)


def test_firings_without_end_in_the_global_window_leave_no_entries_behind() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(2))))
    sizes = []
    for number in range(60):
        # every second one fires, so that some element always waits from one micro-batch to the next
        assert len(runs.run([("a", b"%d" % number, number)], number)) == number % 2
        sizes.append((len(runs.entries), sum(map(len, runs.entries.values()))))
    assert max(sizes[40:]) <= max(sizes[:20]), "no more after sixty than after twenty"
    assert runs.hold == NEVER, "the end of the global window holds nothing back"


def test_the_number_of_a_pane_costs_the_same_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's state in memory keeps it as a list of ones."""
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(1))))
    decode, sizes = StateCodec.decode, []

    def spied(self: StateCodec, data: bytes) -> Any:
        state = decode(self, data)
        sizes.append(sum(len(values) for tags in state.state.values() for values in tags.values()))
        return state

    monkeypatch.setattr(StateCodec, "decode", spied)
    for number in range(300):
        assert len(runs.run([("a", b"", number)], number)) == 1
    assert max(sizes) <= 10


class Text(Coder):
    def encode(self, value: Any) -> bytes:
        return f"{value.start.micros}/{value.end.micros}".encode()

    def decode(self, encoded: bytes) -> window.IntervalWindow:
        start, end = map(int, encoded.split(b"/"))
        return window.IntervalWindow(Timestamp(micros=start), Timestamp(micros=end))

    def is_deterministic(self) -> bool:
        return True


class Labelled(window.FixedWindows):
    """Windows whose coder writes a length if it is nested, as the coder of a user's own windows may do."""

    def get_window_coder(self) -> Any:
        return Text()


def test_windows_of_any_coder() -> None:
    runs = Batches(windowing_of(Labelled(10), EARLY_AND_LATE, lateness=5))
    store = Store(runs.entries)
    triggered = Triggered(store, 5, runs.windowing)
    for name, packed in runs.rows([("a", b"1", 1), ("a", b"2", 2)]):
        assert triggered.add(name, packed, MIN) == 0
    (pane,) = [runs.output.decode_nested(each) for each in triggered.fire(MIN, 0, 0)]
    assert (pane.value[0], list(pane.value[1]), pane.windows) == ("a", [b"1", b"2"], (window.IntervalWindow(0, 10),))
