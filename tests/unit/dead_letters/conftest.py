"""A cluster in memory with a topic for dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster
from rmqio.transforms.shared import close_shared_clients


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("src", "other", "dead"):
            made.create_topic(topic, 2)
        yield made
        close_shared_clients()
        assert made.open_clients == 0
        assert made.open_readers == 0
