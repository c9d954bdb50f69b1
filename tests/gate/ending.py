"""Signals that end a run, as an exception in the main thread. It imports nothing that has to be installed."""

from __future__ import annotations

import signal
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ended(Exception):
    """Raised by a signal. `number`: of the signal. `status`: the exit status that a shell expects."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.status = 128 + number


def heed_signals() -> None:
    """From now on, the first signal raises `Ended`, also one that has come while they were blocked.

    A shell starts what runs in the background with SIGINT ignored, which says nothing about whoever sends one. nohup
    ignores SIGHUP, which says that the run outlives its terminal: so does this, and what it starts.
    """
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def heed_no_signals() -> None:
    """At the end: a signal has nothing to end that is not ended anyway."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def _end(number: int, frame: object) -> None:
    heed_no_signals()
    raise Ended(number)
