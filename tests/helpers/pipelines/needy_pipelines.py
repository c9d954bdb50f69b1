"""Pipelines that each need something from their runner. They are built but not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import window
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimeDomain, TimerSpec, on_timer

from rmqio import ReadAllFromRocketMQ, ReadFromRocketMQ, StopAt
from rmqio.runners.capabilities import Requirement
from rmqio.runners.direct import DirectRunner
from rmqio.runners.submission import requirements_of

SERVER: dict[str, Any] = {"name_server": "127.0.0.1:1"}
Pairs = tuple[str, int]


class Stateful(beam.DoFn):
    COUNT = CombiningValueStateSpec("count", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)
    SOON = TimerSpec("soon", TimeDomain.REAL_TIME)

    def process(
        self,
        element: Pairs,
        count: Any = beam.DoFn.StateParam(COUNT),
        end: Any = beam.DoFn.TimerParam(END),
        soon: Any = beam.DoFn.TimerParam(SOON),
    ) -> None:
        count.add(1)

    @on_timer(END)
    def at_the_end(self) -> None: ...

    @on_timer(SOON)
    def soon(self) -> None: ...


class Mine(beam.PTransform):
    """A user's composite transform."""

    def expand(self, pairs: Any) -> Any:
        return pairs | "Windows" >> beam.WindowInto(window.Sessions(5)) | "Sum" >> beam.CombinePerKey(sum)


def read(stop: StopAt | None = None, **arguments: Any) -> Any:
    return "Read" >> ReadFromRocketMQ("orders", stop=stop, **SERVER | arguments)


def keyed(records: Any) -> Any:
    return records | "Key" >> beam.Map(lambda record: ("a", 1)).with_output_types(Pairs)


def bounded(p: Any) -> Any:
    return p | read(StopAt.latest())


def endless(p: Any) -> Any:
    return p | read()


def grouped(p: Any) -> Any:
    return keyed(endless(p)) | "Windows" >> beam.WindowInto(window.FixedWindows(5)) | "Group" >> beam.GroupByKey()


def flattened(p: Any) -> Any:
    records = endless(p)
    return (records | "1" >> beam.Map(str), records | "2" >> beam.Map(str)) | "Both" >> beam.Flatten()


def beside_itself(p: Any) -> Any:
    records = endless(p)
    return p | beam.Create([1]) | "Look" >> beam.Map(lambda n, side: n, beam.pvalue.AsIter(records))


def read_further(p: Any) -> Any:
    return endless(p) | "Topic" >> beam.Map(str) | "Read all" >> ReadAllFromRocketMQ(stop=StopAt.latest(), **SERVER)


def beside_another(p: Any) -> Any:
    names = beam.pvalue.AsIter(p | beam.Create([1]))
    return endless(p) | "Look" >> beam.Map(lambda n, side: n, names)


def alone(p: Any) -> Any:
    return (endless(p),) | beam.Flatten()


def stateful(p: Any) -> Any:
    return keyed(bounded(p)) | "State" >> beam.ParDo(Stateful())


def live(p: Any) -> Any:
    return keyed(endless(p)) | "State" >> beam.ParDo(Stateful())


class Counting(beam.DoFn):
    def process(self, element: Any, count: Any = beam.DoFn.StateParam(Stateful.COUNT)) -> Any:
        count.add(1)
        yield count.read()


def in_sessions(p: Any) -> Any:
    pairs = p | beam.Create([("a", 1)]).with_output_types(Pairs)
    return pairs | "Windows" >> beam.WindowInto(window.Sessions(5))


def unmerged(p: Any) -> Any:
    return in_sessions(p) | "State" >> beam.ParDo(Counting())


def merged(p: Any) -> Any:
    return (
        in_sessions(p) | "Group" >> beam.GroupByKey() | "Same" >> beam.Filter(bool) | "State" >> beam.ParDo(Counting())
    )


def windowed_again(p: Any) -> Any:
    grouped = in_sessions(p) | "Group" >> beam.GroupByKey()
    return grouped | "Others" >> beam.WindowInto(window.Sessions(9)) | "State" >> beam.ParDo(Counting())


def ticks(p: Any) -> Any:
    return p | "Ticks" >> PeriodicImpulse()


def needs(build: Callable[[Any], Any]) -> dict[Requirement, list[str]]:
    return requirements_of(proto(build))


def proto(build: Callable[[Any], Any]) -> Any:
    pipeline = beam.Pipeline(runner=DirectRunner(), options=PipelineOptions([]))
    build(pipeline)
    return pipeline.to_runner_api()
