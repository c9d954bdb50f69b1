"""A client that looks at queues of two brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.testing import FakeBroker
from tests.helpers.client.looking import DEADLINE_S, A, B, Setup


@pytest.fixture
def setup() -> Iterator[Setup]:
    with FakeBroker(brokers=(A, B)) as broker:
        setup = Setup(broker)
        yield setup
        setup.client.close()


@pytest.fixture
def impatient() -> Iterator[Setup]:
    """For tests in which a broker does not answer."""
    with FakeBroker(brokers=(A, B)) as broker:
        setup = Setup(broker, DEADLINE_S)
        yield setup
        setup.client.close()
