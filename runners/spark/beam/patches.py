"""All changes to Beam. They are made in worker processes only: in the driver, Beam belongs to the user."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from apache_beam.transforms import core

from rmqio.runners.spark.beam.private import bundle_processor

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import operations

_inspect = core.get_function_args_defaults


def apply(creators: Mapping[str, Callable[..., operations.Operation]]) -> None:
    """Makes Beam inspect its own methods only once and create our operations, in this process. Idempotent.

    Args:
      creators: the functions that make operations, by the URN of the transform. They take the same arguments as Beam's.
    """
    core.get_function_args_defaults = _remembered
    known = bundle_processor.BeamTransformFactory._known_urns
    for urn, create in creators.items():
        _, payload_type = known.get(urn, (None, None))
        known[urn] = (create, payload_type)


def collected_finalizers(processor: bundle_processor.BundleProcessor) -> list[Callable[[], None]]:
    """Returns the finalizers that a bundle processor's last bundle has registered, without running them.

    Beam's compiled modules keep them out of reach. Therefore Beam is made to run them while the parameter's class
    collects them instead.
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


# Whenever Beam makes a bundle processor, it inspects the signatures of all methods of each DoFn several times. About
# thirty of them are Beam's own. Each inspection of a DoFn takes 1 ms, in each task: much of a small task's time.


@functools.cache
def _of_beam(function: types.FunctionType) -> tuple[tuple[str, ...], tuple[object, ...]]:
    # Like Beam's inspection of a bound method, which leaves out the first argument
    names, defaults = _inspect(function.__get__(object()))
    return tuple(names), tuple(defaults)


def _remembered(method: Callable[..., object]) -> tuple[list[str], list[object]]:
    """Returns the same as `core.get_function_args_defaults`."""
    function = getattr(method, "__func__", None)
    if not isinstance(function, types.FunctionType) or not _is_beams(function):
        return _inspect(method)  # type: ignore[no-any-return]
    names, defaults = _of_beam(function)
    return list(names), list(defaults)


def _is_beams(function: types.FunctionType) -> bool:
    """Returns whether the function is defined in a module of Beam, and not inside another function."""
    return (function.__module__ or "").startswith("apache_beam.") and "<locals>" not in function.__qualname__
