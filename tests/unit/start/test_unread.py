"""A read that ends where it begins says so, and no other read does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt
from rmqio.start.unread import unread, why_unread
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

Q0, Q1, Q2 = (MessageQueue("t", "broker-a", number) for number in range(3))
LATEST, NEVER = StopAt.latest(), 2**41


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    """Q0 holds three messages, Q1 two, and Q2 none."""
    with InMemoryCluster() as cluster:
        cluster.create_topic("t", 3)
        for queue_id in (0, 0, 0, 1, 1):
            cluster.append("t", b"x", queue_id=queue_id)
        yield cluster


@pytest.mark.parametrize(
    ("start", "stop", "committed", "expected"),
    [
        (StartFrom.group_offsets(), LATEST, {}, 5),
        (StartFrom.group_offsets("earliest"), LATEST, {}, 0),
        (StartFrom.group_offsets(), LATEST, {Q0: 3, Q1: 2, Q2: 0}, 0),  # the group has read all of it
        (StartFrom.group_offsets(), LATEST, {Q0: 1}, 0),
        (StartFrom.latest(), LATEST, {Q0: 1}, 5),
        (StartFrom.latest(), StopAt.timestamp(NEVER), {}, 5),
        (StartFrom.latest(), StopAt.timestamp(0), {}, 0),
        (StartFrom.latest(), StopAt.offsets({Q0: 2}), {}, 2),
        (StartFrom.latest(), StopAt.offsets({Q0: 4}), {}, 0),  # waits for one
        (StartFrom.earliest(), LATEST, {}, 0),
        (StartFrom.timestamp(NEVER), LATEST, {}, 0),  # the user says when
        (StartFrom.specific_offsets({Q0: 3}), LATEST, {}, 0),
        (StartFrom.group_offsets().resumed(NEVER), LATEST, {}, 0),
    ],
)
def test_how_many_messages_are_there_for_a_read_that_can_read_none(
    cluster: InMemoryCluster, start: StartFrom, stop: StopAt, committed: dict[MessageQueue, int], expected: int
) -> None:
    client = InMemoryClientFactory(cluster.name).queue_client()
    for queue, offset in committed.items():
        client.commit_offset("g", queue, offset)

    def begins_at_end(queue: MessageQueue, lookup: OffsetLookup) -> bool:
        return start.begins_at_end(queue, lookup, "g")

    assert unread([Q0, Q1, Q2], client, begins_at_end=begins_at_end, stop=stop.resolve) == expected


def test_there_is_nothing_to_say_of_empty_queues_and_of_brokers_that_fail(cluster: InMemoryCluster) -> None:
    client = InMemoryClientFactory(cluster.name).queue_client()

    def count(*queues: MessageQueue) -> int:
        return unread(queues, client, begins_at_end=lambda queue, lookup: True, stop=LATEST.resolve)

    assert count(Q2) == count() == 0
    assert count(Q0, MessageQueue("none", "broker-a", 0)) == 0, "the read itself raises the error"


def test_the_warning_names_the_group_or_the_start() -> None:
    of_group, of_start = why_unread(5, "t", "bilings", "give x"), why_unread(5, "t", None, "give x")
    assert "group 'bilings' has no offset" in of_group
    assert of_group.endswith("Check the name of the group. If it is new: give x")
    assert "latest" in of_start
    assert "group" not in of_start
