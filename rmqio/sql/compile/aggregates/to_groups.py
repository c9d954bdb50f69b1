"""Rows of a fragment that become partial aggregates: of each batch, one for each group and piece of time."""

from __future__ import annotations

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.compile.aggregates.aggregation import accumulator, emit_groups, emit_ones
from rmqio.sql.compile.description import ToGroups
from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.compile.windowing import local_time, no_time
from rmqio.sql.planning.plan import BY_TIME


def require_time(target: ToGroups, columns: list[str], out: Emitter) -> None:
    """Adds the test that a row has the time that its window, FIRST_VALUE or LAST_VALUE needs."""
    if target.window is not None and target.fields[target.window.time].type.is_nullable:
        out.constants["no_time"] = no_time
        out.line(f"if {columns[target.window.time]} is None: no_time()")
    for each in target.calls:
        if each.name in BY_TIME and each.argument is not None:
            out.constants["no_time"] = no_time
            row = columns[each.argument]
            out.line(f"if {row} is not None and {row}[1] is None: no_time()")


def _calls(target: ToGroups, columns: list[str]) -> list[tuple[Accumulator, str, str]]:
    return [
        (
            accumulator(each, None if each.argument is None else target.fields[each.argument].type),
            "" if each.argument is None else columns[each.argument],
            "" if each.condition is None else columns[each.condition],
        )
        for each in target.calls
    ]


def ones_of(target: ToGroups, columns: list[str], on_error: str, out: Emitter) -> list[str]:
    """Returns what `emit_ones` gives, if a row that fails can be left out; else nothing: it fails the job anyway."""
    if on_error == "fail":
        return [""] * len(target.calls)
    return emit_ones(_calls(target, columns), out)


def to_groups(target: ToGroups, columns: list[str], ones: list[str], out: Emitter) -> None:
    """Adds a row to its group. `ones`: what `ones_of` gave for it."""
    bucket = ""
    window = target.window
    if window is not None:
        time = columns[window.time]
        if window.has_own_bounds:
            time = local_time(window, time, out)
        bucket = out.name("b")
        out.line(
            f"{bucket} = {time}"
            if window.kind == "SESSION"
            else f"{bucket} = {time} - ({time} - {window.offset_us}) % {window.slide_us}"
            if window.offset_us
            else f"{bucket} = {time} - {time} % {window.slide_us}"
        )
    keys = [(columns[each], target.fields[each].type) for each in target.keys]
    emit_groups(keys, bucket, _calls(target, columns), ones, out)
