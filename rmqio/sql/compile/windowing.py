"""A row becomes one row per window that it is in, as code."""

from __future__ import annotations

from contextlib import ExitStack

from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.planning.plan import Window
from rmqio.sql.values import ValueFailure


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
    start, end, last = out.name("ws"), out.name("we"), out.name("wt")
    size, slide = window.size_us, window.slide_us
    piece = out.name("p")  # the piece of time that the row is in: windows begin and end where pieces do
    out.line(f"{piece} = {time} - ({time} - {window.offset_us}) % {slide}")
    match window.kind:
        case "HOP":
            loops.enter_context(out.block(f"for {start} in range({piece} - {size - slide}, {piece} + 1, {slide}):"))
            out.line(f"{end} = {start} + {size}")
        case "CUMULATE":
            out.line(f"{start} = {time} - ({time} - {window.offset_us}) % {size}")
            loops.enter_context(out.block(f"for {end} in range({piece} + {slide}, {start} + {size} + 1, {slide}):"))
        case _:
            out.line(f"{start}, {end} = {piece}, {piece} + {size}")
    out.line(f"{last} = {end} - 1000")
    return [*columns, start, end, last]


def no_time() -> None:
    """Raises `ValueFailure`: a row without a time is in no window, has no partners in an interval, and is not first."""
    raise ValueFailure(
        "the time of the row is NULL: the statement has windows, a join in an interval of time, or FIRST_VALUE or "
        "LAST_VALUE"
    )
