"""Lets a read plan its micro-batches, so that each reads exactly what was planned, also when it is run again.

A transform calls `planned_source(options)` of its pipeline's runner. If the runner has that method and it returns
something, the transform builds on the result: a `PlannedSource` emits the elements that a `Planner` plans, and what the
transform's own DoFn learns about event time goes to `PlannedSource.watermarks`. These are protocols: neither side
imports the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows

from rmqio.runners.spark.beam.private import pickler_dumps
from rmqio.runners.spark.streaming.planning.planner import P, Planner, PlannerOf, opaque
from rmqio.runners.spark.translation import PLANNED, WATERMARKS

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import PipelineContext

__all__ = ["PlannedSource", "Planner"]


class PlannedSource(beam.PTransform[Any, Any]):
    """The elements of a planner, micro-batch by micro-batch, in the global window."""

    def __init__(self, planner: PlannerOf[P], label: str | None = None) -> None:
        super().__init__(label)
        self.planner = opaque(planner)

    # Beam takes type hints from the annotations of `expand`
    def expand(self, pbegin: Any) -> Any:
        return PCollection(pbegin.pipeline, element_type=self.planner.element_type, is_bounded=self.planner.is_bounded)

    def get_windowing(self, inputs: object) -> Windowing:
        return Windowing(GlobalWindows())

    def infer_output_type(self, unused_input_type: object) -> object:
        return self.planner.element_type

    def watermarks(self, learned: PCollection) -> None:
        """Receives (part, microseconds, cut): how far this micro-batch's read has advanced the watermark of a part.

        `cut` is how far the part was read if that is less than planned, else -1. The planner is informed about cuts
        (`shortened`), and plans the rest again. A part that was planned as the end of a source must not be cut.
        """
        learned | "Watermarks" >> _Watermarks(self)

    def to_runner_api_parameter(self, context: PipelineContext) -> tuple[str, bytes]:
        return PLANNED, pickler_dumps(self.planner)


class _Watermarks(beam.PTransform[Any, Any]):
    def __init__(self, source: PlannedSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, pcoll: Any) -> Any:
        return PCollection.from_(pcoll)

    def to_runner_api_parameter(self, context: PipelineContext) -> tuple[str, bytes]:
        return WATERMARKS, b""
