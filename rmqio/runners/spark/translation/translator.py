"""Translates a pipeline proto to a plan: Beam's own optimizer fuses stages. Knows nothing about Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from rmqio.runners.spark.beam.private import (
    PAR_DO_URNS,
    annotate_downstream_side_inputs,
    annotate_stateful_dofns_as_roots,
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
    sort_stages,
)
from rmqio.runners.spark.beam.private import Stage as BeamStage
from rmqio.runners.spark.translation import phases
from rmqio.runners.spark.translation.nodes import (
    Empty,
    Flatten,
    GroupByKey,
    Impulse,
    Node,
    Redistribute,
    Stage,
    Watermarks,
)
from rmqio.runners.spark.translation.ordering import ordered
from rmqio.runners.spark.translation.plan import Plan
from rmqio.runners.spark.translation.urns import EMPTY, FLATTEN, GROUP_BY_KEY, IMPULSE, PLANNED, REDISTRIBUTE

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
            *([phases.root_side_inputs] if PLANNED in sources else []),
            phases.mend_sdf_reshuffles,
            fix_flatten_coders,
            phases.fix_redistribute_coders,
            phases.name_empty_flattens,
            greedily_fuse,
            read_to_impulse,
            extract_impulse_stages,
            remove_data_plane_ops,
            sort_stages,
            phases.isolate_runner_edges,
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
