"""Spaces the sends to a broker that answers that it is busy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmqio.errors import FlowControl, RmqioError, SystemBusy
from rmqio.interfaces import SendStatistics

FIRST_GAP_S: Final = 0.02
MOST_GAP_S: Final = 2.0
LONGEST_WAIT_S: Final = 5.0
_LEAST_GAP_S: Final = 0.001
_RECOVERY: Final = 0.7


def is_busy(error: RmqioError) -> bool:
    """Return whether the broker refused a request because of its load. It has stored nothing of it."""
    return isinstance(error, (SystemBusy, FlowControl))


@dataclass(slots=True)
class _Pace:
    gap_s: float
    next_at: float
    grown_at: float


class Throttle:
    """The time between two sends to each broker: none, until one is busy. Thread-safe, also in a forked child.

    Each busy answer doubles the gap, from 20 ms to 2 s; each send that is stored cuts it by 30 %. Answers to requests
    that were in flight together count once.

    Args:
      statistics: of the producer, to which the waits are added.
      clock: monotonic seconds.
      sleep: waits for seconds.
    """

    def __init__(self, statistics: SendStatistics, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._statistics = statistics
        self._clock = clock
        self._sleep = sleep
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._paces: dict[str, _Pace] = {}

    def before(self, broker: str) -> None:
        """Wait until the next send to the broker may start. Costs one look-up while no broker is busy."""
        if not self._paces:
            return
        with self._locked():
            pace = self._paces.get(broker)
            if pace is None:
                return
            now = self._clock()
            start = min(max(now, pace.next_at), now + LONGEST_WAIT_S)
            pace.next_at = start + pace.gap_s
            self._statistics.throttled_ms += round((start - now) * 1000)
        if start > now:
            self._sleep(start - now)

    def wait_s(self, broker: str) -> float:
        """Return how long `before` would wait."""
        pace = self._paces.get(broker)
        return 0.0 if pace is None else min(max(pace.next_at - self._clock(), 0.0), LONGEST_WAIT_S)

    def busy(self, broker: str) -> None:
        """Note a busy answer."""
        with self._locked():
            now = self._clock()
            pace = self._paces.get(broker)
            if pace is None:
                self._paces[broker] = _Pace(FIRST_GAP_S, now + FIRST_GAP_S, now)
            elif now - pace.grown_at >= pace.gap_s / 2:
                pace.gap_s = min(pace.gap_s * 2, MOST_GAP_S)
                pace.next_at = max(pace.next_at, now + pace.gap_s)
                pace.grown_at = now

    def passed(self, broker: str) -> None:
        """Note a send that was stored."""
        if not self._paces:
            return
        with self._locked():
            pace = self._paces.get(broker)
            if pace is not None:
                pace.gap_s *= _RECOVERY
                if pace.gap_s < _LEAST_GAP_S:
                    del self._paces[broker]

    def gap_s(self, broker: str) -> float:
        """Return the time between two sends to the broker."""
        pace = self._paces.get(broker)
        return 0.0 if pace is None else pace.gap_s

    def _locked(self) -> threading.Lock:
        if self._pid != os.getpid():  # another thread of the parent may have held it at the fork
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock
