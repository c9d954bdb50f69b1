"""How a reader reaches its broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from rmqio.client.connections.connection import Connection
from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.routes import Routes
from rmqio.model import MessageQueue

_REST_S: Final = 30.0
"""The time after a replica's failure in which it is not read even if its master suggests it."""


class Link(Protocol):
    """A reader's connection to its broker. Nothing here blocks."""

    is_replica: bool
    """Whether the connection returned last leads to a replica."""

    def connection(self) -> Connection:
        """Return the connection to the queue's broker by the held route. Raises `TransportError` without one."""
        ...

    def refresh(self) -> None:
        """Begin or continue to refresh the route."""
        ...

    def suggest(self, broker_id: int) -> None:
        """Set the broker for the next pulls, as suggested by the last answer: 0 is the master."""
        ...

    def distrust(self) -> bool:
        """Return to the master because the suggested broker failed. False: none was suggested, so nothing changed."""
        ...


class RouteLink:
    """Follows a client's routes over the connections of its pool.

    A master that would have to read old messages from disk suggests a replica, as in Java's clients
    (PullAPIWrapper.java). While the route has no master, a replica is read whatever is suggested.
    """

    def __init__(
        self,
        queue: MessageQueue,
        pool: ConnectionPool,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._pool, self._routes, self._clock = queue, pool, routes, clock
        self.is_replica = False
        self._wanted_id = 0
        self._rests_until = float("-inf")

    def connection(self) -> Connection:
        address, broker_id = self._routes.held_broker(*self._queue, wanted_id=self._wanted_id)
        self.is_replica = broker_id != 0
        if self.is_replica:
            self._routes.refresh_if_old(self._queue.topic)  # its master may be back, and no failure would reveal it
        return self._pool.connection(address)

    def suggest(self, broker_id: int) -> None:
        if broker_id == 0 or self._clock() >= self._rests_until:
            self._wanted_id = broker_id

    def distrust(self) -> bool:
        if self._wanted_id == 0:
            return False
        self._wanted_id = 0
        self._rests_until = self._clock() + _REST_S
        return True

    def refresh(self) -> None:
        self._routes.refresh_soon(self._queue.topic)
