"""A server that answers as a test tells it, and registries that ask it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqio.serde.registry import RestRegistry
from tests.helpers.serde.registry_server import FOUND, Server, Time, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(lambda request: FOUND) as running:
        yield running


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def connect(server: Server, time: Time) -> Iterator[Callable[..., RestRegistry]]:
    """Makes registries, and closes them."""
    with contextlib.ExitStack() as stack:

        def make(url: str | None = None, **arguments: Any) -> RestRegistry:
            registry = RestRegistry(url or server.url, timing=time.timing(), **arguments)
            stack.callback(registry.close)
            return registry

        yield make
