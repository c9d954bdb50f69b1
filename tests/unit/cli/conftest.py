"""A fake cluster of two brokers, and the command line on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b")) as broker:
        broker.cluster.create_topic("orders", 2, ("broker-a", "broker-b"))
        yield broker


@pytest.fixture
def rmqio(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(broker.name_server, capsys, "--timeout_ms", "2000")
