"""A read that ends where it begins says so, of all queues or of those without an offset, and no other read does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt, unread
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
        (StartFrom.group_offsets(), LATEST, {}, "none of 5 messages in 2 of 3 queues: consumer group 'g' has no"),
        (StartFrom.group_offsets("earliest"), LATEST, {}, ""),
        (StartFrom.group_offsets(), LATEST, {Q0: 3, Q1: 2, Q2: 0}, ""),  # the group has read all of it
        (StartFrom.group_offsets(), LATEST, {Q0: 1}, "none of 2 messages in 1 of 3 queues: consumer group 'g' has no"),
        (StartFrom.group_offsets(), LATEST, {Q0: 1, Q1: 2}, ""),  # the third is empty
        (StartFrom.group_offsets(), StopAt.offsets({Q0: 2, Q1: 9}), {}, "none of 2 messages in 1 of 3 queues"),
        (StartFrom.latest(), LATEST, {Q0: 1}, "none of 5 messages in 2 of 3 queues: it begins at the latest offset"),
        (StartFrom.latest(), StopAt.timestamp(NEVER), {}, "none of 5 messages"),
        (StartFrom.latest(), StopAt.timestamp(0), {}, ""),
        (StartFrom.latest(), StopAt.offsets({Q0: 2}), {}, "none of 2 messages"),
        (StartFrom.latest(), StopAt.offsets({Q0: 4}), {}, ""),  # waits for one
        (StartFrom.earliest(), LATEST, {}, ""),
        (StartFrom.timestamp(NEVER), LATEST, {}, ""),  # the user says when
        (StartFrom.specific_offsets({Q0: 3}), LATEST, {}, "none of 2 messages in 1 of 3 queues: consumer group 'g'"),
        (StartFrom.specific_offsets({Q0: 3}), LATEST, {Q1: 1}, ""),
        (StartFrom.group_offsets().resumed(NEVER), LATEST, {}, ""),
    ],
)
def test_a_read_says_which_messages_it_can_not_read(
    cluster: InMemoryCluster, start: StartFrom, stop: StopAt, committed: dict[MessageQueue, int], expected: str
) -> None:
    client = InMemoryClientFactory(cluster.name).queue_client()
    for queue, offset in committed.items():
        client.commit_offset("g", queue, offset)

    def begins_at_end(queue: MessageQueue, lookup: OffsetLookup) -> bool:
        return start.begins_at_end(queue, lookup, "g")

    found = unread(
        "topic t",
        [Q0, Q1, Q2],
        client,
        begins_at_end=begins_at_end,
        stop=stop.resolve,
        group="g" if start.needs_group else None,
        advice="give x",
    )
    assert expected in found
    assert bool(found) == bool(expected)
    if found:
        assert found.startswith("the read of topic t ")
        assert ("Check the name of the group" in found) == start.needs_group
        assert found.endswith("give x")


@pytest.mark.parametrize("group", [None, "g"])
def test_there_is_nothing_to_say_of_empty_queues_and_of_brokers_that_fail(
    cluster: InMemoryCluster, group: str | None
) -> None:
    client = InMemoryClientFactory(cluster.name).queue_client()

    def said(*queues: MessageQueue) -> str:
        stop = LATEST.resolve
        return unread("t", queues, client, begins_at_end=lambda *_: True, stop=stop, group=group, advice="give x")

    assert said(Q2) == said() == ""
    assert said(Q0, MessageQueue("none", "broker-a", 0)) == "", "the read itself raises the error"
    assert said(Q0)
