"""A cluster in memory whose clock a test puts forward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clocked_cluster


@pytest.fixture
def clocked() -> Iterator[InMemoryCluster]:
    with clocked_cluster() as made:
        yield made
