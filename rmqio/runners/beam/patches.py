"""Changes to Beam that last for one call. They are made in the process of the user, so each is taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.worker import statesampler

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
