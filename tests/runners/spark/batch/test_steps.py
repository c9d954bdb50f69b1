"""Steps that follow each other without Beam's hand-over do what Beam's operations do, and say so in the same words."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam import dofns
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.worker.fusion import fused_dofns
from tests.helpers import spark_plan
from tests.helpers.spark_plan import LocalRun, outcome

Build = Callable[[Any], Any]


def count(name: str) -> None:
    Metrics.counter("steps", name).inc()


def current() -> str:
    """The name of the step that Beam holds for the running one."""
    return str(statesampler.get_current_tracker().current_state().name_context.logging_name())


class Noting(beam.DoFn):
    """Yields between looks at what Beam holds for the running step, which must be this one."""

    def process(self, element: Any) -> Iterator[Any]:
        for number in range(3):
            assert current() == "noting", current()
            count("noted")
            yield element, number
        assert current() == "noting", current()


class NotingByBeam(Noting):
    """The same, and no step, since there is something to set up."""

    def setup(self) -> None:
        pass


class Returning(beam.DoFn):
    def __init__(self, results: Any) -> None:
        self._results = results

    def process(self, element: Any) -> Any:
        return self._results


class Numbering(beam.DoFn):
    """Keeps something in itself, which only one copy of it can do."""

    def __init__(self) -> None:
        self._seen = 0

    def process(self, element: Any) -> Any:
        self._seen += 1
        yield self._seen


class Passing(beam.DoFn):
    """No step, either."""

    def setup(self) -> None:
        pass

    def process(self, element: Any) -> Any:
        yield element


class Asking(beam.DoFn):
    """A step that says what it is told of its elements."""

    def process(
        self,
        element: Any,
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        more: Any = "more",
    ) -> Iterator[Any]:
        for number in range(2):
            count("asked")
            yield element, window, more, timestamp, pane, number


def at_time(element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Any:
    return element, timestamp


def is_in_window(element: Any, window: Any = beam.DoFn.WindowParam) -> bool:
    return bool(window.start % 4 == 0)


class Numbered:
    """The same as something to call."""

    def __init__(self) -> None:
        self._seen = 0

    def __call__(self, element: Any) -> Any:
        self._seen += 1
        return self._seen


def chain_of(elements: Any, count: int) -> Any:
    for number in range(count):
        elements |= f"chained {number}" >> beam.Map(lambda x: x)
    return elements


def state_before(count: int) -> Build:
    return lambda p: chain_of(p | beam.Map(str) | beam.ParDo(Numbering()), count)


def parameters_with(windowing: window.WindowFn) -> Build:
    return lambda p: (
        p
        | "1" >> beam.Map(with_time)
        | beam.WindowInto(windowing)
        | "2" >> beam.Map(at_time)
        | "3" >> beam.ParDo(Asking())
        | "4" >> beam.Map(lambda x, pane=beam.DoFn.PaneInfoParam: (x, pane))
        | "5" >> beam.FlatMap(lambda x, w=beam.DoFn.WindowParam: [x, w])
    )


class Doubled:
    def __call__(self, element: Any) -> Any:
        return element, element


def keyed(element: Any) -> Any:
    count("keyed")
    return str(element)[-1], 1


def is_wanted(element: Any) -> bool:
    count("asked")
    return hash(str(element)[-1]) is not None and "7" not in str(element)


def thrice(element: Any) -> Any:
    for number in range(3):
        count("thrice")
        yield element, number


def with_time(element: Any) -> Any:
    return window.TimestampedValue(element, len(str(element)))


def at_times_in_windows(element: Any) -> Any:
    return at_times(element, window.IntervalWindow(0, 6))


def at_times(element: Any, given: Any = None) -> Any:
    """Now and then what says where a value goes, in place of a value."""
    number = len(str(element))
    if number % 3 == 0:
        return [window.TimestampedValue(element, 5), beam.pvalue.TaggedOutput("nobody reads it", element), element]
    if number % 3 == 1:
        pane = PaneInfo(False, True, PaneInfoTiming.LATE, 3, 2)
        return [WindowedValue(element, 7, (given or window.GlobalWindow(),), pane), None]
    return None


def noted(element: Any) -> Any:
    return "noted", element


def all_of(element: Any, some: Any, *more: Any, n: Any) -> Any:
    return [element, *sorted(some), *more, *sorted(n)]


def how_many(elements: Any) -> Any:
    return side(elements) | f"count {next(_NUMBERS)}" >> beam.combiners.Count.Globally()


_NUMBERS = itertools.count()


def side(elements: Any, windowing: Any = None) -> Any:
    """A collection for side inputs: keys and values."""
    found = elements.pipeline | f"side {next(_NUMBERS)}" >> beam.Create([("a", 1), ("b", 2)])
    if windowing is None:
        return found
    return (
        found
        | f"timed {next(_NUMBERS)}" >> beam.Map(lambda x: window.TimestampedValue(x, x[1]))
        | f"W {next(_NUMBERS)}" >> beam.WindowInto(windowing)
    )


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
    monkeypatch.setattr(fused_dofns, "_is_fusable", lambda *_: False)
    assert ours == outcome(BUILD[name], elements)


def chained(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which operations a step hands over to without Beam in between."""
    found = set()
    handle_of = fused_dofns._following

    def following(operation: Any) -> Any:
        behind = handle_of(operation)
        if behind is not None:
            found.add(operation.name_context.logging_name())
        return behind

    monkeypatch.setattr(fused_dofns, "_following", following)
    LocalRun(pipeline)
    return found


def test_steps_are_chained_to_each_other_and_to_what_ends_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = beam.Pipeline()
    numbers = pipeline | beam.Impulse() | "numbers" >> beam.FlatMap(lambda _: range(9))
    _ = (
        numbers
        | "plus" >> beam.Map(lambda x: x + 1)
        | "even" >> beam.Filter(lambda x: x % 2 == 0)
        | "keyed" >> beam.Map(keyed)
        | beam.CombinePerKey(sum)
        | beam.CombineGlobally(max).without_defaults()
        | "again" >> beam.Map(keyed)
        | beam.GroupByKey()
        | "last" >> beam.Map(len)
    )
    found = chained(pipeline, monkeypatch)
    assert {"plus", "even", "keyed", "CombinePerKey(sum)/Precombine"} <= found
    assert any(name.startswith("CombineGlobally(max)") and name.endswith("Precombine") for name in found), found
    assert any(name.startswith("write_") for name in found), found


class WithSetup(beam.DoFn):
    def setup(self) -> None:
        pass

    def process(self, element: Any) -> Any:
        return [element]


class PassingOn(beam.DoFn):
    """In place of another, all of whose methods are asked for."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_other"), name)


class WithBatches(beam.DoFn):
    def process(self, element: int) -> Iterator[int]:
        yield element

    def process_batch(self, batch: list[int]) -> Iterator[list[int]]:
        yield batch


class YieldsBatches(beam.DoFn):
    @beam.DoFn.yields_batches
    def process(self, element: int) -> Iterator[list[int]]:
        yield [element]


@pytest.mark.parametrize(
    ("dofn", "is_one"),
    [
        (Returning([]), True),
        (Noting(), True),
        (beam.Map(len).fn, True),
        (beam.FlatMap(Doubled()).fn, True),
        (NotingByBeam(), False),
        (PassingOn(WithSetup()), False),
        (WithSetup(), False),
        (WithBatches(), False),
        (YieldsBatches(), False),
        (beam.Map(lambda x, y=1: x).fn, True),
        (beam.Map(lambda x, k=beam.DoFn.KeyParam: x).fn, False),
        (beam.Map(lambda x, f=beam.DoFn.BundleFinalizerParam: x).fn, False),
        (beam.Map(lambda x, t=beam.DoFn.TimestampParam: x).fn, True),
        (beam.Map(lambda x, w=beam.DoFn.WindowParam, p=beam.DoFn.PaneInfoParam, n=1: x).fn, True),
        (beam.Map(lambda x, y, t=beam.DoFn.TimestampParam: x, 1).fn, False),
        (beam.Map(lambda t=beam.DoFn.TimestampParam, x=beam.DoFn.ElementParam: x).fn, False),
        (beam.Map(lambda x, n=1, t=beam.DoFn.TimestampParam: x).fn, False),
        (Asking(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_function_of_an_element_is_what_asks_for_nothing_else(dofn: Any, is_one: bool) -> None:
    assert fused_dofns.is_function(dofn) is is_one


LATE = 300
"""The first elements go Beam's way, and so does each 128th."""


def broken(element: Any) -> Any:
    if element in _BREAKS:
        raise ValueError("broken")
    return [element]


_BREAKS = {LATE}


class Breaking(beam.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        broken(element)
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> int:
        return 0

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def broken_in_the_middle(element: Any) -> Any:
    yield element
    broken(element)


FAILING: dict[str, Build] = {
    "first": lambda p: p | "it" >> beam.Map(broken) | "2" >> beam.Map(str) | "3" >> beam.Map(str),
    "middle": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.Filter(broken) | "3" >> beam.Map(str),
    "last": lambda p: p | "1" >> beam.Map(int) | "2" >> beam.Map(int) | "it" >> beam.FlatMap(broken),
    "generator": lambda p: p | "it" >> beam.FlatMap(broken_in_the_middle) | "2" >> beam.Map(str) | "3" >> beam.Map(str),
    "generator behind": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.FlatMap(broken_in_the_middle),
    "a DoFn of Beam's behind": lambda p: (
        p
        | "1" >> beam.Map(int)
        | "2" >> beam.Map(int)
        | "it" >> beam.Map(lambda x, t=beam.DoFn.TimestampParam: broken(x))
    ),
    "arguments": lambda p: (
        p | "1" >> beam.Map(int) | "it" >> beam.Map(lambda x, y: broken(x), 1) | "3" >> beam.Map(str)
    ),
    "combine": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.Map(lambda x: (1, x)) | beam.CombinePerKey(Breaking()),
    "key": lambda p: p | "it" >> beam.Map(lambda x: ([] if x in _BREAKS else 1, x)) | beam.CombinePerKey(sum),
    "coder": lambda p: (
        p
        | "1" >> beam.Map(int)
        | "it" >> beam.Map(lambda x: threading.Lock() if x in _BREAKS else x)
        | beam.Reshuffle()
        | "4" >> beam.Map(print)
    ),
}
OF_RESULTS = {
    "a text": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.ParDo(Returning("text")) | "3" >> beam.Map(str),
    "a text at the end": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.ParDo(Returning({})),
}
if dofns.CHECKS_RESULTS:
    FAILING |= OF_RESULTS


@pytest.mark.parametrize("at", [3, LATE])
@pytest.mark.parametrize("name", FAILING)
def test_a_failure_has_the_name_of_its_step(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_BREAKS", {at})

    def text() -> str:
        pipeline = beam.Pipeline()
        _ = FAILING[name](pipeline | beam.Impulse() | beam.FlatMap(lambda _: range(LATE + 9)))
        with pytest.raises(TaskFailure) as failure:
            LocalRun(pipeline)
        lines = str(failure.value).splitlines()
        if "in broken" in lines[-2]:
            return "\n".join(lines)
        return "\n".join([lines[0], lines[-1]])  # between them frames of Beam's and of ours: the user has none

    ours = text()
    assert "<it: " in ours, ours
    monkeypatch.setattr(fused_dofns, "_is_fusable", lambda *_: False)
    assert ours == text()


def free_frames(element: Any) -> int:
    """How deep a function may still go."""

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
    """A combine that counts does so under its own name, and the function before it under its own."""

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
