"""Assigns Beam's own windows to elements, and looks up by their start the windows that were made before.

Making an `IntervalWindow` costs more than everything else that is done with an element between two functions, and most
elements are in the same windows as the elements before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apache_beam.transforms.window import BoundedWindow, FixedWindows, GlobalWindows, SlidingWindows, WindowFn
from apache_beam.utils.windowed_value import WindowedValue

_MOST: Final = 1_000
"""How many starts of windows are remembered."""

Assign = Callable[[WindowedValue, object], tuple[BoundedWindow, ...]]
"""Returns the windows of an element. Takes the element, which is in one window so far, and its value."""


def assigner(windowfn: WindowFn) -> Assign:
    """Returns a function that assigns windows as `windowfn` does, which may be a user's own."""
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
    known: dict[int, tuple[BoundedWindow, ...]] = {}

    def assign(element: WindowedValue, value: object) -> tuple[BoundedWindow, ...]:
        micros = element.timestamp_micros
        start = micros - (micros - offset) % period
        found = known.get(start)
        if found is None:
            if len(known) == _MOST:
                known.clear()
            found = known[start] = tuple(windowfn.assign(context(element.timestamp)))
        return found

    return assign


def _period(windowfn: WindowFn) -> int | None:
    """Returns microseconds, if all timestamps between two of their multiples are in the same windows; else None."""
    if type(windowfn) is FixedWindows:
        return int(windowfn.size.micros)
    if type(windowfn) is SlidingWindows and windowfn.size.micros % windowfn.period.micros == 0:
        return int(windowfn.period.micros)
    return None
