"""A fake broker that can misbehave, and a producer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.client.sending.producer import RemotingProducer
from rmqio.testing import FakeBroker
from tests.helpers.client.faulty_broker import quick_options


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b"), vip=True) as fake:
        fake.cluster.create_topic("topic", 2, ("broker-a", "broker-b"))
        yield fake


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[RemotingProducer]:
    with RemotingProducer(quick_options(broker), "group") as made:
        yield made
