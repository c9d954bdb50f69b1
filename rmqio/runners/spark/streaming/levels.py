"""Cuts a plan at its shuffles. Each level is one operator of Spark, so a pipeline with d shuffles is a chain of d + 1.

The rows that a stage writes for a later level pass through the levels in between, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindow, TimestampCombiner, TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.private import (
    ENCODED_IMPULSE_VALUE,
    DoFnSignature,
    PipelineContext,
    beam_runner_api_pb2,
    common_urns,
    pickler_loads,
)
from rmqio.runners.spark.model import Form, Grouping, Input, Output
from rmqio.runners.spark.streaming.model import LevelTask, StreamStage
from rmqio.runners.spark.streaming.source import ImpulsePlanner, StreamSource, opaque
from rmqio.runners.spark.translation import (
    Empty,
    Flatten,
    GroupByKey,
    Impulse,
    Plan,
    Redistribute,
    Source,
    Stage,
    Watermarks,
    stage_task,
)
from rmqio.runners.spark.worker.writing import payload

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.bootstrap import Bootstrap

_SDF = common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn


@dataclass(slots=True)
class StreamPlan:
    """The sources and levels of a query."""

    sources: list[StreamSource]
    levels: list[LevelTask]


@dataclass(slots=True, eq=False)
class _Placed:
    """A stage with its level and its inputs."""

    stage: Stage
    number: int
    level: int
    form: Form
    origins: list[tuple[_Placed, bool]]  # the stages that write its input, and whether to spread it
    source: StreamSource | None = None
    pcollection: str = ""
    """The PCollection of the rows that the stage reads. Before a GroupByKey, this is the input of the GroupByKey."""
    sides: dict[str, list[tuple[_Placed, bool]]] = field(default_factory=dict)
    channels: list[int] = field(default_factory=list)
    side_channels: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sources(self) -> set[int]:
        found = {self.source.number} if self.source else set()
        return found.union(*(origin.sources for origin, _ in self.origins))


def grouping_in_streams(windowing: Windowing) -> Grouping:
    """Returns what a GroupByKey over unbounded data must know about its elements."""
    fires_once = isinstance(windowing.triggerfn, trigger.DefaultTrigger) or windowing.triggerfn == (
        trigger.AfterWatermark()
    )
    # Groups whose timestamps are before the end of their window hold the watermark back
    at_the_end = windowing.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW
    lateness = windowing.allowed_lateness.micros
    simple = fires_once and at_the_end and not lateness and not windowing.windowfn.is_merging()
    return Grouping.WINDOWED if simple else Grouping.TRIGGERED


def endless_splittables(plan: Plan) -> list[str]:
    """Returns the names of the splittable DoFns that declare themselves unbounded per element."""
    found = []
    for transform in (each for node in plan.nodes if isinstance(node, Stage) for each in node.transforms):
        if transform.spec.urn == _SDF:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            do_fn = pickler_loads(payload.do_fn.payload)[0]
            if DoFnSignature(do_fn).is_unbounded_per_element():
                found.append(transform.unique_name)
    return found


class ElementCoder:
    """Encodes planned elements with the global window, and with their own timestamp or else the least timestamp."""

    def __init__(self, coder: Coder) -> None:
        self._coder = coder

    def encode(self, element: Any) -> bytes:
        time = MIN_TIMESTAMP
        if isinstance(element, TimestampedValue):
            element, time = element.value, element.timestamp
        encoded: bytes = self._coder.get_impl().encode_nested(WindowedValue(element, time, (GlobalWindow(),)))
        return encoded


class Levels:
    """Creates the levels of a plan."""

    def __init__(
        self,
        plan: Plan,
        run: str,
        buckets: Sequence[int],
        options: Mapping[str, object],
        bootstrap: Bootstrap | None,
    ) -> None:
        self._plan = plan
        self._run = run
        self._buckets = tuple(buckets)
        self._options = options
        self._bootstrap = bootstrap
        self._sources: dict[str, StreamSource] = {}
        self._placed: dict[str, _Placed] = {}  # by the PCollections that they write
        self._all: list[_Placed] = []
        self._channels: dict[tuple[str, Form, int], Output] = {}
        self._made: dict[int, _Placed] = {}
        self._read: dict[int, set[int]] = {}  # the levels that read each channel
        self._learned: dict[int, tuple[int, str]] = {}

    def make(self) -> StreamPlan:
        """Returns the sources and levels.

        Raises NotImplementedError, which names the transform, for what streaming does not support.
        """
        for node in self._plan.nodes:
            if isinstance(node, Impulse | Source):
                self._add_source(node)
            elif isinstance(node, Stage):
                self._place(node)
        for placed in self._all:
            self._connect(placed)
        for node in self._plan.nodes:
            if isinstance(node, Watermarks):
                self._learn(node)
        depth = max((placed.level for placed in self._all), default=0)
        tasks = {id(placed): self._task(placed) for placed in self._all}
        levels = [self._level(number, tasks) for number in range(depth + 1)]
        return StreamPlan(list(self._sources.values()), levels)

    def _add_source(self, node: Impulse | Source) -> None:
        number = len(self._sources)
        if isinstance(node, Impulse):
            source = StreamSource(number, node.name, opaque(ImpulsePlanner(ENCODED_IMPULSE_VALUE)), None)
        else:
            coder = self._plan.context_coder(self._plan.windowed_coder_id(node.output))
            planner = pickler_loads(node.payload)
            source = StreamSource(number, node.name, planner, ElementCoder(coder))
        self._sources[node.output] = source

    def _place(self, stage: Stage) -> None:
        producer = self._plan.producers.get(stage.input)
        source = self._sources.get(stage.input)
        form, pcollection = Form.PLAIN, stage.input
        if isinstance(producer, GroupByKey):
            (pcollection,) = producer.inputs
            form = Form.WINDOWS
            windowing_id = self._plan.components.pcollections[pcollection].windowing_strategy_id
            context = PipelineContext(self._plan.components)
            windowing = context.windowing_strategies.get_by_id(windowing_id)
            self._plan.groupings[windowing_id] = grouping_in_streams(windowing)
        elif stage.stateful:
            form = Form.STATEFUL
        origins = [] if source else self._origins(pcollection)
        shuffled = form is not Form.PLAIN
        level = max((origin.level + (shuffled or spread) for origin, spread in origins), default=0)
        sides = {side: self._origins(side) for _, _, side, _ in stage.side_inputs}
        level = max([level, *(origin.level + 1 for found in sides.values() for origin, _ in found)])
        if sides:
            level = max(level, 1)  # side inputs are kept in state, which level 0 does not have
        placed = _Placed(stage, len(self._all), level, form, origins, source, pcollection, sides)
        self._all.append(placed)
        for output in stage.outputs:
            self._placed[output] = placed

    def _origins(self, pcollection: str) -> list[tuple[_Placed, bool]]:
        producer = self._plan.producers.get(pcollection)
        if isinstance(producer, Flatten):
            return [found for each in producer.inputs for found in self._origins(each)]
        if isinstance(producer, Redistribute):
            return [(origin, True) for each in producer.inputs for origin, _ in self._origins(each)]
        if isinstance(producer, Empty):
            return []
        return [(self._placed[pcollection], False)]

    def _written(self, pcollection: str) -> list[str]:
        """Returns the PCollections, each written by a stage, that together form this one."""
        producer = self._plan.producers.get(pcollection)
        if isinstance(producer, Flatten | Redistribute | Empty):
            return [found for each in producer.inputs for found in self._written(each)]
        return [pcollection]

    def _connect(self, placed: _Placed) -> None:
        for side, origins in placed.sides.items():
            pairs = zip(self._written(side), origins, strict=True)
            placed.side_channels[side] = tuple(
                self._channel(pcollection, Form.PLAIN, origin, placed.level) for pcollection, (origin, _) in pairs
            )
        if placed.source:
            placed.channels.append(placed.source.channel)
            return
        written = self._written(placed.pcollection)
        for pcollection, (origin, spread) in zip(written, placed.origins, strict=True):
            form = placed.form
            if form is Form.PLAIN and (spread or origin.level < placed.level):
                form = Form.DEALT
            placed.channels.append(self._channel(pcollection, form, origin, placed.level))

    def _channel(self, pcollection: str, form: Form, origin: _Placed, level: int) -> int:
        output = self._channels.get((pcollection, form, level))
        if output is None:
            number = len(self._channels)
            output = Output(f"write_{number}", number, pcollection, form, len(self._buckets))
            self._channels[pcollection, form, level] = output
            self._made[number] = origin
            origin.stage.writes.append(output)
        self._read.setdefault(output.channel, set()).add(level)
        return output.channel

    def _learn(self, node: Watermarks) -> None:
        (pcollection,) = node.inputs
        origin = self._placed[pcollection]
        channel = self._channel(pcollection, Form.PLAIN, origin, origin.level)
        (source,) = origin.sources
        self._learned[channel] = source, self._plan.windowed_coder_id(pcollection)

    def _task(self, placed: _Placed) -> StreamStage:
        group = self._plan.group_spec(placed.pcollection) if placed.form is not Form.PLAIN else None
        read = Input("read", placed.form, group)
        names = {(transform_id, tag): side for transform_id, tag, side, _ in placed.stage.side_inputs}
        task = stage_task(self._plan, placed.stage, placed.number, read, payload, names, self._options)
        defers = any(transform.spec.urn == _SDF for transform in placed.stage.transforms)
        return StreamStage(task, tuple(placed.channels), placed.side_channels, defers)

    def _level(self, number: int, tasks: Mapping[int, StreamStage]) -> LevelTask:
        here = [placed for placed in self._all if placed.level == number]
        index = {id(placed): at for at, placed in enumerate(here)}
        made = {channel: index[id(origin)] for channel, origin in self._made.items() if id(origin) in index}
        return LevelTask(
            run=self._run,
            number=number,
            stages=tuple(tasks[id(placed)] for placed in here),
            made=made,
            local=frozenset(channel for channel in made if number in self._read[channel]),
            spread=frozenset(
                output.channel
                for (_, form, level), output in self._channels.items()
                if form is Form.PLAIN and output.channel in made and level > number
            ),
            later=tuple(
                channel
                for channel, origin in self._made.items()
                if origin.level <= number and max(self._read[channel]) > number
            ),
            sources={
                channel: tuple(sorted(origin.sources)) for channel, origin in self._made.items() if origin.level == 0
            },
            learned={channel: each for channel, each in self._learned.items() if channel in made},
            buckets=self._buckets,
            bootstrap=self._bootstrap,
        )
