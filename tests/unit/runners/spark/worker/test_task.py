"""A Spark worker runs a stage, in this process, compared with Beam's in-process runner."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import trigger, userstate, window
from apache_beam.transforms.window import TimestampCombiner
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.model import Grouping
from rmqio.runners.spark.translation import grouping_of
from rmqio.runners.spark.worker import shuffling, task
from tests.helpers.spark.spark_plan import LocalRun, collect, collect_in_process

KEYS = [1, True, 1.0, "1", b"1", None, (1, "x"), ("y", (2, None)), 0, False, "", b"", -5, 1 << 70]

WINDOWINGS: dict[str, dict[str, Any]] = {
    "global": {"windowfn": window.GlobalWindows()},
    "fixed": {"windowfn": window.FixedWindows(10)},
    "sliding": {"windowfn": window.SlidingWindows(10, 5)},
    "sessions": {"windowfn": window.Sessions(4)},
    "earliest": {"windowfn": window.FixedWindows(10), "timestamp_combiner": TimestampCombiner.OUTPUT_AT_EARLIEST},
    "latest": {"windowfn": window.Sessions(4), "timestamp_combiner": TimestampCombiner.OUTPUT_AT_LATEST},
    "latest in global": {"windowfn": window.GlobalWindows(), "timestamp_combiner": TimestampCombiner.OUTPUT_AT_LATEST},
    "count, discarding": {
        "windowfn": window.FixedWindows(10),
        "trigger": trigger.Repeatedly(trigger.AfterCount(2)),
        "accumulation_mode": trigger.AccumulationMode.DISCARDING,
    },
    "early and late, accumulating": {
        "windowfn": window.FixedWindows(10),
        "trigger": trigger.AfterWatermark(early=trigger.AfterCount(3), late=trigger.AfterCount(1)),
        "accumulation_mode": trigger.AccumulationMode.ACCUMULATING,
    },
    "never": {"windowfn": window.GlobalWindows(), "trigger": trigger._Never(), "accumulation_mode": 1},
}


def both(build: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """Returns the result of a pipeline from the worker's code and from Beam's in-process runner."""
    ours, reference = beam.Pipeline(), beam.Pipeline(runner=FnApiRunner())
    return collect(ours, build(ours)), collect_in_process(reference, build(reference))


@pytest.mark.parametrize("name", WINDOWINGS)
def test_grouping_in_every_kind_of_window(name: str) -> None:
    generator = random.Random(name)
    elements = [(generator.choice("abc"), generator.randrange(100), generator.uniform(0, 60)) for _ in range(200)]

    def build(pipeline: Any) -> Any:
        return (
            pipeline
            | beam.Create(elements)
            | beam.Map(lambda e: window.TimestampedValue((e[0], e[1]), e[2]))
            | beam.WindowInto(**WINDOWINGS[name])
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: (key, sorted(values)))
        )

    ours, reference = both(build)
    if grouping_of(beam.transforms.core.Windowing(**_windowing(name))) is Grouping.TRIGGERED:
        # The elements of a pane depend on the order of arrival, so only the sizes of the panes must agree. On the
        # in-process runner, a window that never reaches its count loses its only element.
        ours, reference = (
            sorted((e[0], len(e[1]), w) for e, _, w in found if len(e[1]) > 1) for found in (ours, reference)
        )
    if name == "never":
        # Beam's in-process runner puts this group at the beginning of time. The model requires the end of its window
        ours, reference = ([(e, w) for e, _, w in found] for found in (ours, reference))
    assert ours == reference


@pytest.mark.parametrize(
    "given",
    [
        trigger.AfterCount(3),
        trigger.AfterProcessingTime(60),
        trigger.AfterAny(trigger.AfterCount(3), trigger.AfterCount(4)),
    ],
    ids=["count", "processing time", "composite"],
)
@pytest.mark.parametrize("mode", [trigger.AccumulationMode.DISCARDING, trigger.AccumulationMode.ACCUMULATING])
@pytest.mark.parametrize(
    "windowfn",
    [window.FixedWindows(10), window.Sessions(5), window.GlobalWindows()],
    ids=["fixed", "sessions", "global"],
)
def test_a_window_that_closes_emits_what_its_trigger_never_fired(given: Any, mode: Any, windowfn: Any) -> None:
    pipeline = beam.Pipeline()
    panes = (
        pipeline
        | beam.Create([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)])
        | beam.Map(lambda e: window.TimestampedValue(e, e[1]))
        | beam.WindowInto(windowfn, trigger=trigger.Repeatedly(given), accumulation_mode=mode)
        | beam.GroupByKey()
        | beam.MapTuple(lambda key, values: (key, sorted(values)))
    )
    assert [element for element, _, _ in collect(pipeline, panes)] == [("a", [1, 2]), ("b", [1, 2, 3])]


def _windowing(name: str) -> dict[str, Any]:
    given = dict(WINDOWINGS[name])
    given["triggerfn"] = given.pop("trigger", None)
    return given


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("global", Grouping.GLOBAL),
        ("never", Grouping.GLOBAL),
        ("fixed", Grouping.WINDOWED),
        ("sessions", Grouping.WINDOWED),
        ("latest in global", Grouping.WINDOWED),
        ("count, discarding", Grouping.TRIGGERED),
        ("early and late, accumulating", Grouping.TRIGGERED),
    ],
)
def test_only_triggers_need_the_trigger_driver(name: str, expected: Grouping) -> None:
    assert grouping_of(beam.transforms.core.Windowing(**_windowing(name))) is expected


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(range(len(KEYS))), st.binary(max_size=20)), max_size=80))
@pytest.mark.slow
def test_keys_of_any_type_stay_apart(elements: list[tuple[int, bytes]]) -> None:
    def build(pipeline: Any) -> Any:
        return (
            pipeline
            | beam.Create(elements)
            | beam.MapTuple(lambda number, value: (KEYS[number], value)).with_output_types(tuple[Any, bytes])
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: (repr(key), sorted(values)))
        )

    ours, reference = both(build)
    assert ours == reference


def test_a_table_is_flushed_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.spark.worker.writing.FLUSH_ELEMENTS", 10)
    elements = [(f"key-{n % 7}", n) for n in range(500)]
    pipeline = beam.Pipeline()
    grouped = pipeline | beam.Create(elements) | beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, sorted(v)))
    found = [element for element, _, _ in collect(pipeline, grouped)]
    assert found == sorted((f"key-{n}", list(range(n, 500, 7))) for n in range(7))


@pytest.mark.parametrize("name", ["global", "fixed", "sessions"])
def test_a_group_beyond_memory_is_read_from_disk_any_number_of_times(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffling, "_IN_MEMORY_BYTES", 1_000)
    monkeypatch.setattr("rmqio.runners.spark.worker.writing.FLUSH_BYTES", 300)
    elements = [(key, number) for number in range(3_000) for key in "ab"]

    def twice(element: tuple[str, Any]) -> tuple[str, int, int, int]:
        key, values = element
        both_at_once = sum(x == y for x, y in zip(values, values, strict=True))
        return key, len(list(values)), sum(values), both_at_once

    pipeline = beam.Pipeline()
    grouped = (
        pipeline
        | beam.Create(elements)
        | beam.Map(lambda e: window.TimestampedValue(e, 3))
        | beam.WindowInto(**WINDOWINGS[name])
        | beam.GroupByKey()
        | beam.Map(twice)
    )
    found = [element for element, _, _ in collect(pipeline, grouped)]
    assert found == [(key, 3_000, sum(range(3_000)), 3_000) for key in "ab"]


def test_nothing_is_left_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(shuffling, "_IN_MEMORY_BYTES", 1_000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    pipeline = beam.Pipeline()
    grouped = pipeline | beam.Create([(1, "x" * 100)] * 100) | beam.GroupByKey() | beam.MapTuple(lambda k, v: len([*v]))
    assert [element for element, _, _ in collect(pipeline, grouped)] == [100]
    assert list(tmp_path.iterdir()) == []


def test_dealing_depends_on_the_elements_and_not_on_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def dealt(elements: list[int]) -> list[set[bytes]]:
        pipeline = beam.Pipeline()
        _ = (
            pipeline
            | beam.Impulse()
            | beam.FlatMap(lambda _: elements)
            | beam.Reshuffle()
            | beam.Map(lambda element: element)
        )
        run = LocalRun(pipeline)
        found: list[set[bytes]] = [set() for _ in range(run.buckets)]
        for stage in run.rows:
            for _, bucket, _, value in run.rows[stage]:
                found[bucket].add(bytes(sorted(value)))
        return found

    few = list(range(100))
    assert dealt(few) == dealt(few[::-1])
    assert all(dealt(few)), "each partition gets some"
    monkeypatch.setattr("rmqio.runners.spark.worker.writing._DEAL_ELEMENTS", 10)
    assert dealt(few) == dealt(few[::-1])


def test_two_elements_are_dealt_to_two_partitions() -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create(["a", "b", "c"]) | beam.Map(len)
    run = LocalRun(pipeline)
    buckets = [bucket for rows in run.rows.values() for _, bucket, _, _ in rows]
    assert sorted(buckets) == [0, 1, 2]


class Timed(beam.DoFn):
    """Counts its elements in state, and emits the times at which its timers fire."""

    COUNT = userstate.CombiningValueStateSpec("count", sum)
    AT_END = userstate.TimerSpec("end", userstate.TimeDomain.WATERMARK)
    LATER = userstate.TimerSpec("later", userstate.TimeDomain.REAL_TIME)

    def process(
        self,
        element: Any,
        count: Any = beam.DoFn.StateParam(COUNT),
        at_end: Any = beam.DoFn.TimerParam(AT_END),
        later: Any = beam.DoFn.TimerParam(LATER),
    ) -> None:
        count.add(1)
        at_end.set(100)
        later.set(1)

    @userstate.on_timer(AT_END)
    def end(
        self,
        key: Any = beam.DoFn.KeyParam,
        count: Any = beam.DoFn.StateParam(COUNT),
        at_end: Any = beam.DoFn.TimerParam(AT_END),
        later: Any = beam.DoFn.TimerParam(LATER),
    ) -> Any:
        seen = count.read()
        count.add(100)
        if seen < 300:
            at_end.set(200 + seen)
        else:
            later.clear()
        yield key, "end", seen

    @userstate.on_timer(LATER)
    def much_later(self, key: Any = beam.DoFn.KeyParam, count: Any = beam.DoFn.StateParam(COUNT)) -> Any:
        yield key, "later", count.read()


@pytest.mark.parametrize("bundle_bytes", [1, 1 << 20])
def test_state_and_timers_of_a_key_live_together(bundle_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_KEYED_BUNDLE_BYTES", bundle_bytes)
    keys = 20
    pipeline = beam.Pipeline()
    fired = pipeline | beam.Create([(f"k{n % keys}", n) for n in range(200)]) | beam.ParDo(Timed())
    found = [element for element, _, _ in collect(pipeline, fired)]
    expected = [(f"k{n}", "end", seen) for n in range(keys) for seen in (10, 110, 210, 310)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("first", [5, 10, 1_000])
def test_a_timer_that_sets_itself_anew_ends_behind_its_window(first: int) -> None:
    class Late(beam.DoFn):
        SPEC = userstate.TimerSpec("late", userstate.TimeDomain.WATERMARK)

        def process(self, element: Any, timer: Any = beam.DoFn.TimerParam(SPEC)) -> None:
            timer.set(first)

        @userstate.on_timer(SPEC)
        def fire(self, time: Any = beam.DoFn.TimestampParam, timer: Any = beam.DoFn.TimerParam(SPEC)) -> Any:
            timer.set(time + 2)
            yield float(time)

    pipeline = beam.Pipeline()
    fired = (
        pipeline
        | beam.Create([("k", 1)])
        | beam.Map(lambda e: window.TimestampedValue(e, 3))
        | beam.WindowInto(window.FixedWindows(10))
        | beam.ParDo(Late())
    )
    expected = {5: [5, 7, 9, 11], 10: [10], 1_000: [1_000]}[first]
    assert sorted(element for element, _, _ in collect(pipeline, fired)) == expected


def test_a_timer_behind_its_window_can_set_another() -> None:
    class Chain(beam.DoFn):
        FIRST = userstate.TimerSpec("first", userstate.TimeDomain.WATERMARK)
        SECOND = userstate.TimerSpec("second", userstate.TimeDomain.WATERMARK)

        def process(self, element: Any, first: Any = beam.DoFn.TimerParam(FIRST)) -> None:
            first.set(20)

        @userstate.on_timer(FIRST)
        def fire(self, second: Any = beam.DoFn.TimerParam(SECOND)) -> Any:
            second.set(30)
            yield "first"

        @userstate.on_timer(SECOND)
        def fire_again(self, first: Any = beam.DoFn.TimerParam(FIRST)) -> Any:
            first.set(40)  # and so on without an end: a timer that fired here does not fire again
            yield "second"

    pipeline = beam.Pipeline()
    elements = pipeline | beam.Create([("k", 1)]) | beam.Map(lambda e: window.TimestampedValue(e, 3))
    fired = elements | beam.WindowInto(window.FixedWindows(10)) | beam.ParDo(Chain())
    assert [element for element, _, _ in collect(pipeline, fired)] == ["first", "second"]


def test_many_timers_of_a_key_fire_in_order_also_when_moved_and_cleared() -> None:
    many = 3_000

    class Tagged(beam.DoFn):
        SPEC = userstate.TimerSpec("tagged", userstate.TimeDomain.WATERMARK)

        def process(self, element: Any, timer: Any = beam.DoFn.TimerParam(SPEC)) -> None:
            for n in range(many):
                timer.set(many - n, dynamic_timer_tag=str(n))
            for n in range(0, many, 3):
                timer.clear(dynamic_timer_tag=str(n))
            for n in range(1, many, 3):
                timer.set(2 * many - n, dynamic_timer_tag=str(n))  # later

        @userstate.on_timer(SPEC)
        def fire(self, tag: Any = beam.DoFn.DynamicTimerTagParam) -> Any:
            yield int(tag)

    _FIRED.clear()
    pipeline = beam.Pipeline()
    fired = pipeline | beam.Create([("k", 1)]) | beam.ParDo(Tagged())
    _ = fired | "note" >> beam.Map(_note)
    LocalRun(pipeline)
    moved, left = range(1, many, 3), range(2, many, 3)
    assert [*reversed(left), *reversed(moved)] == _FIRED


_FIRED: list[int] = []


def _note(tag: int) -> None:
    _FIRED.append(tag)


def test_group_into_batches_loses_no_rest() -> None:
    pipeline = beam.Pipeline()
    batches = pipeline | beam.Create([("k", n) for n in range(5)]) | beam.GroupIntoBatches(2)
    found = [element for _, batch in (element for element, _, _ in collect(pipeline, batches)) for element in batch]
    assert sorted(found) == [0, 1, 2, 3, 4]


def test_a_flatten_of_nothing_is_empty_wherever_it_is_read() -> None:
    pipeline = beam.Pipeline()
    nothing = () | beam.Flatten(pipeline=pipeline)
    some = pipeline | beam.Create([("a", 1)])
    both = (some, nothing) | "both" >> beam.Flatten()
    grouped = nothing | beam.GroupByKey()
    side = some | beam.Map(lambda e, empty: (e, list(empty)), empty=beam.pvalue.AsIter(nothing))
    everything = (both, grouped, side) | "all" >> beam.Flatten()
    assert [element for element, _, _ in collect(pipeline, everything)] == [("a", 1), (("a", 1), [])]


def test_a_plan_writes_only_what_is_read() -> None:
    pipeline = beam.Pipeline()
    one = pipeline | beam.Create([("a", 1), ("b", 2)])
    _ = one | "g1" >> beam.GroupByKey() | "m1" >> beam.Map(len)
    _ = one | "g2" >> beam.GroupByKey() | "m2" >> beam.Map(len)
    _ = one | "plain" >> beam.Map(len)
    run = LocalRun(pipeline)
    forms = [output.form for node in run.plan.nodes for output in getattr(node, "writes", [])]
    assert sorted(form.value for form in forms) == ["dealt", "grouped"]
