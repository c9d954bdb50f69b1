"""What a read tells the runner, so that each micro-batch reads what was planned for it, also when it is run again.

A transform asks its pipeline's runner for `planned_source(options)`. Where it is there and gives something, the
transform builds on that: a `PlannedSource` makes the elements that a `Planner` plans, and what the transform's own DoFn
learns of event time goes to `Watermarks`. These are protocols: neither side imports the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows

from rmqio.runners.spark.beam.private import pickler
from rmqio.runners.spark.streaming.source import Limits
from rmqio.runners.spark.translation import PLANNED, WATERMARKS


class Planner(Protocol):
    """Plans the reads of one source, in a process of Spark's driver. Picklable.

    A position is JSON: all that Spark's checkpoint keeps. Everything but `advance` is a function of its arguments, and
    `is_done` also of what `advance` was told last.
    """

    element_type: Any
    """Of the elements; their coder is Beam's registered one."""
    is_bounded: bool
    """Whether the source ends by itself."""
    identity: str
    """What its positions belong to. A checkpoint of another one is refused."""

    def advance(self, position: Any, limits: Limits, until_now: bool) -> Any:
        """Where the next micro-batch reads to; the position itself when there is nothing new. None: a new stream.

        With `until_now` the source ends where it ends at the first call.
        """
        ...

    def elements(self, begin: Any, end: Any, again: bool = False) -> Sequence[tuple[Any, float]]:
        """What the micro-batch between two positions reads, each with its weight.

        `again`: it may have been run before, and is to read the same: no part is to be cut short now.
        """
        ...

    def partitions(self, position: Any) -> Mapping[str, int | None]:
        """The parts whose watermarks count; microseconds where the clock has moved one on, else None."""
        ...

    def silent(self, position: Any) -> Mapping[str, tuple[int, int]]:
        """Of parts that are read to their end and may yet have given nothing: (microseconds, for how long).

        Where nothing has come of one for so long (microseconds of the clock), its watermark moves there.
        """
        ...

    def has_ended(self, position: Any) -> bool:
        """Whether nothing comes behind the position, ever."""
        ...

    def is_done(self, position: Any) -> bool:
        """Whether nothing comes behind the position in this run, which may be only until what was there."""
        ...

    def shortened(self, position: Any, cuts: Mapping[str, int]) -> Any:
        """The position with parts moved back to where their reading was cut short; only asked for when some were."""
        ...

    def committed(self, position: Any, last: bool = False) -> None:
        """Called in the driver when Spark has committed the micro-batch that ends at the position.

        And, as the `last` call, once more when the query ends.
        """
        ...

    def lag(self, position: Any) -> Mapping[str, int]:
        """How many records are left, by topic, as far as was known when the position was planned."""
        ...


class PlannedSource(beam.PTransform[Any, Any]):
    """The elements of a planner, micro-batch by micro-batch, in the global window."""

    def __init__(self, planner: Planner, label: str | None = None) -> None:
        super().__init__(label)
        self.planner = planner

    def expand(self, pbegin: Any) -> Any:
        return PCollection(pbegin.pipeline, element_type=self.planner.element_type, is_bounded=self.planner.is_bounded)

    def get_windowing(self, inputs: Any) -> Windowing:
        return Windowing(GlobalWindows())

    def infer_output_type(self, unused_input_type: Any) -> Any:
        return self.planner.element_type

    def watermarks(self, learned: Any) -> None:
        """Takes (part, microseconds, cut): how far the watermark of a part has come with what this micro-batch read.

        `cut` is how far the part was read where that is less than was planned, else -1. The planner is told of it
        (`shortened`), and the rest is planned again. What was planned as the end of a source must not be cut.
        """
        learned | "Watermarks" >> _Watermarks(self)

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return PLANNED, pickler.dumps(self.planner)


class _Watermarks(beam.PTransform[Any, Any]):
    def __init__(self, source: PlannedSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, pcoll: Any) -> Any:
        return PCollection.from_(pcoll)

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return WATERMARKS, b""
