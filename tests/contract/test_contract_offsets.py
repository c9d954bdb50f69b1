"""Offsets of queues and of groups, and their traps."""

from __future__ import annotations

import time
import uuid

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import CommitIgnored, LocalError, OffsetOutOfRange, TransportError
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode
from tests.contract.support import ALL, Backend, read
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import Exchange


@pytest.fixture
def group() -> str:
    return f"contract-{uuid.uuid4().hex[:12]}"


def _fill(backend: Backend, count: int, queues: int = 1) -> MessageQueue:
    queue = MessageQueue(backend.topic(queues=queues), "broker-a", 0)
    if count:
        backend.producer().send_batch([Message(b"m%d" % i) for i in range(count)], queue)
        read(backend.client(), queue, until=count)  # dispatched: maximum offset and time index show it
    return queue


def test_an_empty_queue_is_from_zero_to_zero(backend: Backend) -> None:
    queue, client = _fill(backend, 0), backend.client()
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 0)
    assert client.offset_for_time(queue, 0) == 0


def test_the_maximum_is_one_past_the_newest(backend: Backend) -> None:
    queue, client = _fill(backend, 5), backend.client()
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 5)


def test_a_time_gives_the_first_offset_stored_at_or_after_it(backend: Backend) -> None:
    queue, client = _fill(backend, 2), backend.client()
    time.sleep(0.05)
    backend.producer().send_batch([Message(b"later")] * 2, queue)
    records = read(client, queue, until=4)
    first, third = records[0].store_timestamp_ms, records[2].store_timestamp_ms
    assert third > first
    assert client.offset_for_time(queue, first - 1) == 0
    assert client.offset_for_time(queue, first) == 0
    assert client.offset_for_time(queue, first + 1) == 2
    assert client.offset_for_time(queue, third) == 2
    assert client.offset_for_time(queue, third + 60_000) == 4


@pytest.mark.parametrize("offset", [-1, 6, 1_000])
def test_an_offset_outside_raises_with_the_range_and_the_reader_stays(backend: Backend, offset: int) -> None:
    queue, client = _fill(backend, 5), backend.client()
    reader = client.open_reader(queue, offset, message_filter=ALL)
    client.wait([reader], 10_000)
    with pytest.raises(OffsetOutOfRange) as failure:
        reader.poll()
    error = failure.value
    assert (error.wanted, error.minimum, error.maximum) == (offset, 0, 5)
    assert reader.position == offset
    reader.seek(3)
    client.wait([reader], 10_000)
    fetched = reader.poll()
    assert fetched is not None
    assert [record.queue_offset for record in fetched.records] == [3, 4]


def test_a_group_never_seen_has_no_offset(backend: Backend, group: str) -> None:
    # The real broker would say 0, if it were not asked with setZeroIfNotFound=false.
    assert backend.client().committed_offset(group, _fill(backend, 3)) is None


def test_what_was_committed_is_given_back_also_backwards(backend: Backend, group: str) -> None:
    queue, client = _fill(backend, 3), backend.client()
    for offset in (2, 1, 0, 3):
        client.commit_offset(group, queue, offset)  # of a group that no broker knew before
        assert client.committed_offset(group, queue) == offset


def test_a_negative_commit_is_refused_here(backend: Backend, group: str) -> None:
    queue, client = _fill(backend, 1), backend.client()
    with pytest.raises(LocalError):
        client.commit_offset(group, queue, -1)


def test_a_broker_says_zero_for_a_group_never_seen_unless_told_otherwise(server: Backend, group: str) -> None:
    queue = _fill(server, 3)
    command = requests.query_group_offset(group, queue)
    assert server.ask(command).code == 22
    command.ext = {name: value for name, value in command.ext.items() if name != "setZeroIfNotFound"}
    answer = server.ask(command)
    assert (answer.code, answer.ext["offset"]) == (0, "0")


def test_a_broker_refuses_the_commit_of_an_unknown_group(server: Backend, group: str) -> None:
    queue = _fill(server, 1)
    assert server.ask(requests.commit_group_offset(group, queue, 1)).code == 26
    server.ask(requests.pull(group, queue, 0, max_messages=1, message_filter=MessageFilter()))
    assert server.ask(requests.commit_group_offset(group, queue, 1)).code == 0


def test_a_broker_takes_any_commit(server: Backend, group: str) -> None:
    queue = _fill(server, 1)
    server.ask(requests.pull(group, queue, 0, max_messages=1, message_filter=MessageFilter()))
    for offset in (10**12, -5):
        assert server.ask(requests.commit_group_offset(group, queue, offset)).code == 0
    assert server.client().committed_offset(group, queue) is None  # a negative one reads back as none
    missing = queue._replace(topic=f"missing-{uuid.uuid4().hex}")
    assert server.ask(requests.commit_group_offset(group, missing, 1)).code == 17


def test_an_operators_reset_is_seen_and_blocks_commits_until_a_member_pulls(server: Backend, group: str) -> None:
    queue, client = _fill(server, 5), server.client()
    client.commit_offset(group, queue, 4)
    assert server.ask(requests.reset_group_offset(group, queue, 1)).code == 0
    assert client.committed_offset(group, queue) == 1
    with pytest.raises(CommitIgnored):
        client.commit_offset(group, queue, 5)
    assert client.committed_offset(group, queue) == 1

    # Our own readers pull under another group and do not take it.
    assert len(read(client, queue, until=5)) == 5
    assert client.committed_offset(group, queue) == 1

    pull = requests.pull(group, queue, 3, max_messages=1, message_filter=MessageFilter())
    answer = server.ask(pull)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "1")
    assert server.ask(pull).code == 0  # handed out once
    client.commit_offset(group, queue, 5)
    assert client.committed_offset(group, queue) == 5


def test_a_reset_is_taken_once_and_commits_work_again(server: Backend, group: str) -> None:
    queue, client = _fill(server, 5), server.client()
    assert client.take_reset(group, queue) is None
    client.commit_offset(group, queue, 4)
    assert client.take_reset(group, queue) is None
    server.ask(requests.reset_group_offset(group, queue, 1))
    assert client.take_reset(group, queue) == 1
    assert client.take_reset(group, queue) is None
    client.commit_offset(group, queue, 5)
    assert client.committed_offset(group, queue) == 5


def test_a_broker_that_is_forgotten_between_two_tries_is_unreachable_and_its_topic_not_unknown() -> None:
    with FakeBroker() as broker:
        broker.cluster.create_topic("topic", 1)
        patient = ClientOptions(broker.name_server, route_refresh_ms=5, retry_backoff_ms=50, retry_backoff_max_ms=50)
        client = RemotingQueueClient(patient)
        (queue,) = client.queues("topic")

        def forget(exchange: Exchange) -> None:
            broker.stop_broker()
            broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, faults.answer(17, "no route"), times=None)
            nobody = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
            broker.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda e: e.send(Command(0, body=nobody)), times=None)
            exchange.close()

        broker.on(RequestCode.GET_MAX_OFFSET, forget)
        with pytest.raises(TransportError, match="no name server knows broker 'broker-a'"):
            client.max_offset(queue)
        client.close()
