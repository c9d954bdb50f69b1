"""Beam's in-process runner, with corrections, what its failures hold, and changes to Beam that last for one call."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

from rmqio.runners.beam import versions

try:
    from apache_beam.metrics import monitoring_infos
    from apache_beam.portability import common_urns
    from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.runners.portability.fn_api_runner import translations
    from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager, ParallelBundleManager
    from apache_beam.runners.worker import statesampler
    from apache_beam.runners.worker.bundle_processor import DATA_OUTPUT_URN, BundleProcessor
    from apache_beam.runners.worker.sdk_worker import GlobalCachingStateHandler
    from apache_beam.utils.thread_pool_executor import shared_unbounded_instance
except ImportError:
    versions.check("DirectRunner")  # an untested Beam may lack a name
    raise

__all__ = [
    "FnApiRunner",
    "StateWrite",
    "failed_state_write",
    "followed",
    "has_unbounded",
    "samplers_end",
    "timers_apart",
]

# Changes to Beam that last for one call. They are made in the process of the user, so each is taken back.

_FUSING = threading.Lock()
_PAR_DO = common_urns.primitives.PAR_DO.urn


@contextmanager
def timers_apart() -> Iterator[None]:
    """Keeps DoFns with timers out of each other's stages. If two share one, Beam loses what the timers of one emit."""
    stage: Any = translations.Stage
    with _FUSING:
        can_fuse = stage.can_fuse

        def can_fuse_timers(self: Any, consumer: Any, context: Any) -> bool:
            return not (_has_timers(self) and _has_timers(consumer)) and bool(can_fuse(self, consumer, context))

        stage.can_fuse = can_fuse_timers
        try:
            yield
        finally:
            stage.can_fuse = can_fuse


def _has_timers(stage: Any) -> bool:
    return any(
        beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload).timer_family_specs
        for each in stage.transforms
        if each.spec.urn == _PAR_DO
    )


@contextmanager
def samplers_end() -> Iterator[None]:
    """Ends the threads in which Beam samples what a bundle does. Each bundle starts one.

    If Ctrl-C arrives at that moment, Beam takes it for not started and leaves it, and Python waits for it at the end of
    the program, forever. Does nothing outside the main thread, where no Ctrl-C arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    sampler: Any = statesampler.StateSampler
    start = sampler.start
    started: WeakSet[Any] = WeakSet()

    def noted(self: Any) -> None:
        started.add(self)
        start(self)

    sampler.start = noted
    try:
        yield
    finally:
        sampler.start = start
        for each in started:
            each.finished = True


_Result = tuple[beam_fn_api_pb2.InstructionResponse, list[beam_fn_api_pb2.ProcessBundleSplitResponse]]


class _WholeBundleManager(ParallelBundleManager):
    """Runs the parts of a bundle on several workers, and keeps what they have left for later.

    Beam's own class keeps the first part's result and, of the others, only the metrics. If a splittable DoFn defers its
    work in a part, the deferred work is dropped: a read that waits for its broker would end without its messages.
    """

    def process_bundle(
        self,
        inputs: Mapping[str, Any],
        expected_outputs: Any,
        fired_timers: Mapping[Any, Any],
        expected_output_timers: Any,
        dry_run: bool = False,
    ) -> _Result:
        parts: list[dict[str, Any]] = [{} for _ in range(self._num_workers)]
        for name, buffer in inputs.items():
            for part, data in zip(parts, buffer.partition(len(parts)), strict=False):
                part[name] = data

        def run(part: dict[str, Any], timers: Mapping[Any, Any]) -> _Result:
            manager = BundleManager(
                self.bundle_context_manager,
                self._progress_frequency,
                cache_token_generator=self._cache_token_generator,
            )
            done: _Result = manager.process_bundle(part, expected_outputs, timers, expected_output_timers, dry_run)
            return done

        timers_of_parts = [fired_timers, *({} for _ in parts[1:])]
        # As in Beam's class: its threads do not hold up the end of the program if Ctrl-C has ended their workers.
        results = list(shared_unbounded_instance().map(run, parts, timers_of_parts))
        whole = beam_fn_api_pb2.InstructionResponse(error=next((each.error for each, _ in results if each.error), ""))
        bundles = [each.process_bundle for each, _ in results]
        infos = itertools.chain.from_iterable(each.monitoring_infos for each in bundles)
        whole.process_bundle.monitoring_infos.extend(monitoring_infos.consolidate(infos))
        for each in bundles:
            whole.process_bundle.residual_roots.extend(each.residual_roots)
        whole.process_bundle.requires_finalization = any(each.requires_finalization for each in bundles)
        return whole, [split for _, splits in results for split in splits]


class FnApiRunner(fn_api_runner.FnApiRunner):
    """Beam's runner. It loses neither what a bundle defers on several workers, nor what several timers emit."""

    def create_stages(self, pipeline_proto: Any) -> Any:
        with timers_apart():
            return super().create_stages(pipeline_proto)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> Any:
        chosen = super()._get_bundle_manager(bundle_context_manager)
        if type(chosen) is not ParallelBundleManager:
            return chosen
        return _WholeBundleManager(
            bundle_context_manager,
            self._progress_frequency,
            cache_token_generator=chosen._cache_token_generator,
        )


def followed(stages: Iterable[Any]) -> list[Any]:
    """Returns the transforms of stages that write for others."""
    before = [stage for stage in stages if any(each.spec.urn == DATA_OUTPUT_URN for each in stage.transforms)]
    return [each for stage in before for each in stage.transforms]


def has_unbounded(pipeline_proto: Any) -> bool:
    """Returns whether a pipeline, in Beam's portable form, has a collection without end."""
    unbounded = beam_runner_api_pb2.IsBounded.UNBOUNDED
    return any(each.is_bounded == unbounded for each in pipeline_proto.components.pcollections.values())


class StateWrite(NamedTuple):
    """State that a bundle writes when it ends."""

    key: beam_fn_api_pb2.StateKey
    coder: Any
    elements: Iterable[object]
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor


def failed_state_write(error: BaseException) -> StateWrite | None:
    """Returns what was being written when the error was raised, from the frames of its traceback; None: no state."""
    descriptor = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        local = frame.f_locals
        if frame.f_code is BundleProcessor.process_bundle.__code__:
            descriptor = local["self"].process_bundle_descriptor
        elif frame.f_code is GlobalCachingStateHandler.extend.__code__ and descriptor is not None:
            return StateWrite(local["state_key"], local["coder"], local["elements"], descriptor)
    return None
