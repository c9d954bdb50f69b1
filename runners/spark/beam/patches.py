"""Everything that is changed of Beam, in a worker's process: the driver's Beam is its user's."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

from apache_beam.transforms import core

from rmqio.runners.spark.beam.private import bundle_processor

_inspect = core.get_function_args_defaults


def apply(creators: Mapping[str, Callable[..., Any]]) -> None:
    """Has Beam look at its own methods once only, and make our operations, in this process. Idempotent.

    Args:
      creators: by the URN of a transform, what makes its operation, called as Beam's own functions for this are.
    """
    core.get_function_args_defaults = _remembered
    known = bundle_processor.BeamTransformFactory._known_urns
    for urn, create in creators.items():
        _, payload_type = known.get(urn, (None, None))
        known[urn] = (create, payload_type)


def collected_finalizers(processor: Any) -> list[Callable[[], None]]:
    """The finalizers that a bundle processor's last bundle has registered, not run.

    Where they are kept is out of reach in Beam's compiled modules, so Beam is asked to run them, for a moment with a
    parameter class that collects instead.
    """
    found: list[Callable[[], None]] = []
    param: Any = core._BundleFinalizerParam
    run = param.finalize_bundle
    param.finalize_bundle = lambda self: found.extend(self._callbacks)
    try:
        processor.finalize_bundle()
    finally:
        param.finalize_bundle = run
    return found


# Whenever Beam makes a bundle processor it inspects the signatures of all methods of each DoFn, several times, among
# them thirty that the DoFn has from Beam: 1 ms each time, in each task, which is much of a small task's time.


@functools.cache
def _of_beam(function: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    # As Beam inspects a bound method: without its first argument
    names, defaults = _inspect(function.__get__(object()))
    return tuple(names), tuple(defaults)


def _remembered(method: Any) -> tuple[list[str], list[Any]]:
    """As `core.get_function_args_defaults`."""
    function = getattr(method, "__func__", None)
    if not isinstance(function, types.FunctionType) or not _is_beams(function):
        return _inspect(method)  # type: ignore[no-any-return]
    names, defaults = _of_beam(function)
    return list(names), list(defaults)


def _is_beams(function: types.FunctionType) -> bool:
    """Whether it stands in a module of Beam; what is defined anew at each call of something does not count."""
    return (function.__module__ or "").startswith("apache_beam.") and "<locals>" not in function.__qualname__
