"""Steps of pipelines that can follow each other without Beam's hand-over, and some that cannot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

Build = Callable[[Any], Any]


def count(name: str) -> None:
    Metrics.counter("steps", name).inc()


def current() -> str:
    """Returns the name of the step that is running according to Beam."""
    return str(statesampler.get_current_tracker().current_state().name_context.logging_name())


class Noting(beam.DoFn):
    """Checks between its results that Beam considers this step the running one."""

    def process(self, element: Any) -> Iterator[Any]:
        for number in range(3):
            assert current() == "noting", current()
            count("noted")
            yield element, number
        assert current() == "noting", current()


class NotingByBeam(Noting):
    """The same, but not a fused step, since there is something to set up."""

    def setup(self) -> None:
        pass


class Returning(beam.DoFn):
    def __init__(self, results: Any) -> None:
        self._results = results

    def process(self, element: Any) -> Any:
        return self._results


class Numbering(beam.DoFn):
    """Keeps a count in itself, which only works if there is one copy of it."""

    def __init__(self) -> None:
        self._seen = 0

    def process(self, element: Any) -> Any:
        self._seen += 1
        yield self._seen


class Passing(beam.DoFn):
    """Not a fused step either."""

    def setup(self) -> None:
        pass

    def process(self, element: Any) -> Any:
        yield element


class Asking(beam.DoFn):
    """A fused step that returns what it learns about its elements."""

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
    """The same as a callable."""

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
    """Sometimes returns a value that says where it goes, instead of a plain value."""
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
    """Returns a PCollection for side inputs, of keys and values."""
    found = elements.pipeline | f"side {next(_NUMBERS)}" >> beam.Create([("a", 1), ("b", 2)])
    if windowing is None:
        return found
    return (
        found
        | f"timed {next(_NUMBERS)}" >> beam.Map(lambda x: window.TimestampedValue(x, x[1]))
        | f"W {next(_NUMBERS)}" >> beam.WindowInto(windowing)
    )
