"""Accumulators that wait in state are merged there: results do not change, and state does not grow. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms import trigger, window
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.streaming import windows
from rmqio.runners.spark.streaming.model import MAX
from tests.helpers.spark.spark_stream import SECOND, Stream

pytestmark = [pytest.mark.slow]

ACCUMULATING, DISCARDING = trigger.AccumulationMode.ACCUMULATING, trigger.AccumulationMode.DISCARDING
EACH = trigger.Repeatedly(trigger.AfterCount(1))
EARLY = trigger.AfterWatermark(early=trigger.AfterProcessingTime(3), late=trigger.AfterCount(1))
WINDOWS: dict[str, Any] = {
    "fires once": {"windowfn": window.FixedWindows(100)},
    "running totals": {"windowfn": window.GlobalWindows(), "trigger": EACH, "accumulation_mode": ACCUMULATING},
    "early and late, accumulating": {
        "windowfn": window.FixedWindows(20),
        "trigger": EARLY,
        "accumulation_mode": ACCUMULATING,
        "allowed_lateness": 30,
    },
    "early and late, discarding": {
        "windowfn": window.FixedWindows(20),
        "trigger": EARLY,
        "accumulation_mode": DISCARDING,
        "allowed_lateness": 30,
    },
    "sessions": {"windowfn": window.Sessions(5), "allowed_lateness": 10},
}


class Values(beam.CombineFn):
    """Returns all values, sorted, so that an accumulator that loses or duplicates values is noticed."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return [*accumulator, element]

    def merge_accumulators(self, accumulators: Any) -> list[Any]:
        return sorted(value for each in accumulators for value in each)

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return sorted(accumulator)


def combined(windowing: dict[str, Any], combine: Any) -> Stream:
    return Stream(beam.WindowInto(**windowing) | beam.CombinePerKey(combine))


def run(name: str, batches: list[list[tuple[str, int]]], at_least: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the output of each micro-batch, at intervals of two seconds, and the output at the end."""
    for module in (windows, windows):
        monkeypatch.setattr(module, "AT_LEAST", at_least)
    stream = combined(WINDOWS[name], Values())
    found = []
    for number, batch in enumerate(batches):
        elements = [(key, f"{number}-{at}", max(0, 2 * number - late)) for at, (key, late) in enumerate(batch)]
        found.append(stream.run(elements, 2 * number - 1, clock=2 * number))
    return [*found, stream.run([], 10_000, clock=10_000), stream.late]


BATCH = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=4)


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=15, deadline=None)
@given(batches=st.lists(BATCH, min_size=1, max_size=12))
def test_the_same_comes_out_whether_accumulators_are_merged_or_not(
    name: str, batches: list[list[tuple[str, int]]]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        wanted = run(name, batches, 1_000_000, monkeypatch)
        assert run(name, batches, 2, monkeypatch) == wanted


@pytest.mark.parametrize("name", ["fires once", "running totals"])
def test_state_does_not_grow_with_the_number_of_micro_batches(name: str) -> None:
    stream = combined(WINDOWS[name], sum)
    sizes = []
    for number in range(200):
        stream.run([("a", 1, number / 4), ("b", 1, number / 4)], 0, clock=number)
        sizes.append(sum(len(value) for each in stream.entries.values() for value in each.values()))
    assert max(sizes[100:]) <= 1.2 * max(sizes[50:100])
    assert max(sizes) < 4_000
    stream.run([], MAX / SECOND, clock=200)
    assert stream.kept() == 0


def test_values_that_are_no_accumulators_stay_as_they_are() -> None:
    whole = beam.WindowInto(window.FixedWindows(100))
    stream = Stream(whole | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sorted(values))))
    for number in range(40):
        assert stream.run([("a", number, number)], 0) == []
    assert stream.values([], 200) == [("a", list(range(40)))]
