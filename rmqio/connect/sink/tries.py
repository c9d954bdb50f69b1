"""The waits between the tries of what a system that is away cannot do yet."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from rmqio.connect.sink.options import Retry
from rmqio.connect.sink.outage import Outage, outage_of
from rmqio.errors import RmqioError


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
