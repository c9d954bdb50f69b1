"""A client that looks at queues of two brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.client.looking import A, B, Setup, UnpluggedSetup
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes.broker import FakeBroker


@pytest.fixture
def setup() -> Iterator[Setup]:
    with FakeBroker(brokers=(A, B)) as broker:
        setup = Setup(broker)
        yield setup
        setup.client.close()


@pytest.fixture
def unplugged() -> Iterator[UnpluggedSetup]:
    with UnpluggedBroker(brokers=(A, B)) as broker:
        setup = UnpluggedSetup(broker)
        yield setup
        setup.client.close()
