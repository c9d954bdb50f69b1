"""Topics of the tests of audits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("source", "sink", "dead"):
            made.create_topic(topic, 2)
        yield made
