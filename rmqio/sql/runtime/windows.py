"""Time in Beam: windows of SQL, the triggers that give the rows of groups, and the time to live of state."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, Final

from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.planning.plan import Emit, Window
from rmqio.sql.rows import key_bytes, pack_group
from rmqio.sql.values import DAY_US, FIRST_US, LAST_US, UTC, last_instant_in, local_in

# When Beam gives the row of a group: triggers for EMIT, and for groups without a window.

UPDATES_S: Final = 1
"""How often a group that changes is written again, in seconds."""


def of_groups() -> dict[str, Any]:
    """Returns the arguments of `WindowInto` for groups without a window, of an input without end."""
    return {
        "trigger": Repeatedly(AfterProcessingTime(UPDATES_S)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
    }


def of_windows(emit: Emit) -> dict[str, Any]:
    """Returns the arguments of `WindowInto` for windows whose rows are given several times."""
    return {
        "trigger": AfterWatermark(early=_after(emit.early_ms), late=_after(emit.late_ms)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
        "allowed_lateness": Duration(micros=emit.lateness_ms * 1000),
    }


def _after(delay_ms: int | None) -> Any:
    if delay_ms is None:
        return None
    return AfterProcessingTime(delay_ms // 1000) if delay_ms else AfterCount(1)


# The time to live of state: milliseconds of processing time, before what is kept.

_LAST: Final = struct.Struct(">q")
SIZE: Final = _LAST.size


def stamp() -> bytes:
    """Returns the time of now, as bytes."""
    return _LAST.pack(now_ms())


def now_ms() -> int:
    """Returns the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def due_ms(kept: bytes, ttl_ms: int) -> int:
    """Returns when state that begins with a stamp is over its time."""
    return int(_LAST.unpack_from(kept)[0]) + ttl_ms


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


# Groups of a batch, as elements: at the times of their windows.


def groups(values: list[Any], width: int, window: Window | None, earliest_us: int) -> Iterator[Any]:
    """Yields (bytes of the keys, payload) for each group of a batch, at the times of its windows.

    Args:
      values: pairs ((*keys, bucket), accumulators).
      width: the number of keys.
      window: the windows; None: there is no bucket.
      earliest_us: the batch's own time: no element may be older.
    """
    for group, accumulators in values:
        keys = group[:width]
        if window is not None and window.has_own_bounds:
            for bounds in bounds_at(window, group[width]):
                bounded = *keys, *bounds
                at = Timestamp(micros=last_us(window, bounds[1]) + window.delay_us)
                yield TimestampedValue((key_bytes(bounded), pack_group(bounded, accumulators)), at)
            continue
        element = key_bytes(keys), pack_group(keys, accumulators)
        if window is None:
            yield element
            continue
        for micros in times_of(window, group[width], earliest_us):
            yield TimestampedValue(element, Timestamp(micros=micros))
