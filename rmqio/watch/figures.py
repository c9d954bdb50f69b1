"""Figures over time: rates of offsets, and how numbers, bars and curves look in a few columns. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

WINDOW_S: Final = 10.0
"""Rates are means over this time: groups commit every few seconds, so a shorter time shows their steps."""
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class Offsets:
    """The positions of one end or one group in a queue over the last seconds.

    An offset that goes back (a reset, a recreated topic, a replica that is behind) begins a new series: a rate across
    it would say nothing.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()
        self.moved_at: float | None = None
        """When the offset was first seen at its present value; None while it has not moved since the first look."""

    @property
    def last(self) -> int | None:
        return self._seen[-1][1] if self._seen else None

    def add(self, at: float, offset: int) -> None:
        """Add what was seen at a time in seconds."""
        last = self.last
        if last is not None and offset != last:
            self.moved_at = at
            if offset < last:
                self._seen.clear()
        self._seen.append((at, offset))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window_s:
            self._seen.popleft()

    def rate(self, now: float) -> float | None:
        """Return the offsets per second in the window; None before the second look, and when nobody answers."""
        if len(self._seen) < 2 or now - self._seen[-1][0] > self._window_s:
            return None
        (begin, low), (end, high) = self._seen[0], self._seen[-1]
        return (high - low) / (end - begin) if end > begin else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def spark(values: Sequence[float | None], columns: int, highest: float | None = None) -> str:
    """Return a curve of the last values, aligned to the right; a gap is a space.

    More values than columns are combined: each column shows the greatest of its values, so that no peak is lost.
    """
    if columns <= 0:
        return ""
    step = max(1, math.ceil(len(values) / columns))
    # Steps are counted from the newest value, so that a step holds the same values at the next look.
    ends = range(len(values), 0, -step)
    shown = [_greatest(values[max(0, end - step) : end]) for end in ends][::-1]
    top = highest if highest is not None else max((value for value in shown if value is not None), default=0)
    return "".join(" " if value is None else _LEVELS[_level(value, top)] for value in shown).rjust(columns)


def _greatest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _level(value: float, top: float) -> int:
    if top <= 0 or value <= 0:
        return 0
    return max(1, min(len(_LEVELS) - 1, round(value / top * (len(_LEVELS) - 1))))


def bar(value: float | None, top: float, columns: int) -> str:
    """Return a bar whose length is the share of `top`, in eighths of a column. More than nothing is never empty."""
    if value is None or value <= 0 or top <= 0:
        return ""
    eighths = max(1, min(columns * 8, round(value / top * columns * 8)))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def short_count(number: float | None) -> str:
    """Format a count in at most six characters: 99,999, then 100k, 1.25M; None as a dash."""
    if number is None:
        return "-"
    if number < 99_999.5:
        return f"{number:,.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if number < size * 999.5:
            share = number / size
            digits = 0 if share >= 99.95 else 1 if share >= 9.995 else 2
            return f"{share:.{digits}f}{unit}"
    return f"{number / 1e12:.3g}T"


def short_rate(per_s: float | None) -> str:
    """Format a rate; a slow one keeps a digit after the point, so that it does not look like none."""
    if per_s is None:
        return "-"
    return f"{per_s:.1f}" if 0 < per_s < 9.95 else short_count(per_s)


def short_age(ms: float | None) -> str:
    """Format a duration in at most five characters; None as a dash, one that a wrong clock makes negative as 0s."""
    if ms is None:
        return "-"
    seconds = max(ms, 0) / 1000
    if seconds < 9.95:
        return f"{seconds:.1f}s" if seconds >= 0.05 else "0s"
    for unit, length, most in (("s", 1, 99.5), ("m", 60, 99.5), ("h", 3_600, 99.5)):
        if seconds / length < most:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86_400:,.0f}d"
