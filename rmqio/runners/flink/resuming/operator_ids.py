"""Stable operator ids, by which Flink finds a step's state when a job resumes from a checkpoint.

Beam derives the id of a fused stage from the name of the PCollection that the stage reads. If several stages read the
same one, Beam tells them apart by a number, in the order in which it visits them. That order changes from one start of
a Python program to the next. Two stages then swap ids: each finds the state of the other one, which Flink drops
silently, and starts without state.

So each step that keeps state reads a PCollection of its own, named after the step. Its id then also stays the same if
other steps are added or removed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rmqio.runners.flink.beam import beam_runner_api_pb2, common_urns, identity, python_urns


def with_own_inputs(pipeline: Any) -> Any:
    """Return a copy of a pipeline, in Beam's portable form, whose steps with state read PCollections of their own.

    A Flatten of one input precedes each such step, and fuses with the step before it. Nothing fuses with what Flink
    runs itself, such as a GroupByKey: there, the added step is in Python, and only if others read the same PCollection,
    since it costs time. Steps with state are those with user state, timers, stable input, or input sorted by time, and
    splittable DoFns, whose restrictions are state.
    """
    found = beam_runner_api_pb2.Pipeline()
    found.CopyFrom(pipeline)
    components = found.components
    parents = {child: each for each in components.transforms.values() for child in each.subtransforms}
    leaves = [each for each in components.transforms.values() if not each.subtransforms]
    by_flink = [each for each in leaves if not each.environment_id]
    by_flink += [
        each for each in components.transforms.values() if each.spec.urn == common_urns.composites.RESHUFFLE.urn
    ]
    of_flink = {at for each in by_flink for at in each.outputs.values()}
    readers = Counter(at for each in leaves for at in each.inputs.values())
    for step_id in sorted(components.transforms):
        step = components.transforms[step_id]
        if step.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        if not _keeps_state(payload):
            continue
        (tag,) = set(step.inputs) - set(payload.side_inputs)
        read = step.inputs[tag]
        is_python = payload.do_fn.urn == python_urns.PICKLED_DOFN_INFO  # another language cannot run our step
        if read in of_flink and (readers[read] == 1 or not is_python):
            continue
        new_id = f"{step_id}/input"
        own = components.pcollections[new_id]
        own.CopyFrom(components.pcollections[read])
        own.unique_name = f"{step.unique_name}/input"
        before = components.transforms[new_id]
        composite, slash, label = step.unique_name.rpartition("/")
        before.unique_name = f"{composite}{slash}Input of {label}"
        before.environment_id = step.environment_id
        before.inputs["0"], before.outputs["None"] = read, new_id
        if read in of_flink:
            before.spec.CopyFrom(identity())
        else:
            before.spec.urn = common_urns.primitives.FLATTEN.urn
        step.inputs[tag] = new_id
        siblings = parents[step_id].subtransforms if step_id in parents else found.root_transform_ids
        siblings.insert(list(siblings).index(step_id), new_id)
    return found


def _keeps_state(payload: Any) -> bool:
    return bool(
        payload.state_specs
        or payload.timer_family_specs
        or payload.restriction_coder_id
        or payload.requires_stable_input
        or payload.requires_time_sorted_input
    )
