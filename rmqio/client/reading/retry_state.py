"""Tracks retries: consecutive failures, the time of the next try, and when to give up."""

from __future__ import annotations

from rmqio.client.environment import Environment
from rmqio.client.retry import backoff_ms
from rmqio.errors import RmqioError
from rmqio.options import ClientOptions


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
