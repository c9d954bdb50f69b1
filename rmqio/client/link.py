"""How a reader reaches its broker."""

from __future__ import annotations

from typing import Protocol

from rmqio.client.connection import Connection
from rmqio.client.pool import ConnectionPool
from rmqio.client.routes import Routes
from rmqio.model import MessageQueue


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


class RouteLink:
    """By the routes of a client, over the connections of its pool."""

    def __init__(self, queue: MessageQueue, pool: ConnectionPool, routes: Routes) -> None:
        self._queue, self._pool, self._routes = queue, pool, routes
        self.is_replica = False

    def connection(self) -> Connection:
        self.is_replica = not self._routes.holds_master(*self._queue)
        return self._pool.connection(self._routes.held_address(*self._queue))

    def refresh(self) -> None:
        self._routes.refresh_soon(self._queue.topic)
