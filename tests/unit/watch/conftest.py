"""A fake cluster of two brokers, with a topic, a group and the command line on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.options import ClientOptions
from rmqio.watch.frames import Target
from rmqio.watch.watcher import Watcher
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker
from tests.unit.watch.support import append


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Twelve messages in the topic, of which the group has read seven."""
    with FakeBroker(brokers=("broker-a", "broker-b")) as broker:
        queues = broker.cluster.create_topic("orders", 2, ("broker-a", "broker-b"))
        for queue in queues:
            append(broker, queue, 3)
        client = RemotingQueueClient(ClientOptions(broker.name_server))
        for queue, offset in zip(queues, (0, 1, 3, 3), strict=True):
            client.commit_offset("billing", queue, offset)
        client.close()
        yield broker


@pytest.fixture
def rmqio(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(broker.name_server, capsys)


@pytest.fixture
def watcher(broker: FakeBroker) -> Iterator[Watcher]:
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    watcher = Watcher(client, Target(("orders",), "billing"), every_s=1, timeout_ms=10_000)
    watcher.begin()
    yield watcher
    watcher.close()
    client.close()
