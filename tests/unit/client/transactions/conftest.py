"""A broker that takes the ends of transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.client.transactions import END
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b")) as fake:
        fake.cluster.create_topic("topic", 1, ("broker-a",))
        fake.on(END, faults.answer(0), times=None)
        yield fake
