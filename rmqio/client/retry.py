"""Bounded retries: driven by the errors' flags, with exponential backoff and full jitter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from rmqio.client.environment import Environment
from rmqio.errors import RmqioError
from rmqio.options import ClientOptions

_LOGGER = logging.getLogger("rmqio.client")
T = TypeVar("T")


def backoff_ms(attempt: int, options: ClientOptions, random: Callable[[], float]) -> float:
    """Return the pause before try `attempt` + 1 (from 0): a random part of an exponentially growing bound."""
    bound = min(options.retry_backoff_ms * 2.0 ** min(attempt, 30), options.retry_backoff_max_ms)
    return random() * bound


def call_with_retries(
    attempt: Callable[[], T],
    options: ClientOptions,
    environment: Environment,
    *,
    on_stale_route: Callable[[], None] | None = None,
    deadline_ms: float | None = None,
) -> T:
    """Return the result of `attempt`, retrying while its error is `retriable`.

    Retries at most `options.max_retries` times, and never later than `deadline_ms` after the first try. Then it raises
    the last error unchanged. `on_stale_route` is called before a retry when the error says that the route may be old.
    An error that is only that (a topic unknown to a broker) gets one retry with a new route.
    """
    begin = environment.clock()
    tries = 0
    while True:
        try:
            return attempt()
        except RmqioError as error:
            may_retry = error.retriable or (error.stale_route and on_stale_route is not None and tries == 0)
            if not may_retry or tries >= options.max_retries:
                raise
            pause_ms = backoff_ms(tries, options, environment.random)
            if deadline_ms is not None and (environment.clock() - begin) * 1000 + pause_ms >= deadline_ms:
                raise
            if error.stale_route and on_stale_route is not None:
                on_stale_route()
            tries += 1
            _LOGGER.debug("try %d of %d in %.0f ms after %s", tries, options.max_retries, pause_ms, error)
            environment.sleep(pause_ms / 1000)


# Tracks retries: consecutive failures, the time of the next try, and when to give up.


class RetryState:
    """The failures since the last success of one operation that is retried without blocking."""

    def __init__(self, options: ClientOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._since: float | None = None
        self._retry_at: float | None = None
        self.failures = 0
        """Consecutive failures."""
        self.retries = 0
        """Retries in all outages."""

    @property
    def is_pausing(self) -> bool:
        """Whether a retry is planned."""
        return self._retry_at is not None

    @property
    def pause_left_ms(self) -> float:
        """The time until the next try."""
        return 0.0 if self._retry_at is None else max((self._retry_at - self._environment.clock()) * 1000, 0.0)

    def fail(self, error: RmqioError) -> bool:
        """Record a failure; return whether it is worth a retry, which is then planned.

        Retries continue for `options.outage_timeout_ms` and at least `options.max_retries` times. After that, or after
        a final error, the state is reset, and the next failure begins a new outage.
        """
        now = self._environment.clock()
        if self._since is None:
            self._since = now
        self.failures += 1
        lasted_ms = (now - self._since) * 1000
        patient = self.failures <= self._options.max_retries or lasted_ms < self._options.outage_timeout_ms
        if not (error.retriable and patient):
            self.succeed()
            return False
        self.retries += 1
        self._retry_at = now + backoff_ms(self.failures - 1, self._options, self._environment.random) / 1000
        return True

    def try_now(self) -> None:
        """End the pause: it is over or no longer needed."""
        self._retry_at = None

    def succeed(self) -> None:
        """Reset the failures after a success."""
        self.failures = 0
        self._since = None
