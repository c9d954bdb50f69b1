"""Rows of the capability table (docs/spark-runner.md) that no other test shows. Each test is small, on a real Spark."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, userstate, window
from apache_beam.transforms.environments import DockerEnvironment
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterProcessingTime, AfterWatermark, Repeatedly
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp

from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import SparkRunner

EARLY, ON_TIME = 0, 1  # PaneInfoTiming
TIMES = [3, 12, 1, 2, 11]  # not in order


class WithPane(beam.DoFn):
    """Emits the values of a group with the index of the pane and its timing."""

    def process(self, element: Any, pane: Any = beam.DoFn.PaneInfoParam) -> Any:
        yield sorted(element[1]), pane.index, pane.timing


def timed(pipeline: Any, times: Iterable[int] = TIMES) -> Any:
    """Returns numbers under one key. Each number is also its timestamp in seconds."""
    stamp = beam.Map(lambda n: window.TimestampedValue(("k", n), n))
    return pipeline | beam.Create(times) | "Stamp" >> stamp


def panes(pipeline: Any, **windowing: Any) -> Any:
    """Returns what a GroupByKey emits in windows of ten seconds: values, index of the pane, and its timing."""
    windows = beam.WindowInto(window.FixedWindows(10), **windowing)
    return timed(pipeline) | windows | beam.GroupByKey() | beam.ParDo(WithPane())


@pytest.mark.shows(Mode.SPARK)
def test_the_timestamp_of_a_group_is_what_the_windowing_says() -> None:
    expected = {
        TimestampCombiner.OUTPUT_AT_EARLIEST: [1, 11],
        TimestampCombiner.OUTPUT_AT_LATEST: [3, 12],
        TimestampCombiner.OUTPUT_AT_EOW: [9.999, 19.999],
    }
    with beam.Pipeline(runner=SparkRunner()) as p:
        elements = timed(p)
        for combiner, times in expected.items():
            found = (
                elements
                | f"windows {combiner}" >> beam.WindowInto(window.FixedWindows(10), timestamp_combiner=combiner)
                | f"group {combiner}" >> beam.GroupByKey()
                | f"time {combiner}" >> beam.Map(lambda _, at=beam.DoFn.TimestampParam: at.micros / 1e6)
            )
            assert_that(found, equal_to(times), label=f"check {combiner}")


@pytest.mark.shows(Mode.SPARK)
def test_discarding_panes_hold_each_element_once() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        early = AfterWatermark(early=AfterCount(2))
        found = panes(p, trigger=early, accumulation_mode=AccumulationMode.DISCARDING)
        first = [([1, 2, 3], 0, EARLY), ([11, 12], 0, EARLY)]
        assert_that(found, equal_to([*first, ([], 1, ON_TIME), ([], 1, ON_TIME)]))


@pytest.mark.shows(Mode.SPARK)
def test_the_last_accumulating_pane_holds_all_elements() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        early = AfterWatermark(early=AfterCount(2))
        found = panes(p, trigger=early, accumulation_mode=AccumulationMode.ACCUMULATING)
        first = [([1, 2, 3], 0, EARLY), ([11, 12], 0, EARLY)]
        assert_that(found, equal_to([*first, ([1, 2, 3], 1, ON_TIME), ([11, 12], 1, ON_TIME)]))


@pytest.mark.shows(Mode.SPARK)
def test_a_count_trigger_fires_when_there_are_so_many() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        found = panes(p, trigger=Repeatedly(AfterCount(2)), accumulation_mode=AccumulationMode.DISCARDING)
        assert_that(found, equal_to([([1, 2, 3], 0, EARLY), ([11, 12], 0, EARLY)]))


@pytest.mark.shows(Mode.SPARK)
@pytest.mark.parametrize(
    "given",
    [AfterCount(3), AfterProcessingTime(3_600), trigger.AfterAll(AfterCount(3), AfterProcessingTime(3_600))],
    ids=["count", "processing time", "both"],
)
def test_a_window_that_closes_emits_what_its_trigger_has_not(given: Any) -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        found = panes(p, trigger=Repeatedly(given), accumulation_mode=AccumulationMode.DISCARDING)
        assert_that(found | beam.Map(lambda pane: pane[0]), equal_to([[1, 2, 3], [11, 12]]))


@pytest.mark.shows(Mode.SPARK)
def test_an_event_time_trigger_fires_once_a_window() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        found = panes(p, trigger=AfterWatermark(), accumulation_mode=AccumulationMode.DISCARDING)
        assert_that(found, equal_to([([1, 2, 3], 0, ON_TIME), ([11, 12], 0, ON_TIME)]))


@pytest.mark.shows(Mode.SPARK)
def test_composite_triggers() -> None:
    composites = {
        "each": trigger.AfterEach(AfterCount(2), AfterCount(9)),
        "all": trigger.AfterAll(AfterCount(1), AfterCount(2)),
        "any": trigger.AfterAny(AfterCount(9), AfterCount(2)),
        "or finally": trigger.OrFinally(Repeatedly(AfterCount(9)), AfterCount(2)),
    }
    with beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(["--allow_unsafe_triggers"])) as p:
        elements = timed(p)
        for name, composite in composites.items():
            windows = beam.WindowInto(
                window.FixedWindows(10), trigger=composite, accumulation_mode=AccumulationMode.DISCARDING
            )
            found = (
                elements
                | f"windows {name}" >> windows
                | f"group {name}" >> beam.GroupByKey()
                | f"pane {name}" >> beam.ParDo(WithPane())
            )
            # not ON_TIME: the counts made it fire
            assert_that(found, equal_to([([1, 2, 3], 0, EARLY), ([11, 12], 0, EARLY)]), label=f"check {name}")


@pytest.mark.shows(Mode.SPARK)
def test_nothing_is_late_in_bounded_data() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        windows = beam.WindowInto(window.FixedWindows(1), allowed_lateness=0)
        found = timed(p, range(50, 0, -1)) | windows | beam.CombinePerKey(sum) | beam.Values()
        assert_that(found, equal_to(range(1, 51)))


class AtLeisure(beam.DoFn):
    """Sets a processing-time timer for an hour later, and an event-time timer."""

    LATER = userstate.TimerSpec("later", userstate.TimeDomain.REAL_TIME)
    AT = userstate.TimerSpec("at", userstate.TimeDomain.WATERMARK)

    def process(
        self, element: Any, later: Any = beam.DoFn.TimerParam(LATER), at: Any = beam.DoFn.TimerParam(AT)
    ) -> None:
        later.set(time.time() + 3_600)
        at.set(5)

    @userstate.on_timer(LATER)
    def much_later(self, key: Any = beam.DoFn.KeyParam) -> Any:
        yield key, "later"

    @userstate.on_timer(AT)
    def at_five(self, key: Any = beam.DoFn.KeyParam, at: Any = beam.DoFn.TimestampParam) -> Any:
        yield key, at.micros / 1e6


def listed(pipeline: Any) -> Any:
    return pipeline | beam.Create([("a", 1), ("b", 2), ("a", 3)])


def unbounded(pipeline: Any) -> Any:
    """Returns the same elements from a source that does not say that it ends."""
    ticks = pipeline | PeriodicImpulse(Timestamp(0), Timestamp(3), 1, apply_windowing=False)
    return ticks | "Key" >> beam.Map(lambda at: ("aba"[int(at)], 1)).with_output_types(tuple[str, int])


@pytest.mark.shows(Mode.SPARK)
@pytest.mark.parametrize("source", [listed, unbounded])
def test_timers_of_both_kinds_fire_without_waiting(source: Callable[[Any], Any]) -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        found = source(p) | beam.ParDo(AtLeisure())
        assert_that(found, equal_to([("a", "later"), ("a", 5), ("b", "later"), ("b", 5)]))


@pytest.mark.shows(Mode.SPARK)
@pytest.mark.parametrize("windows", [window.GlobalWindows(), window.FixedWindows(100)], ids=["global", "fixed"])
def test_a_timer_at_the_end_of_the_window_fires(windows: window.WindowFn) -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        batches = timed(p) | beam.WindowInto(windows) | beam.GroupIntoBatches(2)  # its last batch waits for that timer
        assert_that(batches | beam.MapTuple(lambda _, batch: len(batch)), equal_to([2, 2, 1]))


@pytest.mark.shows(Mode.SPARK)
def test_a_flatten_of_nothing_is_empty() -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        assert_that(() | beam.Flatten(pipeline=p), equal_to([]))


class Endless(OffsetRestrictionTracker):
    """A tracker that says that it is unbounded, although it ends."""

    def is_bounded(self) -> bool:
        return False


class Ranges(beam.transforms.core.RestrictionProvider):
    """Provides the numbers below the element."""

    def __init__(self, tracker: type[OffsetRestrictionTracker]) -> None:
        self._tracker = tracker

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return self._tracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


def counting(tracker: type[OffsetRestrictionTracker], folder: Path) -> beam.DoFn:
    """Returns a splittable DoFn that checkpoints after each number, looks it up in a side input, and finalizes it."""
    restriction = beam.DoFn.RestrictionParam(Ranges(tracker))

    class Counts(beam.DoFn):
        def process(
            self,
            element: int,
            names: Any,
            finalizer: Any = beam.DoFn.BundleFinalizerParam,
            numbers: Any = restriction,  # the last parameter, since Beam leaves it out when it assigns the others
        ) -> Any:
            number = numbers.current_restriction().start
            if numbers.try_claim(number):
                finalizer.register(functools.partial(note, folder / f"{element}-{number}"))
                yield element, names[number]
                numbers.defer_remainder()

    return Counts()


def note(path: Path) -> None:
    """Appends a mark to a file."""
    with path.open("a") as file:
        file.write("x")


@pytest.mark.shows(Mode.SPARK)
@pytest.mark.parametrize("tracker", [OffsetRestrictionTracker, Endless], ids=["bounded", "unbounded"])
def test_a_splittable_dofn_with_a_side_input_that_checkpoints_and_finalizes(
    tracker: type[OffsetRestrictionTracker], tmp_path: Path
) -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        names = p | "names" >> beam.Create(list(enumerate("abc")))
        found = p | beam.Create([2, 3]) | beam.ParDo(counting(tracker, tmp_path), beam.pvalue.AsDict(names))
        assert_that(found, equal_to([(2, "a"), (2, "b"), (3, "a"), (3, "b"), (3, "c")]))
    finalized = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert finalized == dict.fromkeys(["2-0", "2-1", "3-0", "3-1", "3-2"], "x")


@dataclasses.dataclass(frozen=True)
class Place:
    """A key for which Beam has its own deterministic encoding."""

    name: str


@pytest.mark.shows(Mode.SPARK)
@pytest.mark.parametrize("reader", ["group", "state"])
def test_keys_of_special_types_survive_a_reshuffle(reader: str) -> None:
    with beam.Pipeline(runner=SparkRunner()) as p:
        dealt = p | beam.Create([1, 2, 3]) | beam.Map(lambda n: (Place("here"), n)) | beam.Reshuffle()
        if reader == "group":
            found = dealt | beam.GroupByKey() | beam.MapTuple(lambda place, numbers: (place.name, sum(numbers)))
        else:
            found = dealt | beam.ParDo(Summing())
        assert_that(found | "highest" >> beam.CombinePerKey(max), equal_to([("here", 6)]))


class Summing(beam.DoFn):
    """Emits the running sum of each key."""

    SUM = userstate.CombiningValueStateSpec("sum", sum)

    def process(self, element: Any, total: Any = beam.DoFn.StateParam(SUM)) -> Any:
        place, number = element
        total.add(number)
        yield place.name, total.read()


@pytest.mark.shows(Mode.SPARK)
def test_metrics_of_many_tasks_are_added_up() -> None:
    counter = Metrics.counter("cases", "counter")
    strings = Metrics.string_set("cases", "strings")
    trie = Metrics.bounded_trie("cases", "trie")

    def report(number: int) -> int:
        counter.inc(number)
        strings.add(str(number % 5))
        trie.add(("numbers", str(number % 5)))
        return number

    with beam.Pipeline(runner=SparkRunner()) as p:
        found = p | beam.Create(range(40)) | beam.Reshuffle() | beam.Map(report)
        assert_that(found, equal_to(range(40)))
    metrics = p.result.metrics().query(MetricsFilter().with_namespace("cases"))
    assert [each.committed for each in metrics["counters"]] == [sum(range(40))]
    assert [each.committed for each in metrics["string_sets"]] == [set("01234")]
    assert [each.committed.size() for each in metrics["bounded_tries"]] == [5]


def test_a_transform_of_another_language_is_refused_by_its_name() -> None:
    p = beam.Pipeline()
    _ = p | beam.Create([1]) | "In Java" >> beam.Map(abs)
    proto = p.to_runner_api(default_environment=DockerEnvironment.from_container_image("some/java"))
    with pytest.raises(NotImplementedError, match=r"runs Python transforms only, and this one needs .*docker"):
        SparkRunner()._check(proto)
