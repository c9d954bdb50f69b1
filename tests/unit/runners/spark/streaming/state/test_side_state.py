"""Side inputs over many micro-batches: when they are ready, which pane counts, and what is forgotten. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms import trigger, window

from tests.helpers.spark.spark_stream import BUCKETS, SECOND, Stream

pytestmark = [pytest.mark.slow]

Pair = tuple[str, Any]


@beam.ptransform_fn
def looking_up(pairs: Any, side_windows: Any, main_windows: Any, view: Any) -> Any:
    """Makes the elements with the key "side" the side input of the others."""
    side = pairs | "Side" >> beam.Filter(lambda kv: kv[0] == "side") | "Value" >> beam.Values() | "SW" >> side_windows
    main = pairs | "Main" >> beam.Filter(lambda kv: kv[0] != "side") | "MW" >> main_windows
    return main | "Look up" >> beam.Map(_with, view(side))


def _with(pair: Pair, found: Any) -> tuple[str, Any, Any]:
    return pair[0], pair[1], sorted(found) if isinstance(found, list) else found


def each_takes_the_place_of_the_last() -> Any:
    repeated = trigger.Repeatedly(trigger.AfterCount(1))
    discarding = trigger.AccumulationMode.DISCARDING
    return beam.WindowInto(window.GlobalWindows(), trigger=repeated, accumulation_mode=discarding)


def segments(stream: Stream) -> int:
    """Returns how many pieces of side inputs each bucket keeps."""
    (count,) = {sum(name[:1] == b"j" for name in stream.entries[1, bucket]) for bucket in BUCKETS}
    return count


def test_the_last_firing_of_a_slowly_changing_singleton_counts_and_the_earlier_ones_are_forgotten() -> None:
    steps = looking_up(
        each_takes_the_place_of_the_last(), beam.WindowInto(window.GlobalWindows()), beam.pvalue.AsSingleton
    )
    stream = Stream(steps)
    assert stream.values([("a", 1, 1)], 2) == [], "it waits for the first firing"
    assert stream.values([("side", "v1", 3)], 4) == [("a", 1, "v1")]
    assert stream.values([("b", 2, 5)], 6) == [("b", 2, "v1")]
    assert stream.values([("side", "v3", 8), ("side", "v2", 7), ("c", 3, 7)], 9) == [("c", 3, "v3")]
    for second in range(10, 20):
        stream.run([("side", f"v{second}", second)], second)
    assert segments(stream) == 1
    assert stream.values([("d", 4, 20)], 21) == [("d", 4, "v19")]


def test_a_triggered_list_grows_with_each_pane_as_beam_s_python_runners_have_it() -> None:
    whole = beam.WindowInto(window.GlobalWindows())
    steps = looking_up(each_takes_the_place_of_the_last(), whole, beam.pvalue.AsList)
    stream = Stream(steps)
    assert stream.values([("side", 1, 1), ("a", 0, 1)], 2) == [("a", 0, [1])]
    assert stream.values([("side", 2, 3), ("b", 0, 3)], 4) == [("b", 0, [1, 2])]


def test_windows_of_a_side_input_are_forgotten_when_nothing_looks_at_them_any_more() -> None:
    fixed = beam.WindowInto(window.FixedWindows(10))
    stream = Stream(looking_up(fixed, beam.WindowInto(window.FixedWindows(10)), beam.pvalue.AsList))
    assert stream.values([("side", 1, 1), ("a", 0, 3), ("side", 2, 12)], 5) == [], "the window is not over"
    assert segments(stream) == 2
    assert stream.values([], 9.999_999) == [], "its last microsecond is not"
    assert stream.values([("side", 3, 9)], 10) == [("a", 0, [1, 3])]
    stream.run([], 11)
    assert segments(stream) == 1, "of the second window"
    assert stream.values([("b", 1, 15)], 30) == [("b", 1, [2])]
    stream.run([], 31)
    assert segments(stream) == 0


def test_a_window_of_a_side_input_that_comes_after_one_was_forgotten_takes_no_place_of_another() -> None:
    fixed = beam.WindowInto(window.FixedWindows(10))
    stream = Stream(looking_up(fixed, beam.WindowInto(window.FixedWindows(10)), beam.pvalue.AsList))
    for elements, watermark in (([("side", 1, 1), ("side", 2, 12)], 11), ([], 11), ([("side", 3, 22)], 15)):
        stream.run(elements, watermark)
    assert segments(stream) == 2, "of the second and the third window"
    assert stream.values([("a", 0, 15), ("b", 0, 23)], 32) == [("a", 0, [2]), ("b", 0, [3])]


def test_the_first_of_the_elements_that_wait_for_a_side_input_holds_the_watermark() -> None:
    fixed = beam.WindowInto(window.FixedWindows(10))
    steps = looking_up(fixed, beam.WindowInto(window.FixedWindows(10)), beam.pvalue.AsList)
    stream = Stream(steps | beam.Map(lambda each: (each[0], each[1])) | beam.Reshuffle())
    stream.run([], 2)
    stream.run([("a", number, 3) for number in range(9)], 4)  # some in each bucket
    stream.run([("a", number, 5) for number in range(9)], 6)
    stream.run([], 8)
    assert {report.watermark for report in stream.reports if report.level == 2} == {2 * SECOND}


def test_windows_of_a_side_input_are_there_as_long_as_late_elements_may_come() -> None:
    fixed = beam.WindowInto(window.FixedWindows(10), allowed_lateness=20)
    stream = Stream(looking_up(beam.WindowInto(window.FixedWindows(10)), fixed, beam.pvalue.AsList))
    assert stream.values([("side", 1, 1), ("side", 2, 12)], 10) == []
    for watermark, left in ((29.999_999, 2), (30, 1)):
        stream.run([], watermark)
        stream.run([], watermark)  # elements that come now are late by this one
        assert segments(stream) == left


def test_two_elements_in_a_singleton_that_fires_once_are_an_error_as_in_beam() -> None:
    whole = beam.WindowInto(window.FixedWindows(10))
    stream = Stream(looking_up(whole, beam.WindowInto(window.FixedWindows(10)), beam.pvalue.AsSingleton))
    stream.run([("side", 1, 1), ("side", 2, 2), ("a", 0, 3)], 5)
    with pytest.raises(Exception, match="more than one element accessed as a singleton"):
        stream.run([], 12)
