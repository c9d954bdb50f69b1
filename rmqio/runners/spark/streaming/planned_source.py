"""Lets a read plan its micro-batches, so that each reads exactly what was planned, also when it is run again.

A transform calls `planned_source(options)` of its pipeline's runner. If the runner has that method and it returns
something, the transform builds on the result: a `PlannedSource` emits the elements that a `Planner` plans, and what the
transform's own DoFn learns about event time goes to `PlannedSource.watermarks`. These are protocols: neither side
imports the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.runners.spark.beam.private import PipelineContext, beam_runner_api_pb2, common_urns, pickler_dumps
from rmqio.runners.spark.streaming.model import MIN
from rmqio.runners.spark.streaming.source import P, Planner, PlannerOf, opaque
from rmqio.runners.spark.translation import PLANNED, WATERMARKS

if TYPE_CHECKING:
    from apache_beam.coders import Coder

    from rmqio.runners.spark.beam.private import PipelineContext
    from rmqio.runners.spark.streaming.source import TriggerLimits


# Beam's TestStream. Each event is a micro-batch, so the pipeline is quiescent before the next event, as in Beam.

TEST_STREAM: Final = common_urns.primitives.TEST_STREAM.urn


class TestStreamPlanner:
    """Plans the elements of one output of a TestStream. A `Planner`, see source.py. A position counts events.

    All outputs of a TestStream count the same events, so they stay in step.
    """

    __test__ = False  # for pytest: not a test class
    element_type = None
    is_bounded = False
    identity = ""

    def __init__(self, events: Sequence[bytes], tag: str, coder: Coder) -> None:
        """Args: the events in Beam's encoding, the output's tag, the coder of the elements."""
        self._encoded = tuple(events)
        self._tag = tag
        self._coder = coder

    def advance(self, position: int | None, limits: TriggerLimits, until_now: bool) -> int:
        """Advances by one event. The last micro-batch, after all events, is the end of time."""
        return min(len(self._encoded) + 1, (position or 0) + 1)

    def elements(
        self, begin: int | None, end: int | None, again: bool = False
    ) -> Sequence[tuple[TimestampedValue, float]]:
        return [
            (TimestampedValue(self._coder.decode(each.encoded_element), Timestamp(micros=1000 * each.timestamp)), 1.0)
            for event in self._events(begin or 0, end or 0)
            if event.HasField("element_event") and event.element_event.tag == self._tag
            for each in event.element_event.elements
        ]

    def partitions(self, position: int | None) -> Mapping[str, int | None]:
        """Returns the watermark to which the events up to the position have advanced the output."""
        found = MIN
        for event in self._events(0, position or 0):
            if event.HasField("watermark_event") and event.watermark_event.tag == self._tag:
                found = 1000 * event.watermark_event.new_watermark
        return {"": found}

    def clock(self, position: int | None) -> float:
        """Returns processing time in seconds. It begins at 0, and only events advance it."""
        moved = sum(
            event.processing_time_event.advance_duration
            for event in self._events(0, position or 0)
            if event.HasField("processing_time_event")
        )
        return int(moved) / 1000

    def silent(self, position: int | None) -> Mapping[str, tuple[int, int]]:
        return {}

    def has_ended(self, position: int | None) -> bool:
        return position == len(self._encoded) + 1

    def is_done(self, position: int | None) -> bool:
        return self.has_ended(position)

    def shortened(self, position: int | None, cuts: Mapping[str, int]) -> int | None:
        return position

    def committed(self, position: int | None, last: bool = False) -> None:
        """Does nothing: there is nobody to inform."""

    def lag(self, position: int | None) -> Mapping[str, int]:
        return {}

    def _events(self, begin: int, end: int) -> Iterator[beam_runner_api_pb2.TestStreamPayload.Event]:
        return map(beam_runner_api_pb2.TestStreamPayload.Event.FromString, self._encoded[begin:end])


def plan_test_streams(proto: beam_runner_api_pb2.Pipeline) -> None:
    """Replaces each output of each TestStream of a pipeline with a planned source.

    Raises NotImplementedError for a TestStream whose events come from a service.
    """
    transforms = proto.components.transforms
    for name in [name for name, each in transforms.items() if each.spec.urn == TEST_STREAM]:
        given = transforms[name]
        payload = beam_runner_api_pb2.TestStreamPayload.FromString(given.spec.payload)
        if payload.endpoint.url:
            raise NotImplementedError(
                f"{given.unique_name}: a TestStream that gets its events from an endpoint is not supported. Add the "
                "events to the TestStream itself"
            )
        coder = PipelineContext(proto.components).coders.get_by_id(payload.coder_id)
        events = [event.SerializeToString() for event in payload.events]
        made = {}
        for tag, pcollection in sorted(given.outputs.items()):
            source = made[f"{name}-{tag}"] = beam_runner_api_pb2.PTransform(
                unique_name=f"{given.unique_name}/{tag}", outputs={"out": pcollection}
            )
            source.spec.urn = PLANNED
            source.spec.payload = pickler_dumps(TestStreamPlanner(events, tag, coder))
        _replace(proto, name, made)


def _replace(
    proto: beam_runner_api_pb2.Pipeline, name: str, made: Mapping[str, beam_runner_api_pb2.PTransform]
) -> None:
    transforms = proto.components.transforms
    del transforms[name]
    for new, transform in made.items():
        transforms[new].CopyFrom(transform)
    for names in (proto.root_transform_ids, *(each.subtransforms for each in transforms.values())):
        if name in names:
            names.remove(name)
            names.extend(made)


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
