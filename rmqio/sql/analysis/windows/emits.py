"""EMIT of a SELECT: when a window gives its row besides at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NoReturn

from rmqio.sql.analysis.values import intervals
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant
from rmqio.sql.planning.plan import SAME_WINDOW, Emit, Window
from rmqio.sql.scripts.emitting import LATENESS, EmitSettings
from rmqio.sql.syntax import nodes

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
    bound = intervals.interval(emit.interval)
    if not isinstance(bound, Constant) or bound.type.kind != "INTERVAL_DAY":
        _refuse("the delay must be in days, hours, minutes or seconds", emit.interval.span)
    return int(bound.value) // 1000


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
