"""A row becomes one row per window that it is in, as code."""

from __future__ import annotations

from contextlib import ExitStack

from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.planning.plan import Window
from rmqio.sql.values import ValueFailure, last_instant_in, local_in


def windowed(window: Window, columns: list[str], is_nullable: bool, out: Emitter, loops: ExitStack) -> list[str]:
    """Writes code that goes through the windows of a row. Returns the columns with start, end and time after them.

    Args:
      columns: names of the row's values.
      is_nullable: whether the time can be NULL.
      loops: closes the loop, if there is one, when all that happens in it is written.
    """
    time = columns[window.time]
    if is_nullable:
        out.constants["no_time"] = no_time
        out.line(f"if {time} is None: no_time()")
    clock = local_time(window, time, out)
    start, end, last = out.name("ws"), out.name("we"), out.name("wt")
    size, slide = window.size_us, window.slide_us
    piece = out.name("p")  # the piece of time that the row is in: windows begin and end where pieces do
    out.line(f"{piece} = {clock} - ({clock} - {window.offset_us}) % {slide}")
    match window.kind:
        case "HOP":
            loops.enter_context(out.block(f"for {start} in range({piece} - {size - slide}, {piece} + 1, {slide}):"))
            out.line(f"{end} = {start} + {size}")
        case "CUMULATE":
            out.line(f"{start} = {clock} - ({clock} - {window.offset_us}) % {size}")
            loops.enter_context(out.block(f"for {end} in range({piece} + {slide}, {start} + {size} + 1, {slide}):"))
        case _:
            out.line(f"{start}, {end} = {piece}, {piece} + {size}")
    if window.local_zone is None:
        out.line(f"{last} = {end} - 1000")
    else:
        out.constants["last_instant_in"] = last_instant_in
        out.line(f"{last} = last_instant_in({window.local_zone!r}, {end})")
    return [*columns, start, end, last]


def local_time(window: Window, time: str, out: Emitter) -> str:
    """Returns the name of the time by the clock that windows follow. `time`: the name of the row's time."""
    if window.local_zone is None:
        return time
    found = out.name("lt")
    out.constants["local_in"] = local_in
    out.line(f"{found} = local_in({window.local_zone!r}, {time})")
    return found


def no_time() -> None:
    """Raises `ValueFailure`: a row without a time is in no window, has no partners in an interval, and is not first."""
    raise ValueFailure(
        "the time of the row is NULL: the statement has windows, a join in an interval of time, FIRST_VALUE or "
        "LAST_VALUE, or the first row by time"
    )
