"""Plots over time as inline SVG: bars by window, with what is wrong on a scale of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, NamedTuple

_WIDTH: Final = 960
_LEFT: Final = 64
_RIGHT: Final = 8
_HEIGHT: Final = 110
_GAP: Final = 34
_MOST_BARS: Final = 240


class Series(NamedTuple):
    """A stacked part of the bars."""

    key: str
    title: str


class Panel(NamedTuple):
    """A plot of its own scale."""

    title: str
    series: Sequence[Series]
    text: Callable[[float], str]


def svg(
    windows: Sequence[dict[str, Any]], window_ms: int, panels: Sequence[Panel], time_text: Callable[[int], str]
) -> str:
    """Return panels above each other with one axis of time. A colour is that of the class `s-KEY`."""
    bars = merged(windows, window_ms)
    if not bars:
        return ""
    begin, end = int(bars[0]["start_ms"]), int(bars[-1]["end_ms"])
    inner = _WIDTH - _LEFT - _RIGHT
    height = len(panels) * (_HEIGHT + _GAP) + 20

    def x(ms: float) -> float:
        return _LEFT + inner * (ms - begin) / float(end - begin)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="messages by window of store time">']
    for number, panel in enumerate(panels):
        top = number * (_HEIGHT + _GAP) + 22
        bottom = top + _HEIGHT
        most = max(sum(bar.get(each.key, 0) for each in panel.series) for bar in bars) or 2
        most += most % 2  # the label of the half is a whole number
        parts.append(f'<text class="title" x="{_LEFT}" y="{top - 8}">{escape(panel.title)}</text>')
        if len(panel.series) > 1:
            for place, each in enumerate(panel.series):
                left = _WIDTH - _RIGHT - 120 * (len(panel.series) - place)
                parts.append(f'<rect class="s-{each.key}" x="{left}" y="{top - 17}" width="10" height="10"/>')
                parts.append(f'<text x="{left + 15}" y="{top - 8}">{escape(each.title)}</text>')
        for share in (0, 0.5, 1):
            y = bottom - _HEIGHT * share
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(panel.text(most * share))}</text>'
            )
        for bar in bars:
            begins, ends = x(bar["start_ms"]), x(bar["end_ms"])
            width = max(ends - begins - (1 if ends - begins > 4 else 0), 0.8)
            at = float(bottom)
            for each in panel.series:
                value = bar.get(each.key, 0)
                if not value:
                    continue
                size = max(_HEIGHT * value / most, 1.0)
                at -= size
                told = f"{time_text(bar['start_ms'])}: {each.title} {panel.text(value)}"
                parts.append(
                    f'<rect class="s-{each.key}" x="{begins:.1f}" y="{at:.1f}" width="{width:.1f}" height="{size:.1f}">'
                    f"<title>{escape(told)}</title></rect>"
                )
    bottom = height - 8
    for at, anchor in ((begin, "start"), ((begin + end) // 2, "middle"), (end, "end")):
        parts.append(f'<text x="{x(at):.1f}" y="{bottom}" text-anchor="{anchor}">{escape(time_text(at))}</text>')
    return "".join([*parts, "</svg>"])


def merged(windows: Sequence[dict[str, Any]], window_ms: int) -> list[dict[str, Any]]:
    """Return at most as many windows as can be told apart: longer ones, whose counts are the sums."""
    if not windows:
        return []
    begin, end = windows[0]["start_ms"], windows[-1]["start_ms"] + window_ms
    length = -(-(end - begin) // window_ms // _MOST_BARS) * window_ms or window_ms
    length = max(length, window_ms)
    found: dict[int, dict[str, Any]] = {}
    for window in windows:
        start = begin + (window["start_ms"] - begin) // length * length
        bar = found.setdefault(start, {"start_ms": start, "end_ms": start + length})
        for key, value in window.items():
            if key == "start_ms":
                continue
            is_delay = key.endswith("_delay_ms")
            bar[key] = max(bar.get(key, 0), value) if is_delay else bar.get(key, 0) + value
    return [found[start] for start in sorted(found)]
