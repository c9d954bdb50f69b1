"""Connections by address, created on first use."""

from __future__ import annotations

import os
import threading

from rmqio.client.connections.connection import Connection
from rmqio.client.connections.secured import secured
from rmqio.client.environment import Environment
from rmqio.errors import LocalError, SetupError
from rmqio.options import ClientOptions


class ConnectionPool:
    """One `Connection` per address. Thread-safe. A forked child starts with the same addresses and no sockets."""

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = secured(environment or Environment(), options.security)
        self._connections: dict[str, Connection] = {}
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<ConnectionPool {state}, {list(self._connections.values())}>"

    def connection(self, address: str) -> Connection:
        """Return the connection to an address from a route or of a name server. A new connection is not opened yet.

        Raises `LocalError` when the pool is closed, and `SetupError` when the address is not an allowed one.
        """
        known = self._connections.get(address)  # empty after `close`
        if known is not None:
            return known
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self._is_closed:
                raise LocalError("the client is closed")
            found = self._connections.get(address)
            if found is None:
                found = Connection(
                    self._target(address),
                    connect_timeout_ms=self._options.connect_timeout_ms,
                    write_timeout_ms=self._options.request_timeout_ms,
                    environment=self._environment,
                )
                self._connections[address] = found
            return found

    def _target(self, address: str) -> str:
        """Return the address to connect to."""
        security = self._options.security
        try:
            is_allowed = address in self._options.name_servers or security.allows(address)
            target = security.mapped(address)
        except LocalError as error:
            raise SetupError(
                f"a route leads to {address!r}, which is not an address: check the name server that returned it"
            ) from error
        if not is_allowed:
            raise SetupError(
                f"a route leads to {address}, which is not one of the allowed addresses "
                f"({', '.join(security.allowed_addresses)}): allow it, or check the name server that returned it"
            )
        return target

    def close(self) -> None:
        """Close every connection; calls in flight fail. Idempotent."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            self._is_closed = True
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
