"""An empty cluster in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster
from rmqio.transforms.shared import close_shared_clients


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        yield made
        close_shared_clients()
