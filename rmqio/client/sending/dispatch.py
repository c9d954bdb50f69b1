"""Sends a producer's requests, and heartbeats with them, on the connection to a queue's broker."""

from __future__ import annotations

from rmqio.addresses import join_address, parse_address
from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.connections.session import Call
from rmqio.client.environment import Environment
from rmqio.client.identity import client_id
from rmqio.client.sending.queue_choice import QueueChoice
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.templates.send import SendRequest

_VIP_DISTANCE = 2
"""A broker serves sends, but no pulls, on its port minus this."""


class Dispatcher:
    """Starts requests at brokers. Thread-safe.

    It has no thread: when a heartbeat is due, it goes out with the next request, in the same write. That is enough,
    because a socket that is idle for two minutes, which a server closes, is reopened.
    """

    def __init__(
        self, options: ClientOptions, group: str, pool: ConnectionPool, choice: QueueChoice, environment: Environment
    ) -> None:
        self._options = options
        self._group = group
        self._pool = pool
        self._choice = choice
        self._environment = environment
        self._next_heartbeat: dict[str, float] = {}

    def start(self, queue: MessageQueue, request: SendRequest) -> Call:
        """Send a request without waiting for its answer. Raises `TopicNotExist`, `TransportError`, `LocalError`."""
        address = self._choice.address(queue)
        connection = self._pool.connection(self._vip(address) if self._options.vip_channel else address)
        now = self._environment.clock()
        if now < self._next_heartbeat.get(connection.address, 0.0):
            return connection.start(request)
        heartbeat = requests.producer_heartbeat(client_id(self._options, self), [self._group])
        call = connection.start_all((heartbeat, request))[1]
        self._next_heartbeat[connection.address] = now + self._options.heartbeat_ms / 1000
        return call

    def _vip(self, address: str) -> str:
        try:
            host, port = parse_address(address)
        except LocalError:
            return address  # the pool reports what is wrong with the address, and where it came from
        return join_address(host, port - _VIP_DISTANCE)
