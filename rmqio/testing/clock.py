"""A clock that stands still until a test moves it."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The interface of a clock for rmqio, in seconds; the standard module `time` implements it."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class ManualClock:
    """A clock for tests: only `sleep` and `advance` move it, and they do so at once. Thread-safe.

    Args:
      start: the initial Unix time in seconds.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._lock = threading.RLock()
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.sleeps: list[float] = []
        """Every duration passed to `sleep`, in order."""

    def __repr__(self) -> str:
        return f"<ManualClock {self._elapsed:g} s after {self._start:g}>"

    def time(self) -> float:
        """Return seconds since the Unix epoch."""
        return self._start + self._elapsed

    def time_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return round(self.time() * 1000)

    def monotonic(self) -> float:
        """Return seconds since this clock was created."""
        return self._elapsed

    def sleep(self, seconds: float, /) -> None:
        """Advance the clock at once."""
        self.sleeps.append(seconds)
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the callbacks of `call_later` that become due, each at its time."""
        with self._lock:
            end = self._elapsed + seconds
            while self._calls and self._calls[0][0] <= end:
                moment, _, callback = heapq.heappop(self._calls)
                self._elapsed = max(self._elapsed, moment)
                callback()
            self._elapsed = max(self._elapsed, end)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Run a callback after this time, in the thread that moves the clock."""
        with self._lock:
            heapq.heappush(self._calls, (self._elapsed + seconds, next(self._numbers), callback))


def is_real(clock: Clock) -> bool:
    """Return whether waiting on a condition variable follows this clock."""
    return clock is time
