"""Steps that follow each other without Beam's hand-over do the same as Beam's operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.transforms import window

from rmqio.runners.spark.worker import fusion
from tests.helpers.spark import spark_plan
from tests.helpers.spark.fused_steps import (
    Asking,
    Doubled,
    Noting,
    NotingByBeam,
    Numbered,
    Numbering,
    Passing,
    Returning,
    all_of,
    at_times,
    at_times_in_windows,
    chain_of,
    count,
    how_many,
    is_in_window,
    is_wanted,
    keyed,
    noted,
    parameters_with,
    side,
    state_before,
    thrice,
    with_time,
)
from tests.helpers.spark.spark_plan import outcome

pytestmark = [pytest.mark.slow]

Build = Callable[[Any], Any]
BUILD: dict[str, Build] = {
    "maps": lambda p: p | "1" >> beam.Map(lambda x: x + 1) | "2" >> beam.Map(str) | "3" >> beam.Map(keyed),
    "filters": lambda p: p | "1" >> beam.Filter(is_wanted) | "2" >> beam.Filter(lambda x: x) | beam.Map(keyed),
    "flat maps": lambda p: p | "1" >> beam.FlatMap(thrice) | "2" >> beam.FlatMap(lambda x: x) | beam.Map(keyed),
    "texts in pieces": lambda p: (
        p
        | beam.Map(str)
        | "2" >> beam.FlatMap(lambda x: x)
        | "3" >> beam.FlatMap(lambda x: {x: 1})
        | "e" >> beam.Map(keyed)
    ),
    "tuples": lambda p: (
        p
        | beam.Map(lambda x: (x, 1))
        | beam.MapTuple(lambda a, b: (a + b, b))
        | beam.FlatMapTuple(lambda a, b: [a, b])
        | "e" >> beam.Map(keyed)
    ),
    "callables": lambda p: (
        p
        | "1" >> beam.Map(Doubled())
        | "2" >> beam.Map(list)
        | "3" >> beam.FlatMap(set)
        | "4" >> beam.Map(functools.partial(pow, 2))
        | "5" >> beam.Map(keyed)
    ),
    "defaults": lambda p: (
        p | "1" >> beam.Map(lambda x, y=3: x + y) | "2" >> beam.Map(lambda x, y: x + y, 5) | "3" >> beam.Map(keyed)
    ),
    "side inputs": lambda p: (
        p
        | "1" >> beam.Map(keyed)
        | "2" >> beam.Map(lambda kv, side: (kv, sum(side.values())), beam.pvalue.AsDict(side(p)))
        | "3" >> beam.FlatMap(all_of, beam.pvalue.AsIter(side(p)), 2, n=beam.pvalue.AsList(side(p)))
        | "4" >> beam.Filter(lambda x, one, two: one < two, 1, two=2)
        | "5" >> beam.Map(lambda x: (repr(x), len(repr(x))))
        | "6" >> beam.MapTuple(lambda text, n, times=0: text * times, beam.pvalue.AsSingleton(how_many(p)))
        | "7" >> beam.Map(noted)
    ),
    "side inputs in windows": lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | beam.WindowInto(window.FixedWindows(2))
        | "2" >> beam.Map(noted)
        | "3" >> beam.Map(lambda x, side: (x, sorted(side)), beam.pvalue.AsIter(side(p, window.FixedWindows(2))))
        | "4" >> beam.Map(noted)
    ),
    "state before Beam": lambda p: p | beam.Map(str) | beam.ParDo(Numbering()) | beam.ParDo(Passing()),
    "state behind Beam": lambda p: p | beam.ParDo(Passing()) | beam.ParDo(Numbering()) | beam.Map(str),
    "state alone": lambda p: p | "1" >> beam.ParDo(Passing()) | beam.ParDo(Numbering()) | "2" >> beam.ParDo(Passing()),
    "state in what is called": lambda p: p | "1" >> beam.Map(str) | "2" >> beam.Map(Numbered()) | beam.ParDo(Passing()),
    "state in an argument": lambda p: (
        p
        | "1" >> beam.Map(str)
        | "2" >> beam.Map(lambda x, seen: seen.append(x) or len(seen), [])
        | "3" >> beam.Map(str)
    ),
    "state for two readers": lambda p: (
        (
            (m := p | beam.Map(str) | beam.ParDo(Numbering())) | "2" >> beam.Map(noted),
            m | "3" >> beam.Map(noted),
        )
        | beam.Flatten()
    ),
    **{f"state before {count} steps": state_before(count) for count in (48, 49, 50, 51, 60)},
    "to a global combine": lambda p: p | beam.Map(lambda x: x + 1) | beam.CombineGlobally(sum).without_defaults(),
    "to a combine by key": lambda p: p | "1" >> beam.Map(keyed) | beam.CombinePerKey(sum) | "2" >> beam.Map(noted),
    "to a windowed combine": lambda p: (
        p
        | "1" >> beam.Map(keyed)
        | beam.Map(with_time)
        | beam.WindowInto(window.FixedWindows(5))
        | beam.CombinePerKey(sum)
        | "2" >> beam.Map(noted)
    ),
    "to a group": lambda p: (
        p
        | "1" >> beam.Map(keyed)
        | beam.GroupByKey()
        | beam.MapTuple(lambda k, v: (k, sorted(v)))
        | "2" >> beam.Map(noted)
    ),
    "to a shuffle": lambda p: (
        p | "1" >> beam.Map(keyed) | beam.Reshuffle() | "2" >> beam.Map(noted) | "3" >> beam.Map(noted)
    ),
    "into a shuffle": lambda p: (
        p | "1" >> beam.Map(keyed) | "2" >> beam.Map(noted) | beam.Reshuffle() | "3" >> beam.Map(noted)
    ),
    "times": lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | "2" >> beam.FlatMap(lambda x: at_times(x))
        | "3" >> beam.Map(noted)
        | "4" >> beam.Map(noted)
    ),
    "times in windows": lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | beam.WindowInto(window.SlidingWindows(6, 2))
        | "2" >> beam.FlatMap(at_times_in_windows)
        | "3" >> beam.Map(with_time)
        | "4" >> beam.Map(noted)
        | "5" >> beam.Map(noted)
    ),
    "two readers": lambda p: (
        ((m := p | "1" >> beam.Map(keyed)) | "2" >> beam.Map(noted), m | "3" >> beam.Filter(is_wanted))
        | beam.Flatten()
        | "4" >> beam.Map(noted)
    ),
    "two outputs": lambda p: (
        (
            p
            | beam.FlatMap(lambda x: [beam.pvalue.TaggedOutput("odd", x) if x % 2 else x]).with_outputs(
                "odd", main="even"
            )
        ).odd
        | "1" >> beam.Map(keyed)
        | "2" >> beam.Map(noted)
    ),
    "nothing returned": lambda p: p | beam.ParDo(Returning(None)) | "1" >> beam.Map(keyed) | "2" >> beam.Map(noted),
    "lists returned": lambda p: p | beam.ParDo(Returning([1, "a"])) | "1" >> beam.Map(keyed) | "2" >> beam.Map(noted),
    "behind a DoFn of Beam's": lambda p: (
        p
        | "noting" >> beam.ParDo(NotingByBeam())
        | "1" >> beam.FlatMap(thrice)
        | "2" >> beam.FlatMap(thrice)
        | "3" >> beam.Map(keyed)
    ),
    "behind a generator": lambda p: (
        p
        | "noting" >> beam.ParDo(Noting())
        | "1" >> beam.FlatMap(thrice)
        | "2" >> beam.Filter(is_wanted)
        | "3" >> beam.Map(keyed)
    ),
    **{
        f"parameters, {name}": parameters_with(windowing)
        for name, windowing in {
            "one window": window.GlobalWindows(),
            "several windows": window.SlidingWindows(6, 2),
        }.items()
    },
    "a filter by window": lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | beam.WindowInto(window.SlidingWindows(6, 2))
        | "2" >> beam.Filter(is_in_window)
        | "3" >> beam.Map(keyed)
        | beam.CombinePerKey(sum)
    ),
    "parameters and times": lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | beam.WindowInto(window.SlidingWindows(6, 2))
        | "2" >> beam.FlatMap(lambda x, w=beam.DoFn.WindowParam: at_times(x, w))
        | "3" >> beam.ParDo(Asking())
    ),
    "parameters and arguments": lambda p: (
        p
        | "1" >> beam.Map(lambda x, y, t=beam.DoFn.TimestampParam: (x, y, t), 5)
        | "2" >> beam.Map(lambda x, t=beam.DoFn.TimestampParam, y=3: (x, y, t))
        | "3" >> beam.Map(lambda x, t=beam.DoFn.TimestampParam, y=3: (x, y, t), y=4)
        | "4" >> beam.Map(lambda x, side, w=beam.DoFn.WindowParam: (x, w, sorted(side)), beam.pvalue.AsList(side(p)))
        | "5" >> beam.Map(noted)
    ),
    "parameters, nothing returned": lambda p: (
        p | "1" >> beam.FlatMap(lambda x, t=beam.DoFn.TimestampParam: None) | "2" >> beam.Map(noted)
    ),
    "a generator before a combine": lambda p: (
        p
        | "noting" >> beam.ParDo(Noting())
        | "3" >> beam.CombineGlobally(beam.combiners.CountCombineFn()).without_defaults()
    ),
    "a generator before a group": lambda p: (
        p
        | beam.Map(keyed)
        | "noting" >> beam.ParDo(Noting())
        | beam.GroupByKey()
        | beam.MapTuple(lambda k, v: (k, sorted(v)))
    ),
}


@pytest.mark.parametrize("elements", [1, 9, 700])
@pytest.mark.parametrize("name", BUILD)
def test_a_chain_gives_and_counts_what_it_does_by_beam(
    name: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = outcome(BUILD[name], elements)
    monkeypatch.setattr(fusion, "_is_fusable", lambda *_: False)
    assert ours == outcome(BUILD[name], elements)


def free_frames(element: Any) -> int:
    """Returns how deep a function can still recurse."""

    def dive(depth: int) -> int:
        try:
            return dive(depth + 1)
        except RecursionError:
            return depth

    return dive(0)


def test_many_steps_can_follow_each_other_and_leave_a_function_room() -> None:
    pipeline = beam.Pipeline()
    found = chain_of(pipeline | beam.Create(range(300)), 200) | beam.Map(free_frames)
    depths = [element for element, _, _ in spark_plan.collect(pipeline, found)]
    assert len(depths) == 300
    assert min(depths) > 700


def test_the_operations_that_end_a_stage_keep_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A combine counts under its own name, and so does the function before it."""

    class Counting(beam.CombineFn):
        def create_accumulator(self) -> int:
            return 0

        def add_input(self, accumulator: int, element: int) -> int:
            count("added")
            return accumulator + element

        def merge_accumulators(self, accumulators: Any) -> int:
            return sum(accumulators)

        def extract_output(self, accumulator: int) -> int:
            return accumulator

    def build(numbers: Any) -> Any:
        return numbers | "key" >> beam.Map(keyed) | "sum" >> beam.CombinePerKey(Counting())

    found, counted = outcome(build, 50)
    assert sum(total for (_, total), _, _ in found) == 50
    names = {(dict(labels)["NAME"], dict(labels)["PTRANSFORM"]) for urn, *labels in counted if "user" in urn}
    assert names == {("keyed", "key"), ("added", "sum/Precombine")}
