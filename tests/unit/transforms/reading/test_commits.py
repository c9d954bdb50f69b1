"""Group offsets: never backwards, at most so often, and a failure is logged and counted but fails nothing."""

from __future__ import annotations

import functools
import logging
import pickle
from collections.abc import Iterator
from typing import Literal

import pytest

from rmqio.errors import BrokerError, GroupOffsetReset, RmqioError, SystemBusy, TransportError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.reading.commits import (
    begin_reading,
    commit_position,
    commit_positions,
    is_commit_due,
    raise_reset,
    take_counts,
)
from rmqio.transforms.shared import close_shared_clients

GROUP = "g"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 2)
        yield made
        close_shared_clients()


@pytest.fixture
def factory(cluster: InMemoryCluster) -> InMemoryClientFactory:
    return InMemoryClientFactory(cluster.name)


QUEUE = MessageQueue("t", "broker-a", 0)
OTHER = MessageQueue("t", "broker-a", 1)


@pytest.mark.parametrize(
    ("before", "positions", "commits"),
    [
        (None, [5], [5]),
        (None, [0], [0]),
        (None, [5, 9, 12], [5, 9, 12]),
        (None, [5, 3, 5, 4, 6], [5, 6]),
        (10, [5, 10], []),
        (10, [5, 11], [11]),
    ],
)
def test_positions_are_committed_forward_only(
    cluster: InMemoryCluster,
    factory: InMemoryClientFactory,
    before: int | None,
    positions: list[int],
    commits: list[int],
) -> None:
    if before is not None:
        cluster.commit(GROUP, QUEUE, before)
        cluster.commits.clear()
    for position in positions:
        commit_position(factory, GROUP, QUEUE, position)
    assert cluster.commits == [(GROUP, QUEUE, offset) for offset in commits]
    assert take_counts(factory, GROUP) == (len(commits), 0)


def test_queues_and_groups_are_kept_apart(cluster: InMemoryCluster, factory: InMemoryClientFactory) -> None:
    commit_position(factory, GROUP, QUEUE, 9)
    commit_position(factory, GROUP, OTHER, 5)
    commit_position(factory, "other", QUEUE, 3)
    assert cluster.commits == [(GROUP, QUEUE, 9), (GROUP, OTHER, 5), ("other", QUEUE, 3)]
    assert take_counts(factory, GROUP) == (2, 0)
    assert take_counts(factory, "other") == (1, 0)


@pytest.mark.parametrize("error", [TransportError("reset"), BrokerError(26, "no such group", "commit")])
def test_a_failed_commit_is_counted_and_warned_of_once_a_minute_and_the_next_repairs_it(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.fail_next("commit_offset", error, times=2)
    with caplog.at_level(logging.WARNING, "rmqio"):
        commit_position(factory, GROUP, QUEUE, 5)
        commit_position(factory, GROUP, QUEUE, 6)
    assert [record.getMessage() for record in caplog.records] == [
        f"offset 5 of queue t/broker-a/0 was not committed for group g: {error}"
    ]
    assert cluster.commits == []
    commit_position(factory, GROUP, QUEUE, 4)  # of a bundle before those
    assert cluster.committed(GROUP, QUEUE) == 6
    commit_position(factory, GROUP, QUEUE, 7)
    assert cluster.committed(GROUP, QUEUE) == 7
    assert take_counts(factory, GROUP) == (2, 2)
    assert take_counts(factory, GROUP) == (0, 0)


def test_what_an_earlier_read_could_not_commit_is_not_committed_by_the_next_one(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.fail_next("commit_offset", TransportError("reset"))
    commit_position(factory, GROUP, QUEUE, 9)
    begin_reading(factory, GROUP)
    commit_positions(factory, GROUP, {QUEUE: 3, OTHER: 4})
    assert cluster.commits == [(GROUP, QUEUE, 3), (GROUP, OTHER, 4)]


def test_what_a_commit_that_was_interrupted_left_is_committed_by_the_next_one(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.fail_next("commit_offset", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        commit_position(factory, GROUP, QUEUE, 9)
    commit_position(factory, GROUP, OTHER, 4)
    assert (cluster.committed(GROUP, QUEUE), cluster.committed(GROUP, OTHER)) == (9, 4)


@pytest.mark.parametrize("on_reset", ["refuse", "honour"])
def test_a_reset_older_than_the_read_is_taken_so_that_commits_work(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, on_reset: Literal["refuse", "honour"]
) -> None:
    cluster.reset_group(GROUP, QUEUE, 0)
    commit_position(factory, GROUP, QUEUE, 7, on_reset)
    assert take_counts(factory, GROUP) == (1, 0)
    assert cluster.committed(GROUP, QUEUE) == 7
    raise_reset(factory, GROUP)


def test_a_refused_reset_is_committed_over_with_a_warning(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, caplog: pytest.LogCaptureFixture
) -> None:
    commit_position(factory, GROUP, QUEUE, 7, "refuse")
    cluster.reset_group(GROUP, QUEUE, 3)
    commit_position(factory, GROUP, QUEUE, 9, "refuse")
    assert cluster.committed(GROUP, QUEUE) == 9
    assert "was reset to 3; reading continues at 9" in caplog.text
    raise_reset(factory, GROUP)


def test_an_honoured_reset_stops_the_read_and_stays_for_the_next_start(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    commit_position(factory, GROUP, QUEUE, 7, "honour")
    cluster.reset_group(GROUP, QUEUE, 3)
    commit_position(factory, GROUP, QUEUE, 9, "honour")
    with pytest.raises(GroupOffsetReset, match="reset to 3") as caught:
        raise_reset(factory, GROUP)
    assert pickle.loads(pickle.dumps(caught.value)).offset == 3
    assert cluster.committed(GROUP, QUEUE) == 3
    begin_reading(factory, GROUP)
    raise_reset(factory, GROUP)
    commit_position(factory, GROUP, QUEUE, 5, "honour")
    assert cluster.committed(GROUP, QUEUE) == 5


def test_the_committed_offset_is_asked_for_once_a_process(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    commit_position(factory, GROUP, QUEUE, 5)
    cluster.fail_next("committed_offset", TransportError("asked again"))
    commit_position(factory, GROUP, QUEUE, 6)
    assert cluster.committed(GROUP, QUEUE) == 6


@pytest.mark.parametrize("error", [TransportError("away"), SystemBusy(2, "full", "commit")])
@pytest.mark.parametrize(("is_last", "committed"), [(False, None), (True, 5)])
def test_the_last_commit_of_a_queue_waits_for_its_broker(
    is_last: bool, committed: int | None, error: RmqioError, cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    cluster.fail_next("committed_offset", error, times=3)
    commit_position(factory, GROUP, QUEUE, 5, is_last=is_last)
    assert cluster.committed(GROUP, QUEUE) == committed


def test_a_broker_is_waited_for_once_until_it_answers_again(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("rmqio.transforms.reading.commits.time", clock)
    for queue in (QUEUE, OTHER):
        cluster.fail_next("committed_offset", TransportError("away"), times=150, queue=queue)
    commit_position(factory, GROUP, QUEUE, 5, is_last=True)
    waited = clock.monotonic()
    assert 10 <= waited <= 30
    for _ in range(151):  # until it answers for both
        commit_position(factory, GROUP, OTHER, 5, is_last=True)
    assert cluster.committed(GROUP, QUEUE) == cluster.committed(GROUP, OTHER) == 5
    assert clock.monotonic() == waited
    cluster.fail_next("commit_offset", TransportError("away again"), times=3)
    commit_position(factory, GROUP, OTHER, 7, is_last=True)
    assert cluster.committed(GROUP, OTHER) == 7
    assert clock.monotonic() > waited


def test_a_client_that_cannot_be_made_yet_is_a_commit_that_failed(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, attempts = InMemoryClientFactory.queue_client, list[int]()

    def fails_twice(self: InMemoryClientFactory) -> QueueClient:
        attempts.append(1)
        if len(attempts) <= 2:
            raise TransportError("no name server answers")
        return made(self)

    monkeypatch.setattr(InMemoryClientFactory, "queue_client", fails_twice)
    commit_position(factory, GROUP, QUEUE, 5, is_last=True)
    assert cluster.committed(GROUP, QUEUE) == 5


def test_what_no_waiting_mends_is_not_waited_for(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqio.transforms.reading.commits.time.sleep", lambda seconds: pytest.fail("it waits"))
    cluster.fail_next("committed_offset", BrokerError(1, "no permission", "commit"))
    commit_position(factory, GROUP, QUEUE, 5, is_last=True)
    assert cluster.committed(GROUP, QUEUE) is None


@pytest.mark.parametrize(
    ("committed", "position", "interval_ms", "due"),
    [
        (None, 0, 0, True),
        (None, 5, 3_600_000, True),
        (5, 5, 0, False),
        (5, 4, 0, False),
        (5, 6, 0, True),
        (5, 6, 3_600_000, False),
    ],
)
def test_when_a_commit_is_due(
    cluster: InMemoryCluster,
    factory: InMemoryClientFactory,
    committed: int | None,
    position: int,
    interval_ms: int,
    due: bool,
) -> None:
    if committed is not None:
        commit_position(factory, GROUP, QUEUE, committed)
    assert is_commit_due(factory, GROUP, QUEUE, position, interval_ms) is due


def test_the_callback_pickles_so_that_another_process_can_run_it(
    cluster: InMemoryCluster, factory: InMemoryClientFactory
) -> None:
    pickle.loads(pickle.dumps(functools.partial(commit_position, factory, GROUP, QUEUE, 8)))()
    assert cluster.committed(GROUP, QUEUE) == 8


def test_brokers_are_waited_for_at_once_and_nobody_else_waits(
    cluster: InMemoryCluster, factory: InMemoryClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("rmqio.transforms.reading.commits.time", clock)
    away = cluster.create_topic("u", 1, ["broker-b", "broker-c", "broker-d"])
    for queue in away:
        cluster.fail_next("committed_offset", TransportError("away"), times=10_000, queue=queue)
    slept: list[bool] = []
    sleep = clock.sleep

    def sleep_and_count(seconds: float) -> None:
        sleep(seconds)
        slept.append(take_counts(factory, GROUP) == (0, 0))  # it would wait for the lock, for ever

    monkeypatch.setattr(clock, "sleep", sleep_and_count)
    began = clock.monotonic()
    commit_positions(factory, GROUP, dict.fromkeys(away, 5), is_last=True)
    assert 10 <= clock.monotonic() - began <= 30, "not one after the other"
    assert slept
