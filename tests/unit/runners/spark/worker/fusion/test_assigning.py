"""The fused `WindowInto` assigns elements to the same windows as Beam does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms import trigger, window
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from rmqio.runners.spark.worker import fusion
from tests.helpers.spark.spark_plan import outcome


class ByLength(window.NonMergingWindowFn):
    """A user's WindowFn. Its windows depend on the element, its timestamp and its previous window."""

    def assign(self, context: Any) -> list[Any]:
        end = int(context.window.end.micros) // 1_000_000 if hasattr(context.window, "start") else 0
        length = len(str(context.element)) + end % 7
        return [window.IntervalWindow(context.timestamp, context.timestamp + 1 + each) for each in range(length)]

    def get_window_coder(self) -> Any:
        return window.FixedWindows(1).get_window_coder()


FUNCTIONS: dict[str, window.WindowFn] = {
    "global": window.GlobalWindows(),
    "fixed": window.FixedWindows(10),
    "fixed, with an offset": window.FixedWindows(10, 3),
    "fixed, parts of a second": window.FixedWindows(0.3, 0.1),
    "sliding": window.SlidingWindows(10, 5),
    "sliding, with an offset": window.SlidingWindows(12, 4, 1),
    "sliding, that do not divide": window.SlidingWindows(10, 3),
    "sliding, with gaps": window.SlidingWindows(2, 5),
    "sessions": window.Sessions(7),
    "of a user": ByLength(),
}
MICROS = st.integers(-(10**8), 10**8) | st.integers(-(10**15), 10**15)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(times=st.lists(MICROS, min_size=1, max_size=30))
def test_windows_are_those_of_beam(name: str, times: list[int]) -> None:
    windowfn = FUNCTIONS[name]
    assign = fusion.assigner(windowfn)
    for micros in (*times, *reversed(times)):
        before = window.IntervalWindow(0, 5)
        found = assign(WindowedValue("text", Timestamp(micros=micros), (before,)), "text")
        context = window.WindowFn.AssignContext(Timestamp(micros=micros), element="text", window=before)
        assert found == tuple(windowfn.assign(context))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_MOST", 3)
    assign = fusion.assigner(window.FixedWindows(1))
    for second in [*range(10), *range(10)]:
        (found,) = assign(WindowedValue(None, second, ()), None)
        assert found.start == second


class Panes(beam.DoFn):
    def process(self, element: Any, pane: Any = beam.DoFn.PaneInfoParam) -> Any:
        yield element, pane


def spread(element: int) -> Any:
    return window.TimestampedValue(element, (element * 37) % 101 - 20)


def keyed(element: Any) -> tuple[str, int]:
    return str(element)[-1], 1


def into(windowfn: window.WindowFn) -> Callable[[Any], Any]:
    return lambda p: p | "t" >> beam.Map(spread) | beam.WindowInto(windowfn) | beam.Map(str)


def combined(combiner: Any) -> Callable[[Any], Any]:
    return lambda p: (
        p
        | "t" >> beam.Map(spread)
        | "key" >> beam.Map(keyed)
        | beam.WindowInto(
            window.SlidingWindows(20, 10),
            timestamp_combiner=combiner,
            accumulation_mode=trigger.AccumulationMode.DISCARDING,
        )
        | "same" >> beam.Map(lambda x: x)
        | beam.CombinePerKey(sum)
    )


BUILD: dict[str, Callable[[Any], Any]] = {
    **{name: into(windowfn) for name, windowfn in FUNCTIONS.items()},
    "windows of windows": lambda p: (
        p
        | beam.Map(spread)
        | "1" >> beam.WindowInto(window.SlidingWindows(20, 10))
        | "2" >> beam.WindowInto(ByLength())
        | "3" >> beam.WindowInto(window.SlidingWindows(6, 3))
        | "4" >> beam.WindowInto(window.FixedWindows(4))
    ),
    "behind a DoFn of Beam's": lambda p: p | beam.ParDo(Panes()) | beam.WindowInto(window.FixedWindows(4)),
    "before a DoFn of Beam's": lambda p: p | beam.WindowInto(window.FixedWindows(4)) | beam.ParDo(Panes()),
    "first": lambda p: p | beam.WindowInto(window.FixedWindows(4)) | beam.Map(str),
    "at the ends of time": lambda p: (
        p
        | beam.FlatMap(lambda x: [window.TimestampedValue(x, MIN_TIMESTAMP), window.TimestampedValue(x, MAX_TIMESTAMP)])
        | beam.WindowInto(window.GlobalWindows())
    ),
    "two readers": lambda p: (
        ((m := p | beam.Map(spread) | beam.WindowInto(window.Sessions(3))) | "a" >> beam.Map(str), m)
        | beam.Flatten()
        | "b" >> beam.Map(repr)
    ),
    "combined, at the end of the window": combined(window.TimestampCombiner.OUTPUT_AT_EOW),
    "combined, the earliest": combined(window.TimestampCombiner.OUTPUT_AT_EARLIEST),
    "combined, the latest": combined(window.TimestampCombiner.OUTPUT_AT_LATEST),
    "grouped": lambda p: (
        p
        | beam.Map(spread)
        | "key" >> beam.Map(keyed)
        | beam.WindowInto(window.FixedWindows(9))
        | beam.GroupByKey()
        | beam.MapTuple(lambda k, v: (k, sorted(v)))
    ),
}


@pytest.mark.parametrize("elements", [1, 9, 300])
@pytest.mark.parametrize("name", BUILD)
def test_a_chain_with_windows_gives_and_counts_what_it_does_by_beam(
    name: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[window.WindowFn] = []

    original = fusion.assigner

    def assigner(windowfn: window.WindowFn) -> Any:
        made.append(windowfn)
        return original(windowfn)

    monkeypatch.setattr(fusion, "assigner", assigner)
    ours = outcome(BUILD[name], elements)
    assert made
    monkeypatch.setattr(fusion, "_is_fusable", lambda *_: False)
    made.clear()
    assert ours == outcome(BUILD[name], elements)
    assert not made


def test_what_was_a_pane_is_none_in_new_windows() -> None:
    """As in Beam, a value that is assigned to windows has no pane yet."""

    def paned(element: int) -> WindowedValue:
        pane = PaneInfo(True, False, PaneInfoTiming.EARLY, 0, -1)
        return WindowedValue(element, 5, (window.GlobalWindow(),), pane)

    found, _ = outcome(lambda p: p | beam.Map(paned) | beam.WindowInto(window.FixedWindows(4)) | beam.ParDo(Panes()), 1)
    ((_, pane),) = (value for value, _, _ in found)
    assert pane.timing == PaneInfoTiming.UNKNOWN


def broken(element: Any) -> Any:
    raise ValueError(f"no window for {element}")


class Broken(ByLength):
    def assign(self, context: Any) -> list[Any]:
        return broken(context.element)  # type: ignore[no-any-return]


def test_a_failure_has_the_name_of_its_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    def text() -> str:
        with pytest.raises(Exception, match="no window for 0") as failure:
            outcome(lambda p: p | beam.Map(int) | "it" >> beam.WindowInto(Broken()) | beam.Map(str), 3)
        return str(failure.value).splitlines()[0]

    ours = text()
    assert "<it: " in ours
    monkeypatch.setattr(fusion, "_is_fusable", lambda *_: False)
    assert ours == text()
