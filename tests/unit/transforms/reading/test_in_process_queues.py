"""Queues that the endless read finds, when it looks for them, and where they begin."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from apache_beam.runners.sdf_utils import RestrictionTrackerView
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio import MessageQueue, ReadOptions, StartFrom
from rmqio.errors import BrokerSilent, LocalError, TopicNotExist, TransportError
from rmqio.start import StartOffsetError
from rmqio.testing import InMemoryCluster
from rmqio.transforms.reading.discovery import Known
from rmqio.transforms.reading.in_process import Subscribed
from rmqio.transforms.shared import shared_client
from tests.helpers.transforms.reading import T0, SubscriptionBundles, append, bodies, fill, read_begins_at

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)

# ---- where queues start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartFrom.earliest(), {Q0: 0, Q1: 0}),
        (StartFrom.latest(), {Q0: 5, Q1: 3}),
        (StartFrom.timestamp(T0 + 1500), {Q0: 1, Q1: 1}),
        (StartFrom.specific_offsets({Q0: 4}, "latest"), {Q0: 4, Q1: 3}),
        (StartFrom.group_offsets("earliest"), {Q0: 2, Q1: 0}),
    ],
    ids=["earliest", "latest", "time", "offsets", "group"],
)
@pytest.mark.parametrize("new_queue_start", ["earliest", "latest"])
@pytest.mark.parametrize("committed", [None, 1])
def test_the_first_queues_start_by_the_strategy_and_new_ones_at_the_groups_offset_or_new_queue_start(
    clocked: InMemoryCluster,
    start: StartFrom,
    first: dict[MessageQueue, int],
    new_queue_start: Literal["earliest", "latest"],
    committed: int | None,
) -> None:
    fill(clocked, 5, 3)
    clocked.commit("g", Q0, 2)
    bundles = SubscriptionBundles(clocked, start=start, new_queue_start=new_queue_start)
    assert bundles.bundle() == bodies(Q0, range(first[Q0], 5)) + bodies(Q1, range(first[Q1], 3))
    (q2,) = clocked.add_queues("t", 1)
    append(clocked, q2, 4)
    old = range(4) if new_queue_start == "earliest" else range(0)
    if committed is not None:
        clocked.commit("g", q2, committed)
        old = range(committed, 4) if start.needs_group else old
    assert bundles.bundle() == bodies(q2, old)
    append(clocked, q2, 2)
    append(clocked, Q0, 1)
    assert bundles.bundle() == bodies(Q0, [5]) + bodies(q2, [4, 5])
    assert bundles.starts == {Q0: 6, Q1: 3, q2: 6}
    assert bundles.left.known == Known({Q0, Q1, q2})


@pytest.mark.parametrize("new_queue_start", ["earliest", "latest"])
@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartFrom.earliest(), 0),
        (StartFrom.latest(), 3),
        (StartFrom.timestamp(T0 + 1_500), 1),
        (StartFrom.group_offsets("latest"), 3),
        (StartFrom.group_offsets("earliest"), 0),
        (StartFrom.specific_offsets({Q0: 4}, "latest"), 3),
    ],
    ids=["earliest", "latest", "time", "group-latest", "group-earliest", "offsets"],
)
def test_a_queue_whose_broker_was_away_at_the_start_begins_as_if_it_had_been_there(
    clocked: InMemoryCluster, start: StartFrom, first: int, new_queue_start: Literal["earliest", "latest"]
) -> None:
    fill(clocked, 5)
    bundles = SubscriptionBundles(clocked, start=start, new_queue_start=new_queue_start)
    with read_begins_at(T0 + 3_000):  # three of its messages are older
        bundles.bundle()
    (q1,) = clocked.add_queues("t", 1)
    append(clocked, q1, 5)
    assert bundles.bundle() == bodies(q1, range(first, 5))
    assert bundles.bundle() == []


def test_a_late_queue_without_an_offset_is_refused_where_reset_is_error_but_not_a_new_one(
    clocked: InMemoryCluster,
) -> None:
    fill(clocked, 5)
    clocked.commit("g", Q0, 0)
    bundles = SubscriptionBundles(clocked, start=StartFrom.group_offsets("error"))
    with read_begins_at(T0 + 3_000):
        bundles.bundle()
    q1, _ = clocked.add_queues("t", 2)
    assert bundles.bundle() == [], "both are new"
    append(clocked, q1, 1)
    assert bundles.bundle() == bodies(q1, [0])
    (q3,) = clocked.add_queues("t", 1)
    append(clocked, q3, 1)
    with pytest.raises(StartOffsetError, match="has no offset for"):
        bundles.bundle()


def test_queues_of_a_silent_broker_wait_and_hold_the_watermark_while_the_others_are_read(
    clocked: InMemoryCluster,
) -> None:
    fill(clocked, 3, 4)
    clocked.fail_next("max_offset", BrokerSilent("broker-a is silent"), times=1, queue=Q1)
    bundles = SubscriptionBundles(clocked, start=StartFrom.timestamp(T0 + 1_000), interval_ms=60_000)
    assert bundles.bundle() == bodies(Q0, [1, 2])
    assert bundles.watermark == MIN_TIMESTAMP
    bundles.fn._looked_at = float("-inf")  # a second later
    assert bundles.bundle() == bodies(Q1, [1, 2, 3])
    bundles.bundle()
    assert bundles.watermark > MIN_TIMESTAMP


def test_a_pattern_that_matches_nothing_yet_is_looked_up_again_and_what_comes_is_new(
    clocked: InMemoryCluster,
) -> None:
    bundles = SubscriptionBundles(clocked, re.compile("t+"), start=StartFrom.specific_offsets({Q0: 2}, "earliest"))
    assert bundles.bundle() == []
    assert bundles.left == Subscribed(Known())
    assert bundles.left.known.began_ms == T0
    fill(clocked, 4, 3)
    # Its topics came after the start, so nothing in them is old, whatever the start strategy says of queues not named.
    assert bundles.bundle() == bodies(Q0, [2, 3]) + bodies(Q1, range(3))


def test_only_the_subscribed_queues_are_read(clocked: InMemoryCluster) -> None:
    fill(clocked, 2, 2)
    bundles = SubscriptionBundles(clocked, Q1)
    assert bundles.bundle() == bodies(Q1, range(2))
    clocked.add_queues("t", 1)
    bundles.bundle()
    assert bundles.left.known == Known({Q1})


# ---- looking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation"), ["queues", "min_offset"])
def test_an_error_of_the_first_look_is_raised_and_of_a_later_one_survived_and_logged(
    clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture, operation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "rmqio")
    monkeypatch.setattr("rmqio.transforms.reading.discovery._warned_at", {})
    fill(clocked, 2)
    clocked.fail_next(operation, TransportError("reset"))
    bundles = SubscriptionBundles(clocked)
    with pytest.raises(TransportError, match="reset"):
        bundles.bundle()
    assert bundles.bundle() == bodies(Q0, range(2))
    assert caplog.records == [], "what is raised is not logged too, and the first queues are not new"
    (q1,) = clocked.add_queues("t", 1)
    append(clocked, Q0, 1)
    append(clocked, q1, 1)
    clocked.fail_next(operation, TransportError("reset"))
    assert bundles.bundle() == bodies(Q0, [2]), "what is known is read on"
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    unknown = {
        "queues": "t: queues could not be looked up: reset",
        "min_offset": "t: queues wait for a broker that does not answer: reset",
    }
    assert caplog.messages == [unknown[operation]]
    assert bundles.bundle() == bodies(q1, [0]), "found by the next look"
    assert caplog.messages[1:] == [f"t: found 1 more queues: {q1} from 0"]


def test_a_missing_topic_fails_the_first_look_and_a_deleted_one_is_not_a_reason_to_stop_looking(
    clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicNotExist, match="gone"):
        SubscriptionBundles(clocked, "gone").bundle()
    fill(clocked, 1)
    with pytest.raises(LocalError, match="does not exist"):
        SubscriptionBundles(clocked, Q1).bundle()
    fill(clocked, 1, topic="u")
    bundles = SubscriptionBundles(clocked, ["t", "u"])
    bundles.bundle()
    clocked.delete_topic("u")
    clocked.add_queues("t", 1)
    bundles.fn._look(RestrictionTrackerView(bundles._open(bundles.left)))
    assert caplog.records == []


def test_it_looks_at_once_and_then_every_interval(clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(clocked, 1)
    now = [1_000.0]
    monkeypatch.setattr("rmqio.transforms.reading.in_process.time", SimpleNamespace(monotonic=lambda: now[0]))
    looks: list[str] = []
    bundles = SubscriptionBundles(clocked, interval_ms=30_000)
    client: Any = shared_client(bundles.config.factory)
    queues = client.queues

    def noted(topic: str, **_: object) -> Any:
        looks.append(topic)
        return queues(topic)

    client.queues = noted
    for seconds, expected in [(0.0, 1), (29.0, 1), (0.9, 1), (0.2, 2), (29.9, 2), (0.1, 3)]:
        now[0] += seconds
        bundles.bundle()
        assert len(looks) == expected


def test_without_any_queue_it_sleeps_instead_of_spinning(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    fake = SimpleNamespace(monotonic=lambda: 0.0, sleep=slept.append)
    monkeypatch.setattr("rmqio.transforms.reading.in_process.time", fake)
    bundles = SubscriptionBundles(clocked, re.compile("none"), options=ReadOptions(poll_timeout_ms=700))
    assert bundles.bundle() == []
    assert slept == [0.7]
