"""The same tests on three backends: in memory, the fake broker over sockets, a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from rmqio.client.admin import Admin
from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.factory import RemotingClientFactory
from rmqio.interfaces import ClientFactory, Producer, QueueClient
from rmqio.options import ClientOptions
from rmqio.testing import FakeBroker, InMemoryClientFactory, InMemoryCluster
from rmqio.wire import requests
from rmqio.wire.command import Command

REAL = pytest.param("real", marks=pytest.mark.broker)


@dataclass
class Backend:
    """What a test sees of a backend."""

    name: str
    factory: ClientFactory
    create: Callable[[str, int], object]
    name_server: str = ""
    closers: list[Callable[[], object]] = field(default_factory=list)
    _pool: ConnectionPool | None = None

    def topic(self, queues: int = 4) -> str:
        """A new topic."""
        name = f"contract-{uuid.uuid4().hex[:12]}"
        self.create(name, queues)
        return name

    def client(self) -> QueueClient:
        client = self.factory.queue_client()
        self.closers.append(client.close)
        return client

    def producer(self, group: str = "contract-producers") -> Producer:
        producer = self.factory.producer(group)
        self.closers.append(producer.close)
        return producer

    def ask(self, command: Command, timeout_ms: int = 20_000) -> Command:
        """The broker's own answer to a request, with no client of ours in between."""
        return self._connect(self.broker_address()).request(command, timeout_ms)

    def ask_name_server(self, command: Command) -> Command:
        return self._connect(self.name_server).request(command, 5_000)

    def broker_address(self) -> str:
        (broker,) = requests.parse_cluster_info(self.ask_name_server(requests.get_cluster_info()))
        assert broker.master is not None
        return broker.master

    def _connect(self, address: str):  # type: ignore[no-untyped-def]
        if self._pool is None:
            self._pool = ConnectionPool(ClientOptions(self.name_server))
            self.closers.append(self._pool.close)
        return self._pool.connection(address)


def _remoting(name: str, name_server: str) -> Backend:
    options = ClientOptions(name_server, request_timeout_ms=10_000)
    admin = Admin(options)
    backend = Backend(
        name,
        RemotingClientFactory(options),
        lambda topic, queues: admin.create_topic(topic, queues=queues),
        name_server,
    )
    backend.closers.append(admin.close)
    return backend


def _open(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "memory":
        with InMemoryCluster() as cluster:
            backend = Backend("memory", InMemoryClientFactory(cluster.name), cluster.create_topic)
            yield from _use(backend)
    elif request.param == "fake":
        with FakeBroker() as broker:
            yield from _use(_remoting("fake", broker.name_server))
    else:
        yield from _use(_remoting("real", request.getfixturevalue("rocketmq").name_server))


def _use(backend: Backend) -> Iterator[Backend]:
    try:
        yield backend
    finally:
        for close in reversed(backend.closers):
            close()


@pytest.fixture(params=["memory", "fake", REAL])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Every implementation of the seams."""
    yield from _open(request)


@pytest.fixture(params=["fake", REAL])
def server(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The two that speak the protocol."""
    yield from _open(request)
