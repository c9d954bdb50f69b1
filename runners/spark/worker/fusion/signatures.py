"""Keeps what Beam finds out about its own methods.

Whenever Beam makes a bundle processor it inspects the signatures of all methods of each DoFn, several times, among them
thirty that the DoFn has from Beam: 1 ms each time, in each task, which is much of a small task's time.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from rmqio.runners.spark.beam_private import core

_inspect = core.get_function_args_defaults


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


def remember_signatures() -> None:
    """For this process, which should be a worker's: the driver's Beam is its user's. Idempotent."""
    core.get_function_args_defaults = _remembered
