"""Rows of one side of a join meet those of the other one in windows of Beam, of one size.

Beam drops what comes when a window is over, counts it, and forgets the window's state. So the windows are the state's
bound. A row of an interval join is in the window of its own time, and in each that has rows of the other side within
the interval, by the side whose windows they are (`Route`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqio.sql.values import last_instant_in


@dataclass(frozen=True, slots=True)
class Route:
    """Windows that a row goes to: those that hold a time from `first_us` to `last_us` after its own.

    `prefix` stands before the key: what goes different ways does not meet.
    """

    prefix: bytes = b""
    first_us: int = 0
    last_us: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """By which time and into which windows rows go.

    Attributes:
      time: the position of the time column.
      size_us: the length of a window, in microseconds.
      origin_us: a time at which a window begins.
      shift_us: by how much Beam's windows are later: they are over when no more rows come for them.
      routes: the ways that a row goes.
      ends_in: the time column is the end of a window by the clock of this zone, and counts as its last millisecond.
    """

    time: int
    size_us: int
    origin_us: int
    shift_us: int
    routes: tuple[Route, ...]
    ends_in: str | None = None

    def places(self, time_us: int) -> Iterator[tuple[bytes, int]]:
        """Yields the prefix of the key, and the start of Beam's window, for each window that a row goes to."""
        size, origin = self.size_us, self.origin_us
        if self.ends_in is not None:
            time_us = last_instant_in(self.ends_in, time_us)
        for route in self.routes:
            first = (time_us + route.first_us - origin) // size
            last = (time_us + route.last_us - origin) // size
            for number in range(first, last + 1):
                yield route.prefix, number * size + origin + self.shift_us
