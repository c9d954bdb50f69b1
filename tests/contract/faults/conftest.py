"""Fake brokers that can misbehave, and a producer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from rmqio.client.producer import RemotingProducer
from tests.helpers.client.faulty_broker import quick_options
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes.broker import FakeBroker

B = TypeVar("B", bound=FakeBroker)


def _with_topic(broker: B) -> B:
    broker.cluster.create_topic("topic", 2, ("broker-a", "broker-b"))
    return broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b"), vip=True) as fake:
        yield _with_topic(fake)


@pytest.fixture
def unplugged() -> Iterator[UnpluggedBroker]:
    """For tests in which the time decides."""
    with UnpluggedBroker(brokers=("broker-a", "broker-b")) as fake:
        yield _with_topic(fake)


@pytest.fixture
def victim(request: pytest.FixtureRequest, name: str) -> FakeBroker:
    """Of a fault of `HARMLESS`: unplugged if the client gives up an answer, which takes its time."""
    return request.getfixturevalue("unplugged" if name.endswith("lost") else "broker")  # type: ignore[no-any-return]


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[RemotingProducer]:
    with RemotingProducer(quick_options(broker), "group") as made:
        yield made
