"""Translates a pipeline proto to a plan of fused stages, with their tasks for workers. Knows nothing about Spark."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindows

from rmqio.runners.spark.beam import triggers
from rmqio.runners.spark.beam.private import (
    DATA_INPUT_URN,
    IDENTITY_DOFN_URN,
    PAR_DO_URNS,
    PipelineContext,
    TransformContext,
    annotate_downstream_side_inputs,
    annotate_stateful_dofns_as_roots,
    beam_fn_api_pb2,
    beam_runner_api_pb2,
    common_urns,
    create_and_optimize_stages,
    expand_sdf,
    extract_impulse_stages,
    fix_flatten_coders,
    fix_side_input_pcoll_coders,
    greedily_fuse,
    lift_combiners,
    pack_combiners,
    parse_Bytes,
    read_to_impulse,
    remove_data_plane_ops,
    side_inputs,
    sort_stages,
    unique_name,
)
from rmqio.runners.spark.beam.private import Stage as BeamStage
from rmqio.runners.spark.model import WRITE_URN, Form, Grouping, GroupSpec, Input, Output, SideInput, StageTask

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.beam.private import TransformContext, beam_runner_api_pb2


# The steps of a plan: fused stages, and nodes for what the runner does between stages. Knows nothing about Spark.


@dataclass(slots=True, eq=False)
class Node:
    """A step of the plan. `inputs` and `output` are ids of PCollections."""

    name: str
    inputs: list[str]
    output: str
    payload: bytes = b""


class Impulse(Node):
    """One empty element."""


class Source(Node):
    """In streaming: elements that the driver plans. The payload is the pickled planner."""


class Watermarks(Node):
    """In streaming: receives what a read has learned about event time."""


class Flatten(Node):
    """The union of its inputs."""


class Empty(Node):
    """No elements: a Flatten without inputs."""


class Redistribute(Node):
    """The same elements, spread over all partitions."""


class GroupByKey(Node):
    """Groups in its neighbours: the stages before it write runs, and the stages after it read groups."""


@dataclass(slots=True, eq=False)
class Stage:
    """A fused stage with its input. Its readers determine what it writes, and in which forms."""

    name: str
    transforms: list[beam_runner_api_pb2.PTransform]
    input: str
    outputs: list[str]
    side_inputs: list[tuple[str, str, str, bool]]  # transform id, tag, PCollection, multimap
    stateful: bool
    finalizes: bool
    writes: list[Output] = field(default_factory=list)
    readers: int = 0


# The order of a plan: topological, and the same in each process.

T = TypeVar("T")


def ordered(
    items: Iterable[T], reads: Callable[[T], list[str]], writes: Callable[[T], list[str]], name: Callable[[T], str]
) -> list[T]:
    """Returns the items in topological order. Sorts by name where that leaves a choice.

    Beam iterates over sets, so its own order differs from process to process. State in checkpoints is stored under the
    number that a stage has in this order.
    """
    items = sorted(items, key=name)
    makers = {pcollection: at for at, item in enumerate(items) for pcollection in writes(item)}
    missing = [{makers[p] for p in reads(item) if p in makers} - {at} for at, item in enumerate(items)]
    readers: dict[int, list[int]] = {}
    for at, makers_of in enumerate(missing):
        for maker in makers_of:
            readers.setdefault(maker, []).append(at)
    ready = [at for at, makers_of in enumerate(missing) if not makers_of]
    found = []
    while ready:
        at = heapq.heappop(ready)
        found.append(items[at])
        for reader in readers.get(at, ()):
            missing[reader].discard(at)
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return found


# The plan of a pipeline: its steps in order, with coders and windowing strategies of the PCollections between them.


@dataclass(slots=True)
class Plan:
    """Nodes in topological order, and the components to which their ids refer."""

    nodes: list[Node | Stage]
    components: beam_runner_api_pb2.Components
    context: TransformContext
    producers: dict[str, Node | Stage]  # by id of the PCollection
    groupings: dict[str, Grouping] = field(default_factory=dict)  # by id of the windowing strategy

    def windowed_coder_id(self, pcollection_id: str, state_iterables: bool = False) -> str:
        """Returns the id of the coder of whole elements."""
        pcollection = self.components.pcollections[pcollection_id]
        windowing = self.components.windowing_strategies[pcollection.windowing_strategy_id]
        coder_id = self.context.add_or_get_coder_id(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=common_urns.coders.WINDOWED_VALUE.urn),
                component_coder_ids=[pcollection.coder_id, windowing.window_coder_id],
            ),
            pcollection.coder_id + "_windowed",
        )
        found: str = self.context.with_state_iterables(coder_id) if state_iterables else coder_id
        return found

    def context_coder(self, coder_id: str) -> Coder:
        """Returns the coder with an id."""
        return PipelineContext(self.components).coders.get_by_id(coder_id)

    def group_spec(self, pcollection_id: str) -> GroupSpec:
        """Returns how a GroupByKey that reads the PCollection groups it."""
        pcollection = self.components.pcollections[pcollection_id]
        windowing_id = pcollection.windowing_strategy_id
        if windowing_id not in self.groupings:
            context = PipelineContext(self.components)
            self.groupings[windowing_id] = grouping_of(context.windowing_strategies.get_by_id(windowing_id))
        return GroupSpec(self.groupings[windowing_id], pcollection.coder_id, windowing_id)


def grouping_of(windowing: Windowing) -> Grouping:
    """Returns what a GroupByKey over bounded data must know about its elements."""
    fires_once = isinstance(windowing.triggerfn, trigger.DefaultTrigger) or windowing.triggerfn in (
        trigger.AfterWatermark(),
        triggers.NO_TRIGGER,
    )
    if windowing.is_default() or (
        windowing.windowfn == GlobalWindows()
        and windowing.triggerfn in (trigger.AfterCount(1), triggers.ALWAYS, triggers.NO_TRIGGER)
    ):
        return Grouping.GLOBAL
    return Grouping.WINDOWED if fires_once else Grouping.TRIGGERED


# The URNs of the transforms that the runner runs itself; all others are run by Beam's code in fused stages.

IMPULSE: Final = common_urns.primitives.IMPULSE.urn
FLATTEN: Final = common_urns.primitives.FLATTEN.urn
GROUP_BY_KEY: Final = common_urns.primitives.GROUP_BY_KEY.urn
# Composites that only move elements to other partitions
REDISTRIBUTE: Final = frozenset(
    {common_urns.composites.RESHUFFLE.urn, common_urns.composites.REDISTRIBUTE_ARBITRARILY.urn}
)
EMPTY: Final = "rmqio:spark:empty:v1"
# Transforms of streaming: see streaming/planned_source.py
PLANNED: Final = "rmqio:spark:planned_source:v1"
WATERMARKS: Final = "rmqio:spark:watermarks:v1"


# Our own phases of Beam's optimizer: they make stages such that rows can connect them.
#
# Like Beam's phases, they take stages and return stages, which have one transform each before fusion.


def mend_sdf_reshuffles(stages: Iterable[BeamStage], context: TransformContext) -> Iterator[BeamStage]:
    """Undoes two effects of Beam's expansion of SDFs.

    Beam gives the reshuffle before an SDF the side inputs of the SDF as well, and it gives residuals their own coder.
    """
    pcollections = context.components.pcollections
    for stage in stages:
        for transform in stage.transforms:
            if transform.spec.urn in REDISTRIBUTE and len(transform.inputs) > 1:
                output = next(iter(transform.outputs.values()))
                coder_id = pcollections[output].coder_id
                for tag, pcollection in list(transform.inputs.items()):
                    if pcollections[pcollection].coder_id != coder_id:
                        del transform.inputs[tag]
            if transform.spec.urn == common_urns.sdf_components.TRUNCATE_SIZED_RESTRICTION.urn:
                # A residual of the stage is encoded as an output of Truncate, and read as an input of Truncate
                for pcollection in [*transform.inputs.values(), *transform.outputs.values()]:
                    context.length_prefix_pcoll_coders(pcollection)
        yield stage


def root_side_inputs(stages: Iterable[BeamStage], context: TransformContext) -> Iterator[BeamStage]:
    """Makes readers of side inputs start a stage, in streaming: elements wait for them in state before that stage."""
    for stage in stages:
        if any(side_inputs(transform) for transform in stage.transforms):
            stage.forced_root = True
        yield stage


def fix_redistribute_coders(stages: Iterable[BeamStage], context: TransformContext) -> Iterator[BeamStage]:
    """Encodes redistributed elements as their readers expect: the bytes stay as they are, but the coders may differ."""
    pcollections = context.components.pcollections
    for stage in stages:
        transform = stage.transforms[0]
        if transform.spec.urn in REDISTRIBUTE:
            (output,) = transform.outputs.values()
            for tag, pcollection in list(transform.inputs.items()):
                if pcollections[pcollection].coder_id != pcollections[output].coder_id:
                    identity, copy = _identity(pcollection, context)
                    pcollections[copy].coder_id = pcollections[output].coder_id
                    transform.inputs[tag] = copy
                    yield identity
        yield stage


def name_empty_flattens(stages: Iterable[BeamStage], context: TransformContext) -> Iterator[BeamStage]:
    """Keeps a Flatten without inputs out of fused stages, which all start by reading something."""
    for stage in stages:
        for transform in stage.transforms:
            if transform.spec.urn == FLATTEN and not transform.inputs:
                transform.spec.urn = EMPTY
        yield stage


def isolate_runner_edges(stages: Sequence[BeamStage], context: TransformContext) -> Iterator[BeamStage]:
    """Puts an identity stage between an output that only a stage can read and an input that only a stage can write.

    Only stages can read groups and impulses. Flattens, groupings, redistributions, stateful stages and side inputs only
    take what stages have written.
    """
    producers = {p: s for s in stages for t in s.transforms for p in t.outputs.values()}
    copies: dict[str, str] = {}
    for stage in stages:
        renamed = []
        transform = stage.transforms[0]
        takes_written = transform.spec.urn in (FLATTEN, GROUP_BY_KEY, WATERMARKS, *REDISTRIBUTE) or stage.is_stateful()
        own = {p for t in stage.transforms for p in t.outputs.values()}
        for each in stage.transforms:
            sides = set(side_inputs(each).values())
            for tag, pcollection in list(each.inputs.items()):
                producer = producers.get(pcollection)
                if pcollection in own or producer is None or not _only_read(producer):
                    continue
                # In streaming, readers of side inputs run where there is state, and sources only where there is none
                moved = sides and PLANNED in context.known_runner_urns and not _is_grouped(producer)
                if not (takes_written or moved or pcollection in sides):
                    continue
                if pcollection not in copies:
                    identity, copy = _identity(pcollection, context)
                    copies[pcollection] = copy
                    renamed.append(identity)
                each.inputs[tag] = copies[pcollection]
        yield from renamed
        yield stage


def _only_read(stage: BeamStage) -> bool:
    return stage.transforms[0].spec.urn in (IMPULSE, GROUP_BY_KEY, PLANNED)


def _is_grouped(stage: BeamStage) -> bool:
    return bool(stage.transforms[0].spec.urn == GROUP_BY_KEY)


def _identity(pcollection: str, context: TransformContext) -> tuple[BeamStage, str]:
    pcollections = context.components.pcollections
    copy = unique_name(pcollections, pcollection + "_copy")
    pcollections[copy].CopyFrom(pcollections[pcollection])
    pcollections[copy].unique_name = copy
    name = unique_name(context.components.transforms, pcollection + "/Copy")
    transform = beam_runner_api_pb2.PTransform(
        unique_name=name,
        inputs={"in": pcollection},
        outputs={"out": copy},
        spec=beam_runner_api_pb2.FunctionSpec(urn=IDENTITY_DOFN_URN),
        environment_id=next(iter(context.components.environments)),
    )
    return BeamStage(name, [transform]), copy


# Determines what each stage reads and writes, and builds its task for a worker. Knows nothing about Spark.


class Writes:
    """Records which stage writes which PCollection in which form. Readers call `need` for their inputs."""

    def __init__(self, plan: Plan, buckets: int) -> None:
        self._plan = plan
        self._buckets = buckets
        self._channels = 0
        self._known: dict[tuple[str, Form], Output] = {}

    def need(self, pcollection: str, form: Form) -> list[tuple[Stage, Output]]:
        """Returns the outputs that together hold the PCollection in that form. Counts one reader for each of them."""
        producer = self._plan.producers.get(pcollection)
        if isinstance(producer, Flatten):
            return [found for each in producer.inputs for found in self.need(each, form)]
        if isinstance(producer, Empty):
            return []
        if isinstance(producer, Redistribute):
            # Sorting by key redistributes as well as dealing does
            (source,) = producer.inputs
            return self.need(source, Form.DEALT if form is Form.PLAIN else form)
        assert isinstance(producer, Stage), f"{pcollection} is not written by a stage"
        output = self._known.get((pcollection, form))
        if output is None:
            number = self._channels
            self._channels += 1
            output = Output(f"write_{number}", number, pcollection, form, self._buckets)
            self._known[pcollection, form] = output
            producer.writes.append(output)
        producer.readers += 1
        return [(producer, output)]


def stage_input(plan: Plan, stage: Stage) -> tuple[Input, str | None, Form]:
    """Returns a stage's input, the PCollection whose rows it reads (None: an impulse), and the form of the rows."""
    producer = plan.producers.get(stage.input)
    if isinstance(producer, Impulse):
        return Input("read", Form.PLAIN, impulse=True), None, Form.PLAIN
    if isinstance(producer, GroupByKey):
        (source,) = producer.inputs
        return Input("read", Form.GROUPED, plan.group_spec(source)), source, Form.GROUPED
    form = Form.KEYED if stage.stateful else Form.PLAIN
    return Input("read", form), stage.input, form


def stage_task(
    plan: Plan,
    stage: Stage,
    stage_id: int,
    read: Input,
    write_payload: Callable[[Output, str, GroupSpec | None], bytes],
    side_names: Mapping[tuple[str, str], str],
    options: Mapping[str, object],
) -> StageTask:
    """Returns the task of a stage. All readers of the stage must be known."""
    transforms = {each.unique_name: each for each in stage.transforms}
    coder_id = plan.windowed_coder_id(stage.input, state_iterables=True)
    transforms[read.transform_id] = beam_runner_api_pb2.PTransform(
        unique_name=read.transform_id,
        spec=beam_runner_api_pb2.FunctionSpec(
            urn=DATA_INPUT_URN,
            payload=beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder_id).SerializeToString(),
        ),
        outputs={"out": stage.input},
    )
    for output in stage.writes:
        coder_id = plan.windowed_coder_id(output.pcollection_id)
        grouped = output.form in (Form.GROUPED, Form.WINDOWS, Form.STATEFUL)
        group = plan.group_spec(output.pcollection_id) if grouped else None
        transforms[output.transform_id] = beam_runner_api_pb2.PTransform(
            unique_name=output.transform_id,
            spec=beam_runner_api_pb2.FunctionSpec(urn=WRITE_URN, payload=write_payload(output, coder_id, group)),
            inputs={"in": output.pcollection_id},
        )
    sides = tuple(
        SideInput(transform_id, tag, side_names[transform_id, tag], multimap, plan.windowed_coder_id(pcollection))
        for transform_id, tag, pcollection, multimap in stage.side_inputs
    )
    used = {p for each in transforms.values() for p in (*each.inputs.values(), *each.outputs.values())}
    components = plan.components
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor(
        id=f"stage-{stage_id}",
        transforms=transforms,
        pcollections={each: components.pcollections[each] for each in used},
        coders=components.coders,
        windowing_strategies=components.windowing_strategies,
        environments=components.environments,
    )
    descriptor.timer_api_service_descriptor.url = "spark-task"  # any value: Beam only checks whether a URL is set
    return StageTask(
        stage_id, stage.name, descriptor.SerializeToString(), read, tuple(stage.writes), sides, dict(options)
    )


_NODES: Final[Mapping[str, type[Node]]] = {
    IMPULSE: Impulse,
    FLATTEN: Flatten,
    EMPTY: Empty,
    GROUP_BY_KEY: GroupByKey,
    **dict.fromkeys(REDISTRIBUTE, Redistribute),
}


def translate(
    pipeline: beam_runner_api_pb2.Pipeline,
    is_drain: bool = False,
    sources: Mapping[str, type[Node]] = MappingProxyType({}),
) -> Plan:
    """Returns the plan of a pipeline proto. Changes the proto. `sources`: nodes by URN, besides Beam's primitives."""
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn in sources:
            transform.environment_id = ""  # the runner runs it
    context, stages = create_and_optimize_stages(
        pipeline,
        phases=[
            annotate_downstream_side_inputs,
            annotate_stateful_dofns_as_roots,
            fix_side_input_pcoll_coders,
            # Beam only packs the combines of bounded pipelines, and has tests for that
            *([] if PLANNED in sources else [pack_combiners]),
            lift_combiners,
            expand_sdf,
            *([root_side_inputs] if PLANNED in sources else []),
            mend_sdf_reshuffles,
            fix_flatten_coders,
            fix_redistribute_coders,
            name_empty_flattens,
            greedily_fuse,
            read_to_impulse,
            extract_impulse_stages,
            remove_data_plane_ops,
            sort_stages,
            isolate_runner_edges,
        ],
        known_runner_urns=frozenset({IMPULSE, FLATTEN, GROUP_BY_KEY, EMPTY, *REDISTRIBUTE, *sources}),
        is_drain=is_drain,
    )
    nodes = ordered([_node(stage, sources) for stage in stages], _reads, _writes, _full_name)
    producers: dict[str, Node | Stage] = {}
    for node in nodes:
        for pcollection in node.outputs if isinstance(node, Stage) else [node.output]:
            producers[pcollection] = node
    plan = Plan(nodes, context.components, context, producers)
    _drop_unread(plan)
    return plan


def _node(stage: BeamStage, sources: Mapping[str, type[Node]]) -> Node | Stage:
    transform = stage.transforms[0]
    kind = _NODES.get(transform.spec.urn) or sources.get(transform.spec.urn)
    if kind is not None and len(stage.transforms) == 1:
        (output,) = transform.outputs.values()
        return kind(transform.unique_name, list(transform.inputs.values()), output, transform.spec.payload)
    inputs: list[str] = []
    outputs: list[str] = []
    sides: list[tuple[str, str, str, bool]] = []
    finalizes = False
    for each in stage.transforms:
        side_tags = set()
        if each.spec.urn in PAR_DO_URNS:
            payload = parse_Bytes(each.spec.payload, beam_runner_api_pb2.ParDoPayload)
            finalizes = finalizes or payload.requests_finalization
            for tag, side in payload.side_inputs.items():
                side_tags.add(tag)
                multimap = side.access_pattern.urn == common_urns.side_inputs.MULTIMAP.urn
                sides.append((each.unique_name, tag, each.inputs[tag], multimap))
        inputs += [pcollection for tag, pcollection in each.inputs.items() if tag not in side_tags]
        outputs += each.outputs.values()
    (main,) = set(inputs) - set(outputs)
    transforms = ordered(
        stage.transforms,
        lambda each: list(each.inputs.values()),
        lambda each: list(each.outputs.values()),
        lambda each: str(each.unique_name),
    )
    return Stage(_label(transforms), transforms, main, sorted(outputs), sides, stage.is_stateful(), finalizes)


def _label(transforms: Iterable[beam_runner_api_pb2.PTransform]) -> str:
    """Returns the names of a stage's transforms as the pipeline's author knows them: the outermost names, in order."""
    return "+".join(dict.fromkeys(each.unique_name.split("/", 1)[0] for each in transforms))


def _drop_unread(plan: Plan) -> None:
    """Removes flattens and other nodes whose output nobody reads, so that they request no rows."""
    while True:
        read = {p for node in plan.nodes for p in _reads(node)}
        kept = [node for node in plan.nodes if isinstance(node, Stage | Watermarks) or node.output in read]
        if len(kept) == len(plan.nodes):
            return
        plan.nodes[:] = kept


def _writes(node: Node | Stage) -> list[str]:
    return node.outputs if isinstance(node, Stage) else [node.output]


def _full_name(node: Node | Stage) -> str:
    return min(each.unique_name for each in node.transforms) if isinstance(node, Stage) else node.name


def _reads(node: Node | Stage) -> list[str]:
    if isinstance(node, Stage):
        return [node.input, *(pcollection for _, _, pcollection, _ in node.side_inputs)]
    return node.inputs
