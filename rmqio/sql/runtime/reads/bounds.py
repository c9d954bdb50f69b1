"""Decides where a read begins and ends, by the table, by the job, and by what WHERE implies."""

from __future__ import annotations

from rmqio.sql.catalog.options import TableOptions
from rmqio.sql.planning.pushdown import Pushed
from rmqio.start import StartFrom, StopAt


def bounds(
    options: TableOptions, start: StartFrom | None, stop: StopAt | None, pushed: Pushed, resumed_ms: int | None = None
) -> tuple[StartFrom, StopAt | None]:
    """Returns the start and the stop of a table's read.

    A bound of WHERE moves a start by time, or at the earliest message; offsets of a group say more than a time. It
    moves a stop only if there is one and the time has passed: no statement ends by its WHERE.

    Args:
      options: of the table, which come first.
      start, stop: of the job.
      pushed: what the statements imply.
      resumed_ms: when the job was started first, if it goes on from the offsets of the group.
    """
    begins = options.start or start
    if begins is None:
        begins = StartFrom.group_offsets("latest") if options.group else StartFrom.latest()
    if options.start is None and begins.needs_group and not options.group:
        begins = StartFrom.earliest()  # as a SELECT of the shell
    if resumed_ms is not None and options.group:
        begins = begins.resumed(resumed_ms)
    ends = StopAt.timestamp(options.end_ms) if options.end_ms is not None else stop
    low, high = pushed.start_ms, pushed.stop_ms
    if low is not None and high is not None and low >= high:
        return begins, ends
    later = begins
    if low is not None and low > 0 and begins.kind == "earliest":
        later = StartFrom.timestamp(low)
    elif low is not None and begins.kind == "timestamp":
        later = StartFrom.timestamp(max(begins.timestamp_ms, low))
    earlier = ends
    if high is not None and ends is not None and high > 0:
        if ends.kind == "latest":
            earlier = StopAt.timestamp(high)
        elif ends.kind == "timestamp":
            earlier = StopAt.timestamp(min(ends.timestamp_ms, high))
    is_empty = later.kind == "timestamp" and earlier is not None and earlier.kind == "timestamp"
    if is_empty and earlier is not None and later.timestamp_ms >= earlier.timestamp_ms:
        return begins, ends  # a read must not end before it begins
    return later, earlier
