"""How long to keep trying: failures in a row, the time of the next try, and when to give up."""

from __future__ import annotations

from rmqio.client.environment import Environment
from rmqio.client.retry import backoff_ms
from rmqio.errors import RmqioError
from rmqio.options import ClientOptions


class RetryState:
    """What has gone wrong since the last success, of one thing that is tried again and again without blocking."""

    def __init__(self, options: ClientOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._since: float | None = None
        self._retry_at: float | None = None
        self.failures = 0
        """In a row."""
        self.retries = 0
        """Of all outages."""

    @property
    def is_pausing(self) -> bool:
        """Whether a next try is planned."""
        return self._retry_at is not None

    @property
    def pause_left_ms(self) -> float:
        """Until the next try."""
        return 0.0 if self._retry_at is None else max((self._retry_at - self._environment.clock()) * 1000, 0.0)

    def fail(self, error: RmqioError) -> bool:
        """Note a failure; whether it is worth another try, which is then planned.

        Tries go on for `options.outage_timeout_ms` and at least `options.max_retries` times. When that is over, or the
        error is final, the account is closed and the next failure begins a new one.
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
        """The pause is over or moot."""
        self._retry_at = None

    def succeed(self) -> None:
        """It works (again)."""
        self.failures = 0
        self._since = None
