"""A broker that misbehaves: what a reader makes of it."""

from __future__ import annotations

from contextlib import closing

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.wire.command import RequestCode
from tests.contract.support import fetch, read
from tests.helpers.client.faulty_broker import A0, HARMLESS, PULL, quick_options
from tests.helpers.client.unplugged import environment_of
from tests.helpers.fakes.broker import FakeBroker

PULL_FAULTS = [name for name in HARMLESS if name != "system error, yet stored"]


@pytest.mark.parametrize("name", PULL_FAULTS)
def test_a_reader_survives(victim: FakeBroker, name: str) -> None:
    if name == "topic unknown":
        pytest.skip("a reader takes a broker's word for it that the topic is gone")
    for i in range(100):
        victim.cluster.append("topic", b"%d" % i)
    victim.on(PULL, HARMLESS[name][0])
    with closing(RemotingQueueClient(quick_options(victim, long_poll_ms=200), environment_of(victim))) as client:
        records = read(client, A0, until=100)
    assert [record.body for record in records] == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("name", PULL_FAULTS)
def test_an_offset_request_survives(victim: FakeBroker, name: str) -> None:
    for i in range(3):
        victim.cluster.append("topic", b"%d" % i)
    with closing(RemotingQueueClient(quick_options(victim), environment_of(victim))) as client:
        victim.on(RequestCode.GET_MAX_OFFSET, HARMLESS[name][0])
        assert client.max_offset(A0) == 3
        victim.on(RequestCode.UPDATE_CONSUMER_OFFSET, HARMLESS[name][0])
        client.commit_offset("a-group", A0, 2)
        assert victim.cluster.committed("a-group", A0) == 2


def test_a_hole_left_by_a_lost_file_is_counted(broker: FakeBroker) -> None:
    for i in range(10):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.remove(A0, 3, 6)
    with closing(RemotingQueueClient(quick_options(broker))) as client:
        found = fetch(client, A0, until=10)
    bodies = [record.body for each in found for record in each.records]
    assert bodies == [b"0", b"1", b"2", b"6", b"7", b"8", b"9"]
    assert sum(each.skipped for each in found) == 3


def test_a_corrupt_message_is_reported_and_the_others_come(broker: FakeBroker) -> None:
    for i in range(5):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.corrupt(A0, 2)
    with closing(RemotingQueueClient(quick_options(broker))) as client:
        found = fetch(client, A0, until=5)
    assert [record.queue_offset for each in found for record in each.records] == [0, 1, 3, 4]
    (corrupt,) = [message for each in found for message in each.corrupt]
    assert (corrupt.topic, corrupt.broker, corrupt.queue_id, corrupt.queue_offset) == ("topic", "broker-a", 0, 2)
