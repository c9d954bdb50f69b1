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
"""So long a replica is not read although its master says so, after it did not do."""


class Link(Protocol):
    """A reader's way to its broker. Nothing here blocks."""

    is_replica: bool
    """Whether the connection that was given last leads to a replica."""

    def connection(self) -> Connection:
        """The connection to the queue's broker by the route that we hold. Raises `TransportError` without one."""
        ...

    def refresh(self) -> None:
        """Begin or go on with looking the route up again."""
        ...

    def suggest(self, broker_id: int) -> None:
        """Where the next pulls are to go, as the answer to the last one says: 0 is the master."""
        ...

    def distrust(self) -> bool:
        """The broker that was suggested did not do: back to the master. False: none was, so there is nowhere to go."""
        ...


class RouteLink:
    """By the routes of a client, over the connections of its pool.

    A master that has to read what was written long ago from its disk suggests a replica, as Java's clients know it
    (PullAPIWrapper.java). While there is no master in the route, a replica is read whatever is suggested.
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
            self._routes.refresh_if_old(self._queue.topic)  # its master may be back, and nothing fails that would tell
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
