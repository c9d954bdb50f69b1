"""A clock that stands still until a test moves it."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What rmqio asks of a clock, in seconds; the standard module `time` is one."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class ManualClock:
    """A clock for tests: `sleep` and `advance` move it at once, and nothing else does. Thread-safe.

    Args:
      start: the Unix time in seconds that it shows first.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._lock = threading.RLock()
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.sleeps: list[float] = []
        """Every duration that `sleep` was asked for, in order."""

    def __repr__(self) -> str:
        return f"<ManualClock {self._elapsed:g} s after {self._start:g}>"

    def time(self) -> float:
        """Seconds since the Unix epoch."""
        return self._start + self._elapsed

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return round(self.time() * 1000)

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._elapsed

    def sleep(self, seconds: float, /) -> None:
        """Advance by that much, at once."""
        self.sleeps.append(seconds)
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Move on, and run what `call_later` planned for the time that passes, each at its moment."""
        with self._lock:
            end = self._elapsed + seconds
            while self._calls and self._calls[0][0] <= end:
                moment, _, callback = heapq.heappop(self._calls)
                self._elapsed = max(self._elapsed, moment)
                callback()
            self._elapsed = max(self._elapsed, end)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Run a callback, in the thread that moves the clock, when that much time has passed."""
        with self._lock:
            heapq.heappush(self._calls, (self._elapsed + seconds, next(self._numbers), callback))


def is_real(clock: Clock) -> bool:
    """Whether waiting on a condition variable waits by this clock."""
    return clock is time
