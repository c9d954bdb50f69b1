"""Functions that have no name for a script: what windows and the order of arrival are computed by."""

from __future__ import annotations

import time

from rmqio.sql.functions.registry import define

_last_ns = 0


def arrival() -> int:
    """Returns the nanoseconds of now, more than ever before in this process."""
    global _last_ns
    _last_ns = max(_last_ns + 1, time.time_ns())
    return _last_ns


def edge(at_us: int, unit_us: int, offset_us: int, more_us: int) -> int:
    """Returns the start of the unit of time that holds a time, and what is added to it."""
    return at_us - (at_us - offset_us) % unit_us + more_us


define("TIME OF ARRIVAL", "-> l", arrival, is_pure=False)
define("OFFSET OF MESSAGE", "-> l", inline="getattr(record, 'queue_offset', 0)")  # rows of Python have none
define("EDGE OF WINDOW", "ts l l l -> ts", edge)
