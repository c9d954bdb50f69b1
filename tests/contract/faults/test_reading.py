"""A broker that misbehaves: what a reader makes of it."""

from __future__ import annotations

import pytest

from rmqio.client.factory import RemotingClientFactory
from rmqio.model import MessageFilter
from rmqio.testing import FakeBroker
from rmqio.wire.codes import RequestCode
from tests.contract.support import read
from tests.helpers.client.faulty_broker import A0, HARMLESS, PULL, quick_options, timeout_ms

PULL_FAULTS = [name for name in HARMLESS if name != "system error, yet stored"]
# A pull that is lost is given up after the 5 s that a broker may take to look whether its time is over.
SLOW_FAULTS = ("request lost", "answer lost")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW_FAULTS else ()) for name in PULL_FAULTS]
)
def test_a_reader_survives(broker: FakeBroker, name: str) -> None:
    if name == "topic unknown":
        pytest.skip("a reader takes a broker's word for it that the topic is gone")
    for i in range(100):
        broker.cluster.append("topic", b"%d" % i)
    broker.on(PULL, HARMLESS[name][0])
    client = RemotingClientFactory(
        quick_options(broker, request_timeout_ms=timeout_ms(name), long_poll_ms=200)
    ).queue_client()
    try:
        records = read(client, A0, until=100)
    finally:
        client.close()
    assert [record.body for record in records] == [b"%d" % i for i in range(100)]


@pytest.mark.parametrize("name", PULL_FAULTS)
def test_an_offset_request_survives(broker: FakeBroker, name: str) -> None:
    for i in range(3):
        broker.cluster.append("topic", b"%d" % i)
    client = RemotingClientFactory(quick_options(broker, request_timeout_ms=timeout_ms(name))).queue_client()
    try:
        broker.on(RequestCode.GET_MAX_OFFSET, HARMLESS[name][0])
        assert client.max_offset(A0) == 3
        broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, HARMLESS[name][0])
        client.commit_offset("a-group", A0, 2)
        assert broker.cluster.committed("a-group", A0) == 2
    finally:
        client.close()


def test_a_hole_left_by_a_lost_file_is_counted(broker: FakeBroker) -> None:
    for i in range(10):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.remove(A0, 3, 6)
    client = RemotingClientFactory(quick_options(broker)).queue_client()
    try:
        reader = client.open_reader(A0, 0, message_filter=MessageFilter())
        bodies, skipped = [], 0
        while reader.position < 10:
            client.wait([reader], 5_000)
            fetched = reader.poll()
            if fetched is not None:
                bodies += [record.body for record in fetched.records]
                skipped += fetched.skipped
        assert (bodies, skipped) == ([b"0", b"1", b"2", b"6", b"7", b"8", b"9"], 3)
    finally:
        client.close()


def test_a_corrupt_message_is_reported_and_the_others_come(broker: FakeBroker) -> None:
    for i in range(5):
        broker.cluster.append("topic", b"%d" % i)
    broker.cluster.corrupt(A0, 2)
    client = RemotingClientFactory(quick_options(broker)).queue_client()
    try:
        reader = client.open_reader(A0, 0, message_filter=MessageFilter())
        client.wait([reader], 5_000)
        fetched = reader.poll()
        assert fetched is not None
        assert [record.queue_offset for record in fetched.records] == [0, 1, 3, 4]
        (corrupt,) = fetched.corrupt
        assert (corrupt.topic, corrupt.broker, corrupt.queue_id, corrupt.queue_offset) == ("topic", "broker-a", 0, 2)
    finally:
        client.close()
