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
