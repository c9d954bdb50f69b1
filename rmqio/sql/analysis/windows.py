"""Windows: TUMBLE, HOP, CUMULATE and SESSION, in FROM and in GROUP BY, and EMIT: when they give their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import calls
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.catalog.settings import LATENESS, EmitSettings
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import Constant, Expr, InputRef, is_processing_time
from rmqio.sql.planning.plan import SAME_WINDOW, Emit, Relation, Window, Windowed
from rmqio.sql.syntax import nodes
from rmqio.sql.values import session_zone

# EMIT of a SELECT: when a window gives its row besides at its end.

CHANGES_MS: Final = 1000
"""How often EMIT CHANGES gives the row of a window that changes, at most."""


def emit_of(select: nodes.Select, window: Window | None, settings: EmitSettings) -> Emit | None:
    """Returns when the rows of a GROUP BY are given; None: at the end of the window only, or it has none.

    Raises `Refusal` if EMIT and the window do not fit.
    """
    kinds = {each.kind for each in select.emit}
    if window is None:
        for each in select.emit:
            if each.kind != "changes":
                _refuse("EMIT needs a window, but this GROUP BY has none", each.span)
        return None
    if kinds & {"changes", "on_close"} and len(select.emit) > 1:
        _refuse("EMIT CHANGES and EMIT ON WINDOW CLOSE cannot be combined with other EMIT clauses", select.emit[1].span)
    if kinds == {"on_close"}:
        return None
    found, span = _asked(select, settings)
    if found is None or (found.early_ms is None and found.late_ms is None):
        return None
    if window.is_processing:
        if select.emit:
            _refuse(
                "windows of processing time emit at their ends, by the clock: EMIT cannot be used with them",
                span,
            )
        return None
    if window.kind == SAME_WINDOW:
        if select.emit:
            _refuse("these rows come from a window that has ended: write EMIT at the first window", span)
        return None
    if window.kind == "SESSION":
        _refuse(
            "a session can grow, so earlier rows would be those of other sessions: use EMIT ON WINDOW CLOSE",
            span,
        )
    if found.late_ms is not None and not found.lateness_ms:
        _refuse(
            f"rows after the watermark are dropped, unless SET '{LATENESS}' = '1 min' says how long they count", span
        )
    return replace(found, early_ms=_whole_seconds(found.early_ms), late_ms=_whole_seconds(found.late_ms))


def _whole_seconds(delay_ms: int | None) -> int | None:
    """Beam's triggers count seconds: a delay is not shorter than asked for."""
    return None if delay_ms is None else -(-delay_ms // 1000) * 1000


def _asked(select: nodes.Select, settings: EmitSettings) -> tuple[Emit | None, Span]:
    if not select.emit:
        early = (settings.early_ms or 0) if settings.early_enabled else None
        late = (settings.late_ms or 0) if settings.late_enabled else None
        if late is None and settings.lateness_ms:
            late = 0
        return Emit(early, late, settings.lateness_ms), select.span
    late = 0 if settings.lateness_ms else None
    if select.emit[0].kind == "changes":
        return Emit(CHANGES_MS, late, settings.lateness_ms), select.emit[0].span
    phases: dict[str | None, int] = {}
    for each in select.emit:
        if each.phase in phases:
            _refuse(f"EMIT has two clauses for the time {each.phase} the watermark", each.span)
        phases[each.phase] = _delay_ms(each)
    return Emit(phases.get("BEFORE"), phases.get("AFTER", late), settings.lateness_ms), select.emit[-1].span


def _delay_ms(emit: nodes.Emit) -> int:
    if emit.interval is None:
        return 0
    bound = calls.interval(emit.interval)
    if not isinstance(bound, Constant) or bound.type.kind != "INTERVAL_DAY":
        _refuse("the delay must be in days, hours, minutes or seconds", emit.interval.span)
    return int(bound.value) // 1000


PROCESSING: Final = -1
"""The position of the time of a window that is PROCTIME() itself: it is not a column."""
WINDOW_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_MOST_WINDOWS: Final = 100_000
"""Of a row, which becomes a row for each."""
_MILLISECOND_US: Final = 1000
_USAGE: Final = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(time), size [, offset])",
    "HOP": "HOP(TABLE t, DESCRIPTOR(time), slide, size [, offset])",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(time), step, size [, offset])",
    "SESSION": "SESSION(TABLE t PARTITION BY key, DESCRIPTOR(time), gap)",
}
_NAMED: Final = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


def table_window(call: nodes.Call, relation: Relation) -> Window:
    """Returns the window of a function of FROM, whose table is the relation. Raises `Refusal`."""
    name = call.name.text.upper()
    arguments = _by_name(call, name)
    described = arguments.get("TIMECOL")
    if (
        not isinstance(described, nodes.Call)
        or described.name.text.upper() != "DESCRIPTOR"
        or len(described.arguments) != 1
        or not isinstance(described.arguments[0], nodes.Column)
    ):
        _refuse(f"the time column is written as DESCRIPTOR(column): {_USAGE[name]}", (described or call).span)
    column = described.arguments[0].name
    names = [each.name for each in relation.fields]
    if column.text not in names:
        _refuse(f"there is no column {column}{nearest(column.text, names)}", column.span)
    time = _time_column(relation, names.index(column.text), column.span)
    intervals = [_interval(arguments, each, call) for each in _NAMED[name][2:] if each != "OFFSET"]
    offset = _interval(arguments, "OFFSET", call) if "OFFSET" in arguments else 0
    return _window(name, relation, time, intervals, offset, call)


def partition_of(data: nodes.TableArgument, relation: Relation, name: str) -> tuple[int, ...]:
    """Returns the positions of the columns of PARTITION BY, which only SESSION has. Raises `Refusal`."""
    if data.partition and name != "SESSION":
        _refuse(f"PARTITION BY belongs to SESSION: in {name}, all rows have the same windows", data.span)
    names = [each.name for each in relation.fields]
    for each in data.partition:
        if each.text not in names:
            _refuse(f"there is no column {each}{nearest(each.text, names)}", each.span)
    return tuple(names.index(each.text) for each in data.partition)


def refuse_rows(relation: Relation, span: Span) -> None:
    """Raises `Refusal` for rows with their windows if they are in none before an aggregate."""
    if not isinstance(relation, Windowed):
        return
    if relation.window.is_processing:
        _refuse("rows of windows of processing time need GROUP BY window_start, window_end", span)
    if relation.window.kind == "SESSION":
        keys = "".join(f", {relation.fields[each].name}" for each in relation.partition)
        _refuse(f"rows of SESSION need GROUP BY window_start, window_end{keys}", span)


def refuse_use(select: nodes.Select, window: Window, settings: EmitSettings, span: Span) -> None:
    """Raises `Refusal` if rows cannot have the columns of their window before they are grouped by it."""
    instead = "take them in WHERE of a query over this one"
    if window.is_processing or window.kind == "SESSION":
        which = "processing time" if window.is_processing else "SESSION"
        _refuse(f"the columns of a window of {which} are known behind the aggregate only: {instead}", span)
    if emit_of(select, window, settings) is not None:
        _refuse(
            f"with EMIT and table.exec.emit, columns of the window cannot be in WHERE or in aggregates: {instead}", span
        )


def group_window(call: nodes.Call, binder: ExpressionBinder, relation: Relation) -> Window:
    """Returns the window of a function of GROUP BY. Raises `Refusal`."""
    name = call.name.text.upper()
    count = 2 if name in ("TUMBLE", "SESSION") else 3
    if len(call.arguments) not in (count, count + (name != "SESSION")):
        _refuse(f"{name} in GROUP BY takes the time and {count - 1} interval{'s' * (count > 2)}", call.span)
    time = binder.bind(call.arguments[0])
    if is_processing_time(time):
        intervals = [_microseconds(binder.bind(each), each) for each in call.arguments[1:]]
        offset = intervals.pop() if len(intervals) == count else 0
        window = _window(name, None, PROCESSING, intervals, offset, call)
        return replace(window, is_processing=True, zone=session_zone())
    if not isinstance(time, InputRef):
        _refuse("the time of a window must be a column: the one of WATERMARK FOR", call.arguments[0].span)
    position = _time_column(relation, time.index, call.arguments[0].span)
    intervals = [_microseconds(binder.bind(each), each) for each in call.arguments[1:]]
    offset = intervals.pop() if len(intervals) == count else 0
    return _window(name, relation, position, intervals, offset, call)


def _by_name(call: nodes.Call, name: str) -> dict[str, nodes.Expression]:
    known = _NAMED[name]
    found: dict[str, nodes.Expression] = {}
    for position, each in enumerate(call.arguments):
        if isinstance(each, nodes.NamedArgument):
            key, value = each.name.text.upper(), each.value
            if key not in known:
                _refuse(f"{name} has no argument {each.name}{nearest(key, known)}", each.span)
        elif position < len(known):
            key, value = known[position], each
        else:
            _refuse(f"{name} takes {len(known)} arguments: {_USAGE[name]}", each.span)
        if key in found:
            _refuse(f"{name} has {key} twice", each.span)
        found[key] = value
    return found


def _interval(arguments: dict[str, nodes.Expression], key: str, call: nodes.Call) -> int:
    if key not in arguments:
        _refuse(f"{key} is missing: {_USAGE[call.name.text.upper()]}", call.span)
    from rmqio.sql.analysis.scope import Scope

    node = arguments[key]
    return _microseconds(ExpressionBinder(Scope(())).bind(node), node, can_be_any=key == "OFFSET")


def _microseconds(bound: Expr, node: nodes.Node, *, can_be_any: bool = False) -> int:
    if not isinstance(bound, Constant) or bound.type.kind != "INTERVAL_DAY":
        _refuse("this must be an INTERVAL of days, hours, minutes or seconds", node.span)
    # Windows have whole milliseconds, as in Flink, and as their starts and ends show: the rest is cut off.
    whole_us = abs(bound.value) // _MILLISECOND_US * _MILLISECOND_US
    if (bound.value <= 0 or not whole_us) and not can_be_any:
        _refuse("the interval must be longer than zero, in whole milliseconds", node.span)
    return int(whole_us if bound.value > 0 else -whole_us)


def _time_column(relation: Relation, position: int, span: Span) -> int:
    field = relation.fields[position]
    if field.type.kind not in types.TIMESTAMPS:
        _refuse(f"the time of a window must be a TIMESTAMP, but {field.name} is {field.type.text}", span)
    if not field.is_time and not field.is_processing:
        _refuse(
            f"no watermark follows {field.name}: CREATE TABLE needs WATERMARK FOR {field.name} AS {field.name} - "
            "INTERVAL '5' SECOND, or the column is one AS PROCTIME(), and it must come here unchanged",
            span,
        )
    return position


def _window(
    name: str, relation: Relation | None, time: int, intervals: list[int], offset: int, call: nodes.Call
) -> Window:
    is_processing = relation is not None and relation.fields[time].is_processing
    is_instant = relation is not None and relation.fields[time].type.kind == "TIMESTAMP_LTZ"
    zone = session_zone() if is_instant else None
    if name in ("TUMBLE", "SESSION"):
        (size,) = intervals
        return Window(name, time, size, size, offset, is_processing=is_processing, zone=zone)
    slide, size = intervals
    what = "slide" if name == "HOP" else "step"
    if size % slide:
        _refuse(f"{name}: the size must be a multiple of the {what}", call.span)
    if (count := size // slide) > _MOST_WINDOWS:
        limit = f"at most {_MOST_WINDOWS:,} are allowed: take a longer {what} or a shorter size"
        _refuse(
            f"{name}: a row would be in {'' if name == 'HOP' else 'up to '}{count:,} windows, and {limit}", call.span
        )
    return Window(name, time, size, slide, offset, is_processing=is_processing, zone=zone)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
