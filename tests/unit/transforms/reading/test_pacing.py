"""`max_records_per_second`: the bucket, how processes share a limit, and reads that keep it."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio import ReadFromRocketMQ
from rmqio.errors import LocalError, TransportError
from rmqio.model import MessageQueue
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.topics import Subscription
from rmqio.transforms.reading import pacing, read_fn
from rmqio.transforms.reading.pacing import BURST_S, Pacer, PlanPace, RateLimit, TokenBucket
from tests.helpers.transforms.reading import bodies, counters, fill, read, run_bodies

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]
RATES = st.floats(0.5, 5_000)
STEPS = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3_000), st.integers(1, 40)), max_size=50)


@given(RATES, STEPS)
def test_in_no_span_of_time_more_tokens_go_out_than_the_rate_and_one_burst(rate: float, steps: Any) -> None:
    clock = ManualClock()
    bucket, taken = TokenBucket(rate, clock.monotonic), []
    for pause_s, most, least in steps:
        clock.sleep(pause_s)
        got = bucket.take(most, least)
        assert 0 <= got <= most
        if got < most and got % 3 == 1:  # some tokens are not used
            bucket.give_back(1)
            got -= 1
        taken.append((clock.monotonic(), got))
    burst = max(1.0, rate * BURST_S)
    for begin in range(len(taken)):
        for end in range(begin, len(taken)):
            span_s = taken[end][0] - taken[begin][0]
            assert sum(got for _, got in taken[begin : end + 1]) <= rate * span_s + burst + 1e-6


@given(RATES, st.integers(1, 64))
def test_it_never_waits_longer_than_needed_and_always_gives_in_the_end(rate: float, least: int) -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate, clock.monotonic)
    total, begun = 0, clock.monotonic()
    for _ in range(20):
        clock.sleep(bucket.wait_s(least) + 1e-9)
        total += bucket.take(10_000, least)
    assert total >= 20
    assert total >= rate * (clock.monotonic() - begun) - max(least, rate * BURST_S) - 21


def test_what_is_borrowed_is_paid_before_more_is_given() -> None:
    clock = ManualClock()
    bucket = TokenBucket(10, clock.monotonic)
    assert bucket.take(100) == 5
    bucket.give_back(-20)
    clock.sleep(2.0)
    assert bucket.take(1) == 0
    clock.sleep(0.2)
    assert bucket.take(1) == 1


def pacer(clock: ManualClock, rate: float = 1_000, *, total: Any = 4, alone: bool = False) -> Pacer:
    def count() -> int:
        if isinstance(total, Exception):
            raise total
        return int(total)

    limit = RateLimit(rate, Subscription(topics=("t",)), "id", alone=alone)
    return Pacer(limit, count, clock.monotonic, clock.sleep)


def taken_in(made: Pacer, clock: ManualClock, queues: Sequence[Hashable], seconds: float) -> int:
    total, end = 0, clock.monotonic() + seconds
    while clock.monotonic() < end:
        for queue in queues:
            total += made.take(queue, 100, clock.monotonic() + 0.05)[0]
    return total


@pytest.mark.parametrize(
    ("queues", "arguments", "rate"),
    [
        (1, {}, 250),
        (2, {}, 500),
        (4, {}, 1_000),
        (1, {"alone": True}, 1_000),
        (2, {"total": TransportError("away")}, 1_000),  # nothing could be read either
    ],
)
def test_a_process_gets_the_part_of_its_queues(queues: int, arguments: dict[str, Any], rate: int) -> None:
    clock = ManualClock()
    made = pacer(clock, **arguments)
    taken_in(made, clock, QUEUES[:queues], 2)
    assert taken_in(made, clock, QUEUES[:queues], 10) == pytest.approx(rate * 10, rel=0.06)


def test_a_queue_that_is_no_longer_read_here_takes_its_part_along() -> None:
    clock = ManualClock()
    made = pacer(clock)
    taken_in(made, clock, QUEUES[:2], 2)
    made.done(QUEUES[1])
    assert taken_in(made, clock, QUEUES[:1], 10) == pytest.approx(2_500, rel=0.06)


@pytest.mark.parametrize("rate", [0.7, 10.0, 1_000.0, 20_000.0])
def test_processes_together_do_not_emit_more_at_once_than_a_seconds_worth(rate: float) -> None:
    clock = ManualClock()
    emitted = 0
    for queue in QUEUES:  # each is read by a process of its own, whose answers are large
        made = pacer(clock, rate)
        taken, _ = made.take(queue, 512, clock.monotonic())
        allowed = made.cut_at(taken)
        made.give_back(taken - allowed)
        emitted += allowed
    assert emitted <= max(rate, len(QUEUES))


def test_tasks_that_read_parts_of_one_queue_share_what_it_may() -> None:
    clock = ManualClock()
    limit = RateLimit(1_000, Subscription(topics=("t",)), "id", splits_per_queue=4)
    made = Pacer(limit, lambda: 1, clock.monotonic, clock.sleep)  # of one of four processes
    taken_in(made, clock, QUEUES[:1], 2)
    assert taken_in(made, clock, QUEUES[:1], 10) == pytest.approx(2_500, rel=0.06)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_tasks_of_one_process_have_the_share_of_their_parts(parts: int) -> None:
    """As of Flink, whose tasks are threads of one worker."""
    clock = ManualClock()
    limit = RateLimit(1_000, Subscription(topics=("t",)), "id", splits_per_queue=4)
    made = Pacer(limit, lambda: 1, clock.monotonic, clock.sleep)
    stops = [(QUEUES[0], 100 * part) for part in range(parts)]
    taken_in(made, clock, stops, 2)
    assert taken_in(made, clock, stops, 10) == pytest.approx(2_500 * parts, rel=0.06)


@given(RATES, st.lists(st.floats(0, 70), min_size=1, max_size=30))
def test_plans_are_worth_the_time_since_the_last_one(rate: float, pauses: list[float]) -> None:
    clock = ManualClock()
    pace = PlanPace(rate, clock.monotonic)
    total = pace.due()
    for pause_s in pauses:
        clock.sleep(pause_s)
        total += pace.due()
    counted_s = sum(min(pause_s, 60) for pause_s in pauses)
    assert total == pytest.approx(rate * (counted_s + BURST_S), abs=1.01)


def test_a_read_keeps_its_limit_and_loses_nothing(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(pacing, "Pacer", functools.partial(Pacer, clock=clock.monotonic, sleep=clock.sleep))
    monkeypatch.setattr(read_fn, "time", clock)
    queues = fill(cluster, 40, 30)
    expected = bodies(queues[0], range(40)) + bodies(queues[1], range(30))
    result = run_bodies(read(cluster, max_records_per_second=100), expected)
    assert clock.monotonic() == pytest.approx(0.2, abs=0.02), "70 records, of which 50 are a burst"
    assert counters(result)["paced_ms"] == pytest.approx(200, abs=20)


def test_a_limit_below_one_answer_cuts_it(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 12)
    result = run_bodies(read(cluster, max_records_per_second=20), bodies(queue, range(12)))
    assert counters(result)["records_read"] == 12


@pytest.mark.parametrize("value", [0, -1, "5", True, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(
        LocalError, match=re.escape(f"max_records_per_second is {value!r}; it must be a number above 0")
    ):
        ReadFromRocketMQ("t", name_server="a:1", max_records_per_second=value)
