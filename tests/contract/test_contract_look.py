"""Many offsets asked for, and committed, at once: the same as one by one."""

from __future__ import annotations

import uuid
from typing import Final

import pytest

from rmqio.errors import CommitIgnored, LocalError, RmqioError
from rmqio.interfaces import OffsetQuery
from rmqio.model import Message, MessageQueue
from rmqio.wire import requests
from tests.contract.support import Backend, read

KINDS: Final = ("min", "max", "time", "committed")


@pytest.fixture
def group() -> str:
    return f"contract-{uuid.uuid4().hex[:12]}"


def _filled(backend: Backend) -> list[MessageQueue]:
    """Four queues with 0 to 3 messages."""
    topic = backend.topic(queues=4)
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    for count, queue in enumerate(queues):
        if count:
            backend.producer().send_batch([Message(b"m")] * count, queue)
            read(backend.client(), queue, until=count)  # visible
    return queues


def test_answers_are_those_of_single_questions_in_the_order_of_the_queries(backend: Backend, group: str) -> None:
    queues, client = _filled(backend), backend.client()
    client.commit_offset(group, queues[2], 1)
    queries = [OffsetQuery(queue, kind, 2**42, group) for kind in KINDS for queue in reversed(queues)]
    one_by_one = [
        {
            "min": lambda q: client.min_offset(q.queue),
            "max": lambda q: client.max_offset(q.queue),
            "time": lambda q: client.offset_for_time(q.queue, q.timestamp_ms),
            "committed": lambda q: client.committed_offset(q.group, q.queue),
        }[query.kind](query)
        for query in queries
    ]
    assert list(client.look_up(queries)) == one_by_one
    assert one_by_one == [0, 0, 0, 0, 3, 2, 1, 0, 3, 2, 1, 0, None, 1, None, None]


def test_no_queries_no_answers(backend: Backend, group: str) -> None:
    client = backend.client()
    assert list(client.look_up([])) == []
    assert dict(client.commit_offsets(group, {})) == {}


def test_an_error_is_in_the_place_of_its_query(backend: Backend) -> None:
    queues, client = _filled(backend), backend.client()
    missing = queues[0]._replace(queue_id=4)
    nowhere = queues[0]._replace(topic="no-such-topic")
    found = client.look_up([OffsetQuery(q, "max") for q in (missing, queues[3], nowhere)])
    assert isinstance(found[0], LocalError)
    assert found[1] == 3
    assert isinstance(found[2], RmqioError)


def test_a_kind_of_offset_that_does_not_exist_is_reported(backend: Backend) -> None:
    queues, client = _filled(backend), backend.client()
    (error,) = client.look_up([OffsetQuery(queues[0], "newest")])  # type: ignore[arg-type]
    assert isinstance(error, LocalError)
    assert "no kind 'newest'" in str(error)


def test_commits_are_those_of_single_ones(backend: Backend, group: str) -> None:
    queues, client = _filled(backend), backend.client()
    assert dict(client.commit_offsets(group, {queue: queue.queue_id for queue in queues})) == {}  # a group never seen
    assert [client.committed_offset(group, queue) for queue in queues] == [0, 1, 2, 3]
    assert dict(client.commit_offsets(group, dict.fromkeys(queues, 0))) == {}  # backwards
    missing = queues[0]._replace(queue_id=4)
    failed = client.commit_offsets(group, {queues[1]: -1, queues[2]: 2, missing: 1})
    assert {queue: isinstance(error, LocalError) for queue, error in failed.items()} == {queues[1]: True, missing: True}
    assert [client.committed_offset(group, queue) for queue in queues] == [0, 0, 2, 0]


def test_commits_that_a_pending_reset_swallows_are_reported(server: Backend, group: str) -> None:
    queues, client = _filled(server), server.client()
    client.commit_offset(group, queues[3], 3)
    server.ask(requests.reset_group_offset(group, queues[3], 1))
    failed = client.commit_offsets(group, dict.fromkeys(queues[2:], 2))
    assert {queue: type(error) for queue, error in failed.items()} == {queues[3]: CommitIgnored}
    assert list(client.look_up([OffsetQuery(queue, "committed", group=group) for queue in queues[2:]])) == [2, 1]


def test_a_closed_client_answers_with_errors(backend: Backend, group: str) -> None:
    queues, client = _filled(backend), backend.client()
    client.close()
    assert all(isinstance(each, LocalError) for each in client.look_up([OffsetQuery(queue, "max") for queue in queues]))
    failed = client.commit_offsets(group, dict.fromkeys(queues, 1))
    assert {queue: type(error) for queue, error in failed.items()} == dict.fromkeys(queues, LocalError)
