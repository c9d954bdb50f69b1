"""Windows of SQL as windows of Beam."""

from __future__ import annotations

from typing import Final

from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.planning.plan import Window

SESSION_GAP_US: Final = 1000
"""Rows exactly the gap apart are in one session for Flink, and in two for Beam, whose windows are of milliseconds."""


def window_fn(window: Window | None) -> WindowFn:
    """Returns Beam's windows for those of the plan: later by their delay. None: the global window."""
    if window is None:
        return GlobalWindows()
    size, offset = Duration(micros=window.size_us), Timestamp(micros=window.offset_us + window.delay_us)
    match window.kind:
        case "TUMBLE":
            return FixedWindows(size, offset)
        case "HOP":
            return SlidingWindows(size, Duration(micros=window.slide_us), offset)
        case "SESSION":
            return Sessions(Duration(micros=window.size_us + SESSION_GAP_US))
    return FixedWindows(Duration(micros=window.slide_us), offset)


def times_of(window: Window, bucket_us: int, earliest_us: int) -> list[int]:
    """Returns the times, in microseconds, at which the partial aggregate of a bucket goes into its windows.

    The windows of CUMULATE begin together and end a step after each other. `window_fn` makes pieces of a step of them,
    and a window is the piece that ends with it: not every runner takes windows of our own.

    Args:
      bucket_us: where the bucket begins.
      earliest_us: the time of the batch: no element may be older.
    """
    if window.kind != "CUMULATE":
        return [max(bucket_us + window.delay_us, earliest_us)]
    end = start_of(window, bucket_us) + window.size_us
    return [max(each + window.delay_us, earliest_us) for each in range(bucket_us, end, window.slide_us)]


def start_of(window: Window, at_us: int) -> int:
    """Returns where the window of whole size begins that holds a time."""
    return at_us - (at_us - window.offset_us) % window.size_us
