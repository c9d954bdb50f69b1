"""Our own phases of Beam's optimizer: they make stages such that rows can connect them.

Like Beam's phases, they take stages and return stages, which have one transform each before fusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rmqio.runners.spark.beam.private import (
    IDENTITY_DOFN_URN,
    TransformContext,
    beam_runner_api_pb2,
    common_urns,
    side_inputs,
    unique_name,
)
from rmqio.runners.spark.beam.private import Stage as BeamStage
from rmqio.runners.spark.translation.urns import (
    EMPTY,
    FLATTEN,
    GROUP_BY_KEY,
    IMPULSE,
    PLANNED,
    REDISTRIBUTE,
    WATERMARKS,
)


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
