"""A planner and time: idle queues, new queues, and queues whose broker is away."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from rmqio import MessageQueue, ReadOptions, StartFrom, StopAt
from rmqio.errors import BrokerSilent, OffsetOutOfRange, TransportError
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.topics import Subscription
from tests.helpers.client.planning import ALL, N0, N1, TriggerLimits, advance, planner_of, ranges
from tests.helpers.transforms.reading import T0, append, fill

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def test_a_filtered_queue_that_is_read_to_its_end_may_have_given_nothing(
    clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 5, 0)
    options = ReadOptions(idle_timeout_ms=10_000, max_out_of_orderness_ms=2_000)
    assert planner_of(clocked, options=options).silent(advance(planner_of(clocked), None)) == {}, "no filter"
    planner = planner_of(clocked, options=options, message_filter=MessageFilter("wanted"))
    first = advance(planner, None, TriggerLimits(max_records=3))
    assert planner.silent(first) == {}, "there is more in it"
    second = advance(planner, first)
    read_us = (clock.time_ms() - 2_000) * 1000
    assert planner.silent(second) == {N0: (read_us, 10_000_000)}
    clock.advance(5)
    assert planner.silent(advance(planner, second)) == {N0: (read_us, 10_000_000)}, "nothing has come since"
    stopping = planner_of(clocked, options=options, message_filter=MessageFilter("wanted"), stop=StopAt.latest())
    assert stopping.silent(advance(stopping, None)) == {}, "what is at its stop holds nobody back"


def test_a_queue_that_is_idle_for_long_enough_follows_the_clock(clocked: InMemoryCluster, clock: ManualClock) -> None:
    fill(clocked, 3, 0)
    options = ReadOptions(idle_timeout_ms=10_000, max_out_of_orderness_ms=2_000)
    planner = planner_of(clocked, options=options)
    first = advance(planner, None)
    assert planner.partitions(first) == {N0: None, N1: None}
    assert planner.partitions(None) == {}
    clock.advance(9)
    second = advance(planner, first)
    assert planner.partitions(second) == {N0: None, N1: None}
    clock.advance(2)
    third = advance(planner, second)
    behind = (clock.time_ms() - 2_000) * 1000
    assert planner.partitions(third) == {N0: None, N1: behind}, "the other one has been idle for two seconds only"
    append(clocked, Q1, 1)
    clock.advance(9)
    fourth = advance(planner, third)
    assert planner.partitions(fourth) == {N0: (clock.time_ms() - 2_000) * 1000, N1: behind}, "what has come is not idle"
    assert ranges(planner, third, fourth) == {N1: (0, 1)}
    assert planner.partitions(advance(planner, fourth))[N1] == behind, "its time counts from when it was read"


@pytest.mark.parametrize(("new_queue_start", "begin"), [("earliest", 0), ("latest", 4)])
def test_a_new_queue_is_found_after_the_interval(
    new_queue_start: Literal["earliest", "latest"], begin: int, clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 3)
    planner = planner_of(clocked, new_queue_start=new_queue_start, interval_ms=5_000, start=StartFrom.latest())
    first = advance(planner, None)
    clocked.add_queues("t", 1)
    append(clocked, Q1, 4)
    clock.advance(4.9)
    second = advance(planner, first)
    assert set(second["queues"]) == {N0}
    clock.advance(0.2)
    third = advance(planner, second)
    assert third["began_ms"] == first["began_ms"]
    append(clocked, Q1, 2)
    fourth = advance(planner, third)
    assert set(third["queues"]) == {N0, N1}
    assert ranges(planner, second, fourth) == {N1: (begin, 6)}
    clocked.add_queues("t", 1)
    clock.advance(100)
    assert set(advance(planner_of(clocked, interval_ms=0), fourth)["queues"]) == {N0, N1}, "0: never looked for"


def test_a_queue_whose_broker_is_away_stands_still_and_the_others_go_on(
    clocked: InMemoryCluster, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(clocked, 3, 3)
    planner = planner_of(clocked, options=ReadOptions(idle_timeout_ms=1_000))
    first = advance(planner, None)
    append(clocked, Q0, 2)
    append(clocked, Q1, 2)
    clocked.fail_next("max_offset", TransportError("away"), queue=Q0, times=2)
    second = advance(planner, first)
    assert second["queues"][N0] == first["queues"][N0]
    assert ranges(planner, first, second) == {N1: (3, 5)}
    clock.advance(30)
    third = advance(planner, second)
    assert third["queues"][N0] == first["queues"][N0], "nor does the clock move its watermark"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "said once, not each time"
    assert ranges(planner, third, advance(planner, third)) == {N0: (3, 5)}


def test_a_look_for_queues_that_fails_is_repeated_after_the_interval_and_not_by_each_micro_batch(
    clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 3)
    planner = planner_of(clocked, interval_ms=10_000)
    first = advance(planner, None)
    clocked.add_queues("t", 1)
    clocked.fail_next("queues", TransportError("no name server answers"))
    clock.advance(11)
    second = advance(planner, first)
    third = advance(planner, second)
    assert set(second["queues"]) == set(third["queues"]) == {N0}
    clock.advance(11)
    assert set(advance(planner, third)["queues"]) == {N0, N1}


@pytest.mark.parametrize(("is_restarted", "is_forgotten"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_watermark_waits_for_a_late_queue_whose_broker_is_silent(
    is_restarted: bool,
    is_forgotten: bool,
    clocked: InMemoryCluster,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the name servers forget its broker meanwhile, and the job restarts."""
    fill(clocked, 3)
    planner = planner_of(clocked, interval_ms=1_000, options=ReadOptions(idle_timeout_ms=1_000))
    first = advance(planner, None)
    (late,) = clocked.add_queues("t", 1)
    clocked.fail_next("min_offset", BrokerSilent("silent"), queue=late, times=2)
    clock.advance(5)
    second = advance(planner, first)
    assert planner.partitions(second)[N1] is None
    if is_restarted:
        planner = planner_of(clocked, interval_ms=1_000, options=ReadOptions(idle_timeout_ms=1_000))
        assert planner.partitions(second)[N1] is None, "it is in the checkpoint"
    if is_forgotten:
        found = Subscription.find_queues
        monkeypatch.setattr(Subscription, "find_queues", lambda *args, **named: {*found(*args, **named)} - {late})
        clock.advance(5)
    third = advance(planner, second)
    assert planner.partitions(third)[N1] is None
    clock.advance(5)
    fourth = advance(planner, third)
    assert N1 in fourth["queues"]
    assert fourth["away"] == []


def late_cluster(cluster: InMemoryCluster, clock: ManualClock) -> int:
    """Messages are stored around when a read begins: three before, two after. Returns when it does."""
    clock.advance(T0 / 1000 + 3 - clock.time())
    fill(cluster, 5)
    return T0 + 3_000


@pytest.mark.parametrize("new_queue_start", ["earliest", "latest"])
@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartFrom.earliest(), 0),
        (StartFrom.latest(), 3),
        (StartFrom.timestamp(T0 + 1_500), 1),
        (StartFrom.group_offsets("latest"), 2),
        (StartFrom.specific_offsets({Q0: 0}), 2),
    ],
    ids=lambda each: getattr(each, "kind", ""),
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_queue_that_was_away_at_the_start_begins_as_if_it_had_been_there(
    start: StartFrom,
    first: int,
    new_queue_start: Literal["earliest", "latest"],
    is_restarted: bool,
    clocked: InMemoryCluster,
    clock: ManualClock,
) -> None:
    began_ms = late_cluster(clocked, clock)
    given: dict[str, Any] = {"start": start, "group": "g", "interval_ms": 5_000, "new_queue_start": new_queue_start}
    planner = planner_of(clocked, **given)
    position = advance(planner, None)
    assert position["began_ms"] == began_ms
    clocked.add_queues("t", 1)
    append(clocked, Q1, 5)
    clocked.commit("g", Q1, 2)
    clock.advance(6)
    if is_restarted:
        planner = planner_of(clocked, **given)
    late = advance(planner, position)
    assert ranges(planner, position, late) == {N1: (first, 5)}


def test_a_position_of_an_older_version_is_gone_on_with(clocked: InMemoryCluster, clock: ManualClock) -> None:
    began_ms = late_cluster(clocked, clock)
    planner = planner_of(clocked, start=StartFrom.latest())
    old = advance(planner, None)["queues"]
    append(clocked, Q0, 1)
    planner = planner_of(clocked, start=StartFrom.latest())
    position = advance(planner, old)
    assert ranges(planner, old, position) == {N0: (5, 6)}
    assert position["began_ms"] == began_ms


def test_a_queue_that_did_not_answer_at_the_start_waits_and_is_not_new(
    clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 3, 0)
    clocked.fail_next("max_offset", BrokerSilent("silent"), queue=Q1)
    planner = planner_of(clocked, start=StartFrom.latest(), new_queue_start="latest")
    first = advance(planner, None)
    assert first["waiting"] == [N1]
    assert planner.partitions(first) == {N0: None, N1: None}, "it holds the watermark"
    assert not planner.is_done(first)
    append(clocked, Q1, 2)
    second = advance(planner, first)
    assert second["waiting"] == []
    assert ranges(planner, first, second) == {N1: (0, 2)}, "they were stored after the start"


def test_a_run_until_now_reads_queues_that_wait_and_queues_that_are_new(
    clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 3, 2)
    clocked.fail_next("min_offset", BrokerSilent("silent"), queue=Q1)
    first = advance(planner_of(clocked), None)
    assert first["waiting"] == [N1]
    clocked.add_queues("t", 1)
    append(clocked, MessageQueue("t", "broker-a", 2), 4)
    planner = planner_of(clocked)
    second = advance(planner, first, until_now=True)
    assert ranges(planner, first, second) == {N1: (0, 2), "t/broker-a/2": (0, 4)}
    assert second["waiting"] == []
    assert planner.is_done(second)


def test_a_waiting_queue_that_is_taken_away_holds_nobody_back(clocked: InMemoryCluster, clock: ManualClock) -> None:
    fill(clocked, 3)
    fill(clocked, 2, topic="u")
    gone = MessageQueue("u", "broker-a", 0)
    clocked.fail_next("min_offset", BrokerSilent("silent"), queue=gone)
    planner = planner_of(clocked, ["t", "u"], interval_ms=5_000)
    first = advance(planner, None)
    assert first["waiting"] == ["u/broker-a/0"]
    clocked.delete_topic("u")
    clocked.add_queues("t", 1)
    clock.advance(6)
    second = advance(planner, first)
    assert second["waiting"] == []
    assert set(second["queues"]) == set(planner.partitions(second)) == {N0, N1}


@pytest.mark.parametrize(("stop", "until_now"), [(StopAt.latest(), False), (None, True)])
def test_a_read_that_ends_fails_at_once_when_a_broker_does_not_say_where(
    stop: StopAt | None, until_now: bool, clocked: InMemoryCluster
) -> None:
    fill(clocked, 3, 3)
    planner = planner_of(clocked, stop=stop)
    clocked.fail_next("max_offset", BrokerSilent("broker-a is silent"), queue=Q1)
    with pytest.raises(BrokerSilent, match="broker-a is silent"):
        planner.advance(None, ALL, until_now)
    first = advance(planner, None, until_now=until_now)
    again = planner_of(clocked, stop=stop)
    assert ranges(planner, None, first) == {N0: (0, 3), N1: (0, 3)}
    if until_now:  # the next run
        clocked.fail_next("max_offset", BrokerSilent("broker-a is silent"), queue=Q1)
        with pytest.raises(BrokerSilent, match="broker-a is silent"):
            again.advance(first, ALL, until_now)


def test_a_range_that_was_cut_short_is_planned_again_and_its_clock_stands_still(
    clocked: InMemoryCluster, clock: ManualClock
) -> None:
    fill(clocked, 10, 10)
    planner = planner_of(clocked, message_filter=MessageFilter("wanted"), group="g")
    first = advance(planner, None)
    assert set(planner.silent(first)) == {N0, N1}
    cut = planner.shortened(first, {N0: 4})
    assert cut is not None
    assert set(planner.silent(cut)) == {N1}
    assert planner.lag(cut) == {"t": 6}
    assert planner.shortened(first, {}) is first
    planner.committed(cut)
    assert (clocked.committed("g", Q0), clocked.committed("g", Q1)) == (4, 10)
    second = advance(planner, cut)
    assert ranges(planner, cut, second) == {N0: (4, 10)}


@pytest.mark.parametrize(
    ("stop", "until_now", "permitted", "may_cut"),
    [
        (None, False, True, True),
        (None, False, False, False),
        (StopAt.latest(), False, True, False),
        (None, True, True, False),
    ],
)
def test_what_ends_is_never_cut_short_nor_where_the_runner_forbids_it(
    stop: StopAt | None, until_now: bool, permitted: bool, may_cut: bool, clocked: InMemoryCluster
) -> None:
    fill(clocked, 3)
    planner = planner_of(clocked, stop=stop)
    position = advance(planner, None, TriggerLimits(may_cut=permitted), until_now=until_now)
    assert [element[5] for element, _ in planner.elements(None, position)] == [may_cut]
    another = planner_of(clocked, stop=stop)  # of a driver that runs the micro-batch again
    assert [element[5] for element, _ in another.elements(None, position)] == [False]
    again = [element[5] for element, _ in planner.elements(None, position, True)]
    assert again == [False], "nor what may have been read before"


def test_nothing_begins_before_a_broker_answers(clocked: InMemoryCluster) -> None:
    fill(clocked, 3)
    planner = planner_of(clocked)
    clocked.fail_next("queues", TransportError("away"))
    assert planner.advance(None, ALL, False) is None
    assert (planner.is_done(None), planner.has_ended(None), list(planner.elements(None, None))) == (False, False, [])
    assert ranges(planner, None, advance(planner, None)) == {N0: (0, 3)}


def test_a_topic_that_was_made_anew_is_an_error(clocked: InMemoryCluster) -> None:
    fill(clocked, 10)
    planner = planner_of(clocked)
    position = advance(planner, None)
    clocked.delete_topic("t")
    fill(clocked, 4)
    with pytest.raises(OffsetOutOfRange, match=r"10.*\[0, 4"):
        planner.advance(position, ALL, False)
