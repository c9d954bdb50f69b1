"""All changes of SparkRunner to Beam. They are made in worker processes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms import core

from rmqio.runners.beam.speedups import speed_up_beam

if TYPE_CHECKING:
    from apache_beam.runners.worker import operations


def apply(creators: Mapping[str, Callable[..., operations.Operation]]) -> None:
    """Makes Beam read signatures sooner and create our operations, in this process. Idempotent.

    Args:
      creators: the functions that make operations, by the URN of the transform. They take the same arguments as Beam's.
    """
    speed_up_beam()
    known = bundle_processor.BeamTransformFactory._known_urns
    for urn, create in creators.items():
        _, payload_type = known.get(urn, (None, None))
        known[urn] = (create, payload_type)


def collected_finalizers(processor: bundle_processor.BundleProcessor) -> list[Callable[[], None]]:
    """Returns the finalizers that a bundle processor's last bundle has registered, without running them.

    Beam's compiled modules keep them out of reach. Therefore Beam is made to run them while the parameter's class
    collects them instead. This lasts for one call, unlike `apply`, and only bundles with finalizers need it. A change
    that lasts would save two assignments, but would have to tell these bundles from those of another runner in the same
    process (tests have both), whose finalizers Beam must run.
    """
    found: list[Callable[[], None]] = []
    param = core._BundleFinalizerParam
    run = param.finalize_bundle
    param.finalize_bundle = lambda self: found.extend(self._callbacks)
    try:
        processor.finalize_bundle()
    finally:
        param.finalize_bundle = run
    return found
