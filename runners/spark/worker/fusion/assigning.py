"""The windows of elements: Beam's own, looked up by their start where they have been made before.

Making an `IntervalWindow` costs more than all the rest that is done with an element between two functions, and most
elements lie in the windows of the elements before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows, WindowFn
from apache_beam.utils.windowed_value import WindowedValue

_MOST: Final = 1_000
"""Starts of windows that are remembered."""

Assign = Callable[[WindowedValue, Any], tuple[Any, ...]]
"""The windows of an element that is in one window so far: its timestamp and window, and its value."""


def assigner(windowfn: Any) -> Assign:
    """What a `WindowFn` does, the user's own as well."""
    context = WindowFn.AssignContext
    if type(windowfn) is GlobalWindows:
        found = tuple(windowfn.assign(context(0)))
        return lambda element, value: found
    period = _period(windowfn)
    if period is None:
        return lambda element, value: tuple(
            windowfn.assign(context(element.timestamp, element=value, window=element.windows[0]))
        )
    offset = windowfn.offset.micros
    known: dict[int, tuple[Any, ...]] = {}

    def assign(element: WindowedValue, value: Any) -> tuple[Any, ...]:
        micros = element.timestamp_micros
        start = micros - (micros - offset) % period
        found = known.get(start)
        if found is None:
            if len(known) == _MOST:
                known.clear()
            found = known[start] = tuple(windowfn.assign(context(element.timestamp)))
        return found

    return assign


def _period(windowfn: Any) -> int | None:
    """Microseconds, if timestamps between two multiples of them are all in the same windows."""
    if type(windowfn) is FixedWindows:
        return int(windowfn.size.micros)
    if type(windowfn) is SlidingWindows and windowfn.size.micros % windowfn.period.micros == 0:
        return int(windowfn.period.micros)
    return None
