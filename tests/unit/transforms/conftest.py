"""A cluster in memory, of which everything is closed in the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made
