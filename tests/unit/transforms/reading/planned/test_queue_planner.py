"""The ranges that a planning runner gets to read: where it begins, how far it goes, how it ends, what it commits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio import MessageQueue, ReadOptions, StartFrom, StopAt
from rmqio.errors import QueueGone, TopicNotExist
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.reading import planned
from rmqio.transforms.reading.planned import name_of, queue_of
from rmqio.transforms.shared import shared_client
from tests.helpers.client.planning import ALL, N0, N1, TriggerLimits, advance, planner_of, ranges
from tests.helpers.transforms.reading import T0, append, fill

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)

# ---- where it begins ------------------------------------------------------------------------------------------------

STARTS = [
    (StartFrom.earliest(), {N0: (2, 10), N1: (0, 4)}),
    (StartFrom.latest(), {}),
    (StartFrom.timestamp(T0 + 3000), {N0: (3, 10), N1: (3, 4)}),
    (StartFrom.group_offsets("earliest"), {N0: (6, 10), N1: (0, 4)}),
    (StartFrom.specific_offsets({Q1: 1}, "latest"), {N0: (6, 10), N1: (1, 4)}),
]


@pytest.mark.parametrize(("start", "expected"), STARTS, ids=lambda each: getattr(each, "kind", ""))
def test_a_new_stream_begins_where_the_strategy_says(
    start: StartFrom, expected: dict[str, tuple[int, int]], clocked: InMemoryCluster
) -> None:
    fill(clocked, 10, 4)
    clocked.delete_before(Q0, 2)
    shared_client(InMemoryClientFactory(clocked.name)).commit_offset("g", Q0, 6)
    planner = planner_of(clocked, start=start, group="g")
    first = advance(planner, None)
    assert ranges(planner, None, first) == expected
    append(clocked, Q0, 5)
    second = advance(planner, first)
    assert ranges(planner, first, second) == {N0: (10, 15)}
    assert ranges(planner, None, first) == expected, "however often it is asked"
    assert ranges(planner, second, advance(planner, second)) == {}


def test_another_planner_goes_on_at_a_position_and_ignores_the_start(clocked: InMemoryCluster) -> None:
    fill(clocked, 10)
    first = advance(planner_of(clocked), None)
    append(clocked, Q0, 3)
    planner = planner_of(clocked, start=StartFrom.latest())
    assert ranges(planner, first, advance(planner, first)) == {N0: (10, 13)}


@pytest.mark.parametrize(("stop", "is_bounded"), [(None, False), (StopAt.latest(), True)])
def test_a_read_with_a_stop_is_bounded(stop: StopAt | None, is_bounded: bool, clocked: InMemoryCluster) -> None:
    clocked.create_topic("t")
    assert planner_of(clocked, stop=stop).is_bounded == is_bounded


def test_a_topic_that_is_not_there_is_an_error(clocked: InMemoryCluster) -> None:
    with pytest.raises(TopicNotExist):
        planner_of(clocked).advance(None, ALL, False)


# ---- how far --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6), st.integers(1, 200))
def test_a_limit_is_shared_by_what_queues_have_and_used_up(counts: list[int], most: int) -> None:
    left = {f"t/b/{number}": count for number, count in enumerate(counts) if count}
    shares = planned._shares(left, most, sum(counts))
    assert sum(shares.values()) == min(most, sum(left.values()))
    for name, share in shares.items():
        assert 0 <= share <= left[name]
        assert abs(share - min(1, most / sum(left.values())) * left[name]) <= 1


def test_no_queue_waits_for_ever_however_small_the_limit(clocked: InMemoryCluster) -> None:
    fill(clocked, 50, 50)
    planner = planner_of(clocked)
    position: Any = None
    for _ in range(60):
        position = advance(planner, position, TriggerLimits(max_records=1))
        append(clocked, Q0, 1)
    assert min(each["at"] for each in position["queues"].values()) > 15


def test_micro_batches_of_a_limit_read_everything_once(clocked: InMemoryCluster) -> None:
    fill(clocked, 90, 10)
    planner = planner_of(clocked)
    position, found = None, []
    for _ in range(5):
        following = advance(planner, position, TriggerLimits(max_records=30))
        found.append(ranges(planner, position, following))
        position = following
    assert found[0] == {N0: (0, 27), N1: (0, 3)}
    assert [sum(end - begin for begin, end in each.values()) for each in found] == [30, 30, 30, 10, 0]
    assert planner.lag(position) == {"t": 0}


def test_a_limit_of_bytes_counts_by_the_size_of_what_comes_next(clocked: InMemoryCluster) -> None:
    clocked.create_topic("t", 1)
    for _ in range(100):
        clocked.append("t", bytes(1000))
    size = clocked.records("t")[0].stored_size
    planner = planner_of(clocked)
    position = advance(planner, None, TriggerLimits(max_bytes=10 * size))
    assert ranges(planner, None, position) == {N0: (0, 10)}
    assert ranges(planner, None, advance(planner, None, TriggerLimits(max_bytes=1))) == {N0: (0, 1)}, "never nothing"
    assert ranges(planner, None, advance(planner, None, TriggerLimits(3, 10 * size))) == {N0: (0, 3)}


def test_lag_is_what_is_left_by_topic(clocked: InMemoryCluster) -> None:
    fill(clocked, 10, 5)
    fill(clocked, 7, topic="u")
    planner = planner_of(clocked, ["t", "u"])
    assert planner.lag(None) == {}
    position = advance(planner, None, TriggerLimits(max_records=11))
    lag = planner.lag(position)
    assert set(lag) == {"t", "u"}
    assert sum(lag.values()) == 11
    assert planner.lag(advance(planner, position)) == {"t": 0, "u": 0}


# ---- ends -----------------------------------------------------------------------------------------------------------


def test_a_read_with_a_stop_ends_there(clocked: InMemoryCluster) -> None:
    fill(clocked, 10, 5)
    planner = planner_of(clocked, stop=StopAt.offsets({Q0: 12}))
    first = advance(planner, None, TriggerLimits(max_records=4))
    assert ranges(planner, None, first) == {N0: (0, 4)}, "the other queue is not to be read"
    second = advance(planner, first)
    assert ranges(planner, first, second) == {N0: (4, 10)}
    assert (planner.has_ended(second), planner.is_done(second), set(planner.partitions(second))) == (False, False, {N0})
    append(clocked, Q0, 7)
    third = advance(planner, second)
    assert ranges(planner, second, third) == {N0: (10, 12)}
    assert (planner.has_ended(third), planner.is_done(third), planner.partitions(third)) == (True, True, {})
    assert advance(planner, third) == third


@pytest.mark.parametrize(("until_now", "said"), [(True, 1), (False, 0)])
def test_a_run_until_now_says_that_it_can_read_nothing(
    clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture, until_now: bool, said: int
) -> None:
    fill(clocked, 10)
    planner = planner_of(clocked, start=StartFrom.latest())
    first = advance(planner, None, until_now=until_now)
    advance(planner, first, until_now=until_now)
    assert len([text for text in caplog.messages if "reads none of 10 messages" in text]) == said


def test_a_run_until_now_ends_and_the_next_goes_on(clocked: InMemoryCluster) -> None:
    fill(clocked, 10)
    planner = planner_of(clocked)
    first = advance(planner, None, TriggerLimits(max_records=6), until_now=True)
    append(clocked, Q0, 5)
    assert not planner.is_done(first)
    second = advance(planner, first, until_now=True)
    assert ranges(planner, first, second) == {N0: (6, 10)}
    assert planner.is_done(second)
    assert not planner.has_ended(second), "more may come, in another run"
    assert set(planner.partitions(second)) == {N0}
    following = planner_of(clocked)
    third = advance(following, second, until_now=True)
    append(clocked, Q0, 1)
    assert ranges(following, second, third) == {N0: (10, 15)}
    assert following.is_done(third)
    endless = planner_of(clocked)
    fourth = advance(endless, third)
    assert ranges(endless, third, fourth) == {N0: (15, 16)}
    assert not endless.is_done(fourth)


# ---- commits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "commit", "expected"), [("g", True, 7), ("g", False, None), (None, True, None)])
def test_offsets_are_committed_for_a_group_that_wants_it(
    group: str | None, commit: bool, expected: int | None, clocked: InMemoryCluster
) -> None:
    fill(clocked, 7)
    planner = planner_of(clocked, group=group, options=ReadOptions(commit_offsets=commit))
    planner.committed(None)
    position = advance(planner, None)
    assert clocked.committed("g", Q0) is None
    planner.committed(position)
    assert clocked.committed("g", Q0) == expected


def test_offsets_are_committed_once_an_interval_and_when_the_run_ends(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(clocked, 7)
    planner = planner_of(clocked, group="g", options=ReadOptions(offset_commit_interval_ms=5_000))
    now = [100.0]
    monkeypatch.setattr("rmqio.transforms.reading.commits.time", SimpleNamespace(monotonic=lambda: now[0]))
    position = None
    for seconds, expected in [(0.0, 7), (4.9, 7), (0.2, 9), (1.0, 9)]:
        now[0] += seconds
        position = advance(planner, position)
        planner.committed(position)
        assert clocked.committed("g", Q0) == expected
        append(clocked, Q0, 1)
    planner.committed(advance(planner, position), last=True)
    assert clocked.committed("g", Q0) == 11


@pytest.mark.parametrize("read_to_its_end", [False, True])
def test_a_queue_that_was_removed_is_an_error_unless_it_was_read_to_its_end(
    read_to_its_end: bool, clocked: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The read of a restart, or a running one. If the queue is given back, the read goes on where it was."""
    fill(clocked, 5, 7)
    position = advance(planner_of(clocked), None, ALL if read_to_its_end else TriggerLimits(max_records=8))
    removed = clocked.stored_topic("t").queues.pop(queue_of(N1))
    planner = planner_of(clocked)
    if not read_to_its_end:
        with pytest.raises(QueueGone, match=r"t/broker-a/1 does not exist.* 3 messages or more .*update t --queues N"):
            planner.advance(position, ALL, False)
        clocked.stored_topic("t").queues[queue_of(N1)] = removed
        assert ranges(planner, position, advance(planner, position))[N1] == (4, 7)
        return
    append(clocked, Q0, 2)
    for _ in range(2):
        before, position = position, advance(planner, position)
    assert caplog.text.count("goes on without it from offset 7, its end when it was last seen") == 1
    assert (position["queues"][N0]["at"], before["queues"][N0]["at"]) == (7, 7)
    clocked.stored_topic("t").queues[queue_of(N1)] = removed
    append(clocked, Q1, 1)
    assert ranges(planner, position, advance(planner, position)) == {N1: (7, 8)}


def test_names_of_queues_are_read_back() -> None:
    queue = MessageQueue("%RETRY%g", "broker/with/slashes", 12)
    assert queue_of(name_of(queue)) == queue
