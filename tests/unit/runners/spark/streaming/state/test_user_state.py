"""State and timers over many micro-batches, and the levels that keep them: a pipeline's own stages, without Spark."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms import userstate, window
from apache_beam.utils.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.streaming.model import MAX, MIN
from tests.helpers.spark.spark_stream import BUCKETS, SECOND, Stream

pytestmark = [pytest.mark.slow]

# ---- state and timers -----------------------------------------------------------------------------------------------


class Told(beam.DoFn):
    """Uses its state and timers as the elements say."""

    BAG = userstate.BagStateSpec("bag", VarIntCoder())
    LIST = userstate.OrderedListStateSpec("list", VarIntCoder())
    EVENT = userstate.TimerSpec("event", userstate.TimeDomain.WATERMARK)
    CLOCK = userstate.TimerSpec("clock", userstate.TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[str, Any],
        bag: Any = beam.DoFn.StateParam(BAG),
        ordered: Any = beam.DoFn.StateParam(LIST),
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> Iterator[Any]:
        key, (verb, *given) = element
        if verb == "add":
            bag.add(given[0])
            yield key, sorted(bag.read())
        elif verb == "forget":
            bag.clear()
            ordered.clear()
        elif verb == "put":
            ordered.add((Timestamp(given[0]), given[0]))
            yield key, [number for _, number in ordered.read()]
        elif verb == "cut":
            ordered.clear_range(Timestamp(given[0]), Timestamp(given[1]))
        elif verb == "set":
            event.set(Timestamp(given[0]), dynamic_timer_tag=given[1])
        elif verb == "clear":
            event.clear(dynamic_timer_tag=given[0])
        elif verb == "clock":
            clock.set(Timestamp(given[0]))

    @userstate.on_timer(EVENT)
    def at(
        self,
        key: Any = beam.DoFn.KeyParam,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        event: Any = beam.DoFn.TimerParam(EVENT),
    ) -> Iterator[Any]:
        number = len(list(bag.read()))  # the number of this timer among those of the key
        bag.add(0)
        if tag == "clears b":
            event.clear(dynamic_timer_tag="b")
        yield key, tag, number

    @userstate.on_timer(CLOCK)
    def later(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield key, "clock"


def told(windowfn: Any = None, lateness: int = 0) -> Stream:
    windowed = beam.WindowInto(windowfn or window.GlobalWindows(), allowed_lateness=lateness)
    return Stream(windowed | beam.ParDo(Told()))


@settings(max_examples=15)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.tuples(st.sampled_from(["add", "put"]), st.integers(0, 50)) | st.just(("forget",)),
            ),
            max_size=6,
        ),
        max_size=5,
    )
)
def test_state_is_kept_by_key_over_micro_batches(batches: list[list[tuple[str, Any]]]) -> None:
    stream = told()
    bags: dict[str, list[int]] = {}
    lists: dict[str, list[int]] = {}
    for commands in batches:
        expected = []
        for key, (verb, *number) in commands:
            if verb == "forget":
                bags.pop(key, None)
                lists.pop(key, None)
                continue
            kept = (bags if verb == "add" else lists).setdefault(key, [])
            kept += number
            expected.append((key, sorted(kept)))
        found = stream.values([(key, list(each), 1) for key, each in commands], 0)
        assert found == sorted(expected, key=repr)
    stream.run([(key, ["forget"], 1) for key in "abc"], 0)
    assert (sum(name[:1] == b"p" for each in stream.entries.values() for name in each)) == 0


def test_a_range_of_an_ordered_list_is_cut_out_of_what_was_kept() -> None:
    stream = told()
    stream.run([("a", ["put", number], 1) for number in (30, 10, 20)], 0)
    stream.run([("a", ["cut", 10, 25], 1)], 0)
    assert stream.values([("a", ["put", 5], 1)], 0) == [("a", [5, 30])]


def test_event_timers_fire_once_in_order_and_may_move_or_be_cleared() -> None:
    stream = told()
    commands = [["set", 30, "late"], ["set", 20, "early"], ["set", 15, "moved"], ["set", 12, "cleared"]]
    assert stream.values([("a", each, 1) for each in commands] + [("b", ["set", 20, "of b"], 1)], 11) == []
    assert stream.values([("a", ["set", 25, "moved"], 1), ("a", ["clear", "cleared"], 1)], 11) == []
    assert stream.values([], 19) == []
    assert stream.values([], 25) == [("a", "early", 0), ("a", "moved", 1), ("b", "of b", 0)]
    assert stream.values([], 29) == []
    assert stream.values([], 30) == [("a", "late", 2)]
    assert stream.values([], 1_000) == []
    assert not stream.is_pending


def test_a_key_wakes_at_its_first_timer() -> None:
    stream = told()
    stream.run([("k", ["set", 20, "a"], 1), ("k", ["set", 30, "b"], 1)], 0)
    assert [stream.values([], 20), stream.values([], 30)] == [[("k", "a", 0)], [("k", "b", 1)]]


def test_timers_that_are_due_together_fire_by_their_time_and_the_first_may_clear_the_next() -> None:
    stream = told()
    commands = [["set", 30, "c"], ["set", 20, "b"], ["set", 10, "clears b"], ["set", 5, "a"]]
    stream.run([("k", each, 1) for each in commands], 0)
    assert stream.values([], 50) == [("k", "a", 0), ("k", "c", 2), ("k", "clears b", 1)]


def test_processing_time_timers_wait_for_the_clock_and_are_pending() -> None:
    stream = told()
    assert stream.values([("a", ["clock", 100], 1)], 5, clock=90) == []
    assert stream.is_pending
    assert stream.values([], 50, clock=99) == []
    assert stream.is_pending
    assert stream.values([], 50, clock=100) == [("a", "clock")]
    assert (stream.is_pending, stream.values([], 50, clock=1_000)) == (False, [])


def test_processing_time_timers_fire_at_the_end_of_the_input_whatever_the_clock_says() -> None:
    stream = told()
    stream.run([("a", ["clock", 100], 1)], 5, clock=90)
    assert stream.values([], MAX / SECOND, clock=91) == [("a", "clock")]
    assert not stream.is_pending


@pytest.mark.parametrize(
    ("lateness", "watermark", "is_kept"),
    [(0, 9.999_999, True), (0, 10, False), (30, 12, True), (30, 39.999_999, True), (30, 40, False)],
)
def test_state_of_windows_that_are_over_is_forgotten_and_what_comes_for_them_is_late(
    lateness: int, watermark: float, is_kept: bool
) -> None:
    stream = told(window.FixedWindows(10), lateness)
    assert stream.values([("a", ["add", 1], 3), ("a", ["add", 2], 43)], 5) == [("a", [1]), ("a", [2])]
    stream.run([], watermark)
    before = stream.kept()
    of_first = [("a", [1, 3])] if is_kept else []
    assert stream.values([("a", ["add", 3], 3), ("a", ["add", 4], 43)], watermark) == [*of_first, ("a", [2, 4])]
    assert stream.late == (not is_kept)
    assert before > 0
    stream.run([], 49.999_999 + lateness)
    assert stream.kept() > 0
    stream.run([], 50 + lateness)
    assert stream.kept() == 0


@pytest.mark.parametrize(("watermark", "is_kept"), [(9.999_999, True), (10, False)])
def test_a_timer_of_the_clock_is_forgotten_with_its_window(watermark: float, is_kept: bool) -> None:
    stream = told(window.FixedWindows(10))
    assert stream.values([("a", ["clock", 100], 3)], watermark, clock=90) == []
    assert stream.is_pending == is_kept
    assert stream.values([], watermark, clock=100) == [("a", "clock")] * is_kept
    stream.run([], 10)
    assert stream.kept() == 0


def test_a_timer_behind_its_window_fires_however_micro_batches_are_cut() -> None:
    """The state of its window stays until then, and no longer."""
    for steps in ([5, 20, 100], [5, 100]):
        stream = told(window.FixedWindows(10))
        stream.values([("a", ["add", 1], 3), ("a", ["set", 60, "t"], 3)], 0)
        found = [stream.values([], watermark) for watermark in steps]
        assert found == [*([] for _ in steps[1:]), [("a", "t", 1)]], "it has seen what was added"
        assert stream.kept() == 0


def test_a_timer_holds_the_watermark_of_what_follows() -> None:
    steps = (
        beam.ParDo(Told())
        | beam.Map(lambda each: (each[0], each[1])).with_output_types(tuple[str, Any])
        | beam.WindowInto(window.FixedWindows(10))
        | beam.GroupByKey()
        | beam.MapTuple(lambda key, values: (key, list(values)))
    )
    stream = Stream(steps)
    assert stream.values([("a", ["set", 25, "t"], 1), ("a", ["add", 7], 2)], 24) == [("a", [[7]])]
    assert stream.values([], 24) == []
    assert stream.run([], 60) == [(("a", ["t"]), 29_999_000, "[20.0, 30.0)")]
    assert stream.late == 0
    stream.run([("a", ["clock", 100], 61)], 70, clock=90)
    stream.run([], 500, clock=99)
    assert {report.watermark for report in stream.reports if report.level == 2} == {61 * SECOND}, "its element's time"
    assert stream.values([], 500, clock=100) == [("a", ["clock"])]
    assert stream.late == 0


def test_the_first_of_the_timers_of_a_key_holds_the_watermark() -> None:
    windowed = beam.WindowInto(window.FixedWindows(10), allowed_lateness=1_000)
    stream = Stream(windowed | beam.ParDo(Told()) | "Next" >> beam.Map(lambda each: each) | beam.Reshuffle())
    stream.run([("a", ["clock", 100], 61), ("a", ["clock", 100], 75)], 70, clock=90)
    stream.run([], 500, clock=99)
    assert {report.watermark for report in stream.reports if report.level == 2} == {61 * SECOND}


# ---- levels ---------------------------------------------------------------------------------------------------------


def grouped(windowfn: Any) -> Any:
    return beam.WindowInto(windowfn) | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sorted(values)))


def test_a_level_goes_on_with_what_the_last_micro_batch_has_kept() -> None:
    stream = Stream(grouped(window.FixedWindows(10)))
    assert stream.run([("a", 1, 3), ("b", 2, 4), ("a", 3, 14)], 5) == []
    assert stream.run([("a", 4, 9)], 9) == []
    assert stream.run([("a", 5, 2)], 12) == [
        (("a", [1, 4, 5]), 9_999_000, "[0.0, 10.0)"),
        (("b", [2]), 9_999_000, "[0.0, 10.0)"),
    ]
    assert {report.watermark for report in stream.reports if report.level} == {12 * SECOND}
    assert stream.run([("a", 6, 5)], 3) == [], "the watermark does not go back"
    assert stream.late == 1
    assert {report.watermark for report in stream.reports if report.level} == {12 * SECOND}
    assert stream.values([], 20) == [("a", [3])]
    assert stream.kept() == 0


def test_a_micro_batch_that_is_run_again_does_the_same() -> None:
    stream = Stream(grouped(window.Sessions(5)))
    stream.run([(f"key-{number}", number, number % 7) for number in range(50)], 2)
    before = copy.deepcopy(stream.entries)
    first, rows, after = stream.run([("key-7", 99, 4)], 100), stream.rows, stream.entries
    stream.entries = before
    assert stream.run([("key-7", 99, 4)], 100) == first
    assert len(first) == 50
    assert ("key-7", [7, 99]) in [value for value, _, _ in first]
    assert stream.entries == after
    assert [row[:3] for row in stream.rows] == [row[:3] for row in rows]


def test_nothing_is_known_of_the_watermark_before_a_source_says_so() -> None:
    stream = Stream(grouped(window.FixedWindows(10)))
    assert stream.run([("a", 1, 3)], MIN // SECOND) == []
    assert stream.late == 0
    assert {report.bucket for report in stream.reports if report.level} == set(BUCKETS), "each bucket reports"
