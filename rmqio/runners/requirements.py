"""The requirements of a pipeline, read from its portable form in Beam."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rmqio.interfaces import ENDLESS_READ, EXACTLY_ONCE, IDS, RANDOM_IDS
from rmqio.runners.beam.portable import beam_runner_api_pb2, common_urns
from rmqio.runners.capabilities import Requirement

_PAR_DO: Final = common_urns.primitives.PAR_DO.urn
_GROUP_BY_KEY: Final = common_urns.primitives.GROUP_BY_KEY.urn
_FLATTEN: Final = common_urns.primitives.FLATTEN.urn
_IMPULSE: Final = common_urns.primitives.IMPULSE.urn
# The modules of transforms that come with Beam and with rmqio; see `_Pipeline.label`.
_LIBRARIES: Final = (b"apache_beam.", b"rmqio.transforms.")


def requirements_of(pipeline: Any) -> dict[Requirement, list[str]]:
    """Returns the needs of a pipeline, each with the names of the transforms that have it, in pipeline order.

    A name is the label under which a transform of Beam or rmqio was applied, not the label of an inner part.
    """
    found: dict[Requirement, dict[str, None]] = defaultdict(dict)
    graph = _Pipeline(pipeline)
    for name, transform in graph.leaves():
        for need in graph.needs(name, transform):
            found[need][graph.label(name)] = None
    return {need: list(found[need]) for need in Requirement if need in found}


def random_ids(pipeline: Any) -> dict[str, list[str]]:
    """Returns the writes to RocketMQ whose copies cannot be told from new messages: their names by what they say."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, shown in _displayed(pipeline):
        if (ids := shown.get(IDS, "")).startswith(RANDOM_IDS):
            found[ids].append(name)
    return found


def exactly_once_writes(pipeline: Any) -> list[str]:
    """Returns the names of the writes to RocketMQ that store no message twice."""
    return [name for name, shown in _displayed(pipeline) if EXACTLY_ONCE in shown and IDS in shown]


def _displayed(pipeline: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Returns the transforms' names and texts of their display data."""
    for each in pipeline.components.transforms.values():
        shown = (beam_runner_api_pb2.LabelledPayload.FromString(item.payload) for item in each.display_data)
        yield str(each.unique_name), {item.key: item.string_value for item in shown}


class _Pipeline:
    def __init__(self, pipeline: Any) -> None:
        self._components = pipeline.components
        self._parents = {
            part: name for name, each in self._components.transforms.items() for part in each.subtransforms
        }
        self._roots = pipeline.root_transform_ids
        self._behind: set[str] = set()
        """The collections that come from an endless read."""
        self._merged: set[str] = set()
        """The collections in windows that are already merged, since they come from a GroupByKey in the same windows."""

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Returns the transforms without parts, in pipeline order, so that producers come before their readers."""

        def walk(names: Any) -> Iterator[tuple[str, Any]]:
            for name in names:
                transform = self._components.transforms[name]
                if transform.subtransforms:
                    yield from walk(transform.subtransforms)
                elif not transform.outputs or not set(transform.outputs.values()) <= set(transform.inputs.values()):
                    yield name, transform  # others only rename their input

        return walk(self._roots)

    def label(self, name: str) -> str:
        """Returns the outermost enclosing transform that is not the user's own: what the user has written."""
        path = [self._components.transforms[each] for each in reversed(list(self._path(name)))]
        for each in path:
            if each.unique_name and each.annotations.get("python_type", b"").startswith(_LIBRARIES):
                return str(each.unique_name)
        return str(path[-1].unique_name)

    def needs(self, name: str, transform: Any) -> Iterator[Requirement]:
        """Yields the needs of a leaf, after those of its producers."""
        urn = transform.spec.urn
        pardo = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload if urn == _PAR_DO else b"")
        outputs, inputs = [*transform.outputs.values()], dict(transform.inputs)
        sides = {inputs.pop(tag) for tag in pardo.side_inputs}
        is_live = any(map(self._is_unbounded, inputs.values()))
        makes_unbounded = not is_live and any(map(self._is_unbounded, outputs))
        is_splittable = bool(pardo.restriction_coder_id)
        in_endless_read = any(
            ENDLESS_READ in self._components.transforms[each].annotations for each in self._path(name)
        )

        if makes_unbounded:
            yield Requirement.ENDLESS_READS if in_endless_read else Requirement.UNBOUNDED
        elif not is_live and (is_splittable or (not inputs and urn != _IMPULSE)):
            yield Requirement.ENDING_READS
        if is_splittable:
            yield Requirement.SPLITTABLE
        if pardo.requests_finalization:
            yield Requirement.FINALIZATION
        if pardo.state_specs:
            yield Requirement.STATE
        if any(each.HasField("ordered_list_spec") for each in pardo.state_specs.values()):
            yield Requirement.ORDERED_STATE
        if sides:
            yield Requirement.SIDE_INPUTS
        yield from self._timers(pardo, is_live)
        if urn == _GROUP_BY_KEY and self._merges(*inputs.values()):
            yield Requirement.MERGING_WINDOWS
        is_unmerged = any(self._merges(each) and each not in self._merged for each in inputs.values())
        if is_unmerged and (pardo.state_specs or pardo.timer_family_specs):
            yield Requirement.UNMERGED_STATE
        self._note_merged(urn, inputs.values(), outputs)
        if is_live and (urn == _GROUP_BY_KEY or pardo.state_specs or pardo.timer_family_specs):
            yield Requirement.KEPT_STATE

        is_behind = not self._behind.isdisjoint(inputs.values())
        is_shuffle = urn == _GROUP_BY_KEY or (urn == _FLATTEN and len(inputs) > 1)
        if not self._behind.isdisjoint(sides) or (
            is_behind and (is_shuffle or (is_splittable and not in_endless_read))
        ):
            yield Requirement.SHUFFLES_BEHIND
        if is_behind or (in_endless_read and makes_unbounded):
            self._behind.update(outputs)

    def _path(self, name: str) -> Iterator[str]:
        """Yields the transform and those that enclose it."""
        at: str | None = name
        while at is not None:
            yield at
            at = self._parents.get(at)

    def _is_unbounded(self, collection: str) -> bool:
        found = self._components.pcollections[collection].is_bounded
        return bool(found == beam_runner_api_pb2.IsBounded.UNBOUNDED)

    def _merges(self, collection: str) -> bool:
        status = self._components.windowing_strategies[self._windowing(collection)].merge_status
        return bool(status == beam_runner_api_pb2.MergeStatus.NEEDS_MERGE)

    def _note_merged(self, urn: str, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        if urn == _GROUP_BY_KEY:
            self._merged.update(outputs)
            return
        windowings = {self._windowing(each) if each in self._merged else None for each in inputs}
        self._merged.update(each for each in outputs if windowings == {self._windowing(each)})

    def _windowing(self, collection: str) -> str:
        return str(self._components.pcollections[collection].windowing_strategy_id)

    @staticmethod
    def _timers(pardo: Any, is_live: bool) -> Iterator[Requirement]:
        domains = {each.time_domain for each in pardo.timer_family_specs.values()}
        if beam_runner_api_pb2.TimeDomain.EVENT_TIME in domains:
            yield Requirement.LIVE_EVENT_TIMERS if is_live else Requirement.EVENT_TIMERS
        if beam_runner_api_pb2.TimeDomain.PROCESSING_TIME in domains:
            yield Requirement.LIVE_CLOCK_TIMERS if is_live else Requirement.CLOCK_TIMERS
