"""A system that is away: what the log says of it, and the waits between the tries."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from rmqio.connect.sink import Retry
from rmqio.errors import RmqioError

EVERY_S: Final = 30.0
_LOGGER: Final = logging.getLogger("rmqio.connect")


class Outage:
    """The outages of one system. Thread-safe. `clock` is for tests."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._logged: float | None = None
        """The time of the newest line, also of an earlier outage: a system that comes and goes floods no log."""
        self._told = False
        """Whether the log has a line about this outage."""
        self.limit_s: float | None = None
        """How long work is tried again, if the caller of `failed` does not know; None: until it succeeds."""

    @property
    def is_on(self) -> bool:
        """Whether the system is away."""
        return self._since is not None

    def failed(self, reason: object, left_s: float | None = None) -> None:
        """Notes a try that failed, and that is repeated for so long; None: see `limit_s`."""
        with self._lock:
            now = self._clock()
            if self._since is None:
                self._since, self._told = now, False
            if self._logged is not None and now - self._logged < EVERY_S:
                return
            again, away_s, self._logged, self._told = self._told, now - self._since, now, True
        if left_s is None and self.limit_s is not None:
            left_s = max(0.0, self.limit_s - away_s)
        rest = "until it answers" if left_s is None else f"for {left_s:.0f} s at most"
        text = " ".join(str(reason).split()) or type(reason).__name__
        already = f" for {away_s:.0f} s" if again else ""
        _LOGGER.warning("%s is away or busy%s; it is tried again %s: %s", self._name, already, rest, text)

    def passed(self) -> None:
        """Notes a success."""
        if self._since is None:  # without the lock: for each batch
            return
        with self._lock:
            since, told, self._since = self._since, self._told, None
            away_s = 0.0 if since is None else self._clock() - since
        if since is not None and told:
            _LOGGER.warning("%s is back after %.0f s", self._name, away_s)


_KNOWN: Final[dict[str, Outage]] = {}


def outage_of(name: str) -> Outage:
    """Returns the outages of a system in this process: its writers and readers share them, and so the lines."""
    return _KNOWN.setdefault(name, Outage(name))


# The waits between the tries of what a system that is away cannot do yet.


class Tries:
    """Counts the tries of one batch, or of one read, and waits between them. The log says so.

    `clock`, `sleep`, `spread` and `outage` are for tests.
    """

    def __init__(
        self,
        name: str,
        retry: Retry,
        gave_up: type[RmqioError],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        spread: Callable[[], float] = random.random,
        outage: Outage | None = None,
    ) -> None:
        self._name, self._retry, self._gave_up = name, retry, gave_up
        self._clock, self._sleep, self._spread = clock, sleep, spread
        self._outage = outage or outage_of(name)
        self._outage.limit_s = retry.give_up_after_s
        self._began = clock()
        self._tries = 0

    def wait(self, error: Exception) -> None:
        """Waits for the next try. Raises `gave_up` if there is none."""
        retry = self._retry
        self._tries += 1
        waited = self._clock() - self._began
        pause = min(retry.first_wait_s * 2 ** min(self._tries - 1, 60), retry.max_wait_s) * (0.5 + self._spread() / 2)
        if waited + pause > retry.give_up_after_s:
            text = f"{self._name}: gave up after {self._tries} tries in {waited:.0f} s: {error}"
            raise self._gave_up(text) from error
        self._outage.failed(error, retry.give_up_after_s - waited)
        self._sleep(pause)

    def passed(self) -> None:
        """Says that the system has done the work."""
        self._outage.passed()

    @property
    def has_waited(self) -> bool:
        """Whether a try has failed."""
        return self._tries > 0
