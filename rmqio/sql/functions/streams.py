"""Functions that have no name for a script: what the order of arrival is computed by."""

from __future__ import annotations

import time

from rmqio.sql.functions.registry import define

_last_ns = 0


def arrival() -> int:
    """Returns the nanoseconds of now, more than ever before in this process."""
    global _last_ns
    _last_ns = max(_last_ns + 1, time.time_ns())
    return _last_ns


define("TIME OF ARRIVAL", "-> l", arrival, is_pure=False)
define("OFFSET OF MESSAGE", "-> l", inline="getattr(record, 'queue_offset', 0)")  # rows of Python have none
