"""The start and the stop of a read: the strategies, and their resolution for many queues at once (`lookups`)."""

from rmqio.start.strategies import (
    LateQueue,
    Reset,
    StartFrom,
    StartOffsetError,
    StopAt,
    check_named,
    clamp_offset,
    nearest_queue,
    to_timestamp_ms,
)

__all__ = [
    "LateQueue",
    "Reset",
    "StartFrom",
    "StartOffsetError",
    "StopAt",
    "check_named",
    "clamp_offset",
    "nearest_queue",
    "to_timestamp_ms",
]
