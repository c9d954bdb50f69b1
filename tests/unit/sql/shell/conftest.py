"""A cluster in memory with messages, and a session on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.shell.support import OPEN, ORDERS, Shell, put


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("orders", "more"):
            made.create_topic(topic, 2)
        yield made
        while OPEN:
            OPEN.pop().close()


@pytest.fixture
def shell(cluster: InMemoryCluster) -> Shell:
    for number in range(10):
        put(cluster, number, number % 2)
    made = Shell(cluster)
    made(ORDERS.format(more=""))
    return made
