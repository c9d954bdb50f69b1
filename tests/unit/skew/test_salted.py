"""`SaltedCombinePerKey` beside `CombinePerKey`: the same results, or a refusal."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream as streams
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAny,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows, TimestampedValue

from rmqio.errors import LocalError, WireError
from rmqio.skew import SaltedCombinePerKey
from rmqio.skew import salted as module
from rmqio.skew.salted import PartCoder

DISCARDING, ACCUMULATING = AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING


@pytest.fixture(autouse=True)
def soon_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_HOT", 3)
    monkeypatch.setattr(module, "_LOOK_EVERY", 8)
    monkeypatch.setattr(module, "_RUN", 2)


class Strict(beam.CombineFn):
    """Keeps all values sorted, in accumulators that another function cannot have made; has its own set-up and coder."""

    def setup(self) -> None:
        self._is_up = True

    def create_accumulator(self) -> tuple[str, ...]:
        assert self._is_up
        return ()

    def add_input(self, accumulator: tuple[str, ...], element: int) -> tuple[str, ...]:
        return (*accumulator, str(element))

    def merge_accumulators(self, accumulators: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(each for accumulator in accumulators for each in accumulator)

    def compact(self, accumulator: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(accumulator, key=int))

    def extract_output(self, accumulator: tuple[str, ...]) -> str:
        assert self._is_up
        return " ".join(sorted(accumulator, key=int))

    def teardown(self) -> None:
        self._is_up = False


def pairs(seed: int, count: int = 120) -> list[Any]:
    drawn = random.Random(seed)
    keys = ["hot", "hot", "hot", "warm", *map(str, range(6))]
    return [TimestampedValue((drawn.choice(keys), n), drawn.randrange(60)) for n in range(count)]


def with_window(element: Any, window: Any = beam.DoFn.WindowParam) -> Any:
    return element, str(window)


WINDOWINGS: dict[str, Any] = {
    "global": lambda: beam.WindowInto(GlobalWindows()),
    "fixed": lambda: beam.WindowInto(FixedWindows(10)),
    "sliding": lambda: beam.WindowInto(SlidingWindows(20, 10)),
    "fixed, accumulating": lambda: beam.WindowInto(
        FixedWindows(20), trigger=AfterWatermark(late=AfterCount(1)), accumulation_mode=ACCUMULATING, allowed_lateness=9
    ),
}


def test_in_a_pipeline_that_ends_the_results_are_the_same() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for number, (name, windows) in enumerate(WINDOWINGS.items()):
            source = pipeline | f"Source {name}" >> beam.Create(pairs(number)).with_output_types(tuple[str, int])
            given = source | f"Windows {name}" >> windows()
            one = given | f"One {name}" >> beam.CombinePerKey(Strict()) | f"O {name}" >> beam.Map(with_window)
            two = (
                given | f"Two {name}" >> SaltedCombinePerKey(Strict(), fanout=3) | f"T {name}" >> beam.Map(with_window)
            )
            both = (one | f"o {name}" >> beam.Map(lambda each: (each, 1)), two | f"t {name}" >> beam.Map(_minus))
            left = both | f"Both {name}" >> beam.Flatten() | f"Global {name}" >> beam.WindowInto(GlobalWindows())
            differ = left | f"Sum {name}" >> beam.CombinePerKey(sum) | f"Differ {name}" >> beam.Filter(lambda e: e[1])
            assert_that(differ, equal_to([]), f"Check {name}")
    found = pipeline.result.metrics().query()  # a hot key went through both phases
    assert found is not None


def _minus(each: Any) -> Any:
    return each, -1


def test_hot_keys_are_found_and_others_are_not() -> None:
    fn = module._RouteFn(fanout=4, hot_share=0.2)
    fn.setup()
    fn.start_bundle()
    outputs = [output for n in range(400) for output in fn.process(("hot" if n % 2 else f"k{n}", n))]
    hot = [each for each in outputs if isinstance(each, beam.pvalue.TaggedOutput)]
    assert len(outputs) == 400
    assert {each.value[0][0] for each in hot} == {"hot"}
    assert len(hot) > 190
    assert {each.value[0][1] for each in hot} == {0, 1, 2, 3}
    (cold,) = fn.process(([1], "a key that cannot be in a dict"))
    assert cold == ([1], (False, "a key that cannot be in a dict"))


STREAMS: dict[str, tuple[Any, list[Any]]] = {
    # the sums of each pane of "hot"
    "discarding": (DISCARDING, [10, 5, 7]),
    "accumulating": (ACCUMULATING, [10, 15, 22]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_panes_of_a_stream_are_the_same(name: str) -> None:
    mode, expected = STREAMS[name]
    stream = streams.TestStream().advance_watermark_to(0)
    stream.add_elements([TimestampedValue(("hot", 1), n) for n in range(10)]).advance_watermark_to(10)
    stream.add_elements([TimestampedValue(("hot", 5), 1)]).add_elements([TimestampedValue(("hot", 7), 2)])
    stream.advance_watermark_to_infinity()
    with beam.Pipeline("BundleBasedDirectRunner", PipelineOptions(streaming=True)) as pipeline:
        given = (
            pipeline
            | stream
            | beam.Map(lambda each: each).with_output_types(tuple[str, int])
            | beam.WindowInto(
                FixedWindows(10),
                trigger=AfterWatermark(late=AfterCount(1)),
                accumulation_mode=mode,
                allowed_lateness=1_000,
            )
        )
        for label, combine in (("one", beam.CombinePerKey(sum)), ("two", SaltedCombinePerKey(sum, fanout=2))):
            panes = given | label >> combine | f"{label} values" >> beam.Values()
            told = panes | f"{label} all" >> beam.WindowInto(GlobalWindows())
            assert_that(told, equal_to(expected), f"Check {label}")


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        (lambda: beam.WindowInto(Sessions(5)), "in Sessions: these windows merge by key"),
        (
            lambda: beam.WindowInto(GlobalWindows(), trigger=Repeatedly(AfterCount(3)), accumulation_mode=DISCARDING),
            "with the trigger Repeatedly(AfterCount(3)): in two phases",
        ),
        (
            lambda: beam.WindowInto(
                FixedWindows(5), trigger=AfterWatermark(early=AfterCount(2)), accumulation_mode=ACCUMULATING
            ),
            "with the trigger AfterWatermark(early=AfterCount(2))",
        ),
        (
            lambda: beam.WindowInto(
                FixedWindows(5),
                trigger=Repeatedly(AfterAny(AfterCount(9), AfterProcessingTime(1))),
                accumulation_mode=DISCARDING,
            ),
            "with the trigger Repeatedly(AfterAny(",
        ),
        (
            lambda: beam.WindowInto(
                SlidingWindows(10, 5),
                trigger=AfterWatermark(early=AfterProcessingTime(1)),
                accumulation_mode=ACCUMULATING,
            ),
            "in SlidingWindows with panes that accumulate",
        ),
    ],
)
def test_where_it_could_differ_it_is_refused(windows: Any, text: str) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    given = pipeline | beam.Create([("a", 1)]) | windows()
    with pytest.raises(LocalError, match=re.escape(text)):
        given | SaltedCombinePerKey(sum)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"fn": 3}, "fn is 3; it must be a CombineFn"),
        ({"fn": sum, "fanout": 1}, "fanout is 1; it must be a whole number from 2 to 4096"),
        ({"fn": sum, "hot_share": 1}, "hot_share is 1; it must be a number"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=re.escape(text)):
        SaltedCombinePerKey(**arguments)


def test_parts_are_encoded_by_the_coders_of_what_they_are() -> None:
    coder = PartCoder(beam.coders.VarIntCoder(), beam.coders.StrUtf8Coder())
    for part in ((False, 5), (True, "five")):
        assert coder.decode(coder.encode(part)) == part
    with pytest.raises(WireError):
        coder.decode(b"\x02")
    with pytest.raises(WireError):
        coder.decode(b"")
