"""The same tests on three backends: in memory, the fake broker over sockets, a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.client.admin import Admin
from rmqio.client.factory import RemotingClientFactory
from rmqio.options import ClientOptions
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.contract.support import Backend
from tests.helpers.fakes.broker import FakeBroker

REAL = pytest.param("real", marks=pytest.mark.broker)


def _remoting(name: str, name_server: str) -> Backend:
    # Longer than a test waits: a pull is answered because there is a message, not because its time is over
    options = ClientOptions(name_server, request_timeout_ms=10_000, long_poll_ms=120_000)
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
    """Every implementation of the interfaces."""
    yield from _open(request)


@pytest.fixture(params=["fake", REAL])
def server(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The two that speak the protocol."""
    yield from _open(request)
