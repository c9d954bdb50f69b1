"""Windows of SQL as windows of Beam.

Windows by the clock of a zone have no common length: a day has 23 or 25 hours twice a year. So the groups of a batch
bring start and end of theirs as a part of the key, and come at its last millisecond, in Beam's shortest windows: not
every runner takes windows of our own. Sessions are the same by every clock; their bounds are shown by that of the zone.
"""

from __future__ import annotations

from typing import Final

from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.planning.plan import Window
from rmqio.sql.values import DAY_US, FIRST_US, LAST_US, UTC, last_instant_in, local_in

SESSION_GAP_US: Final = 1000
"""Rows exactly the gap apart are in one session for Flink, and in two for Beam, whose windows are of milliseconds."""
_LEAST: Final = Duration(micros=1000)


def window_fn(window: Window | None) -> WindowFn:
    """Returns Beam's windows for those of the plan: later by their delay. None: the global window."""
    if window is None:
        return GlobalWindows()
    if window.has_own_bounds:
        return FixedWindows(_LEAST)
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


def bounds_at(window: Window, at_us: int) -> list[tuple[int, int]]:
    """Returns start and end of the windows that hold a time of their clock, but for sessions."""
    if window.kind == "CUMULATE":
        start = start_of(window, at_us)
        ends = range(start + window.slide_us, start + window.size_us + 1, window.slide_us)
        return [(start, end) for end in ends if end > at_us]
    first = at_us - (at_us - window.offset_us) % window.slide_us
    starts = range(first, at_us - window.size_us, -window.slide_us)
    return [(start, start + window.size_us) for start in starts]


def last_us(window: Window, end_us: int) -> int:
    """Returns the last millisecond of a window that ends at a time of its clock, in microseconds since 1970."""
    return last_instant_in(window.local_zone or UTC, end_us)


def by_clock(window: Window, at_us: int) -> int:
    """Returns a time by the clock that the windows follow, also in the year 0 or 10000, which has no text."""
    near_us = min(max(at_us, FIRST_US + DAY_US), LAST_US - DAY_US)  # no zone is a day from UTC
    return local_in(window.local_zone or UTC, near_us) + at_us - near_us


def start_of(window: Window, at_us: int) -> int:
    """Returns where the window of whole size begins that holds a time."""
    return at_us - (at_us - window.offset_us) % window.size_us
