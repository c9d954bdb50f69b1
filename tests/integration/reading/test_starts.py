"""A read of a real broker starts and stops at exactly the offsets that its options give."""

from __future__ import annotations

import dataclasses
import re
import time
import uuid
from typing import Any

import apache_beam as beam
import pytest

from rmqio import MessageQueue, QueueDescriptor, ReadAllFromRocketMQ, ReadOptions, StartFrom, StopAt
from rmqio.transforms.reading.read_fn import ReadQueueFn
from tests.helpers.ledgers.ledger import QUICK, Lab, Run, check, failure, finished, new_group, running
from tests.integration.reading.test_endless import bundles_of

pytestmark = pytest.mark.broker


def options(**changes: Any) -> ReadOptions:
    return dataclasses.replace(QUICK, **changes)


def span(begin: int, end: int) -> list[int]:
    return list(range(begin, end))


NONE: dict[MessageQueue, list[int]] = {}

# ---- earliest and latest --------------------------------------------------------------------------------------------


def test_earliest_to_latest_is_everything_once_and_in_order(lab: Lab) -> None:
    queues = lab.topic(1_000, 0, 70)
    run = finished(lab.read(queues[0].topic, stop=StopAt.latest()))
    assert run.offsets == {queues[0]: span(0, 1_000), queues[2]: span(0, 70)}
    assert not check(run.entries, lab.sent_to(*queues))
    assert (run.counters["records_read"], run.counters.get("offsets_skipped", 0)) == (1_070, 0)


@pytest.mark.parametrize("discovery_interval_ms", [30_000, 0], ids=["looks for queues", "looks once"])
def test_latest_is_only_what_comes_after_the_start(lab: Lab, discovery_interval_ms: int) -> None:
    q0, q1 = lab.topic(30, 0)
    group = new_group()
    read = lab.read(
        q0.topic,
        start=StartFrom.latest(),
        consumer_group=group,
        options=options(discovery_interval_ms=discovery_interval_ms),
    )
    with running(read, stop_after=23) as run:
        # It commits where it stands before it has read anything: then it has started.
        lab.until_committed(run, group, {q0: 30, q1: 0})
        lab.send(q0, 20)
        lab.send(q1, 3)
    assert run.offsets == {q0: span(30, 50), q1: span(0, 3)}


def test_without_a_start_and_a_group_it_starts_at_the_latest(lab: Lab) -> None:
    (queue,) = lab.topic(30)
    assert finished(lab.read(queue.topic, start=None, stop=StopAt.latest())).offsets == NONE


def test_latest_to_latest_is_nothing(lab: Lab) -> None:
    (queue,) = lab.topic(30)
    assert finished(lab.read(queue.topic, start=StartFrom.latest(), stop=StopAt.latest())).offsets == NONE


# ---- a point in time ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(lab: Lab) -> tuple[MessageQueue, int, int, int]:
    """A queue of which offsets 0..9, 10..19 and 20..29 were stored well apart, and the times of 0, 10 and 29."""
    (queue,) = lab.topic(10)
    for _ in range(2):
        time.sleep(0.05)
        lab.send(queue, 10)
    times = [lab.store_time(queue, offset) for offset in (0, 9, 10, 19, 20, 29)]
    assert times[1] + 1 < times[2], "the test needs a pause between the messages"
    assert times[3] + 1 < times[4], "the test needs a pause between the messages"
    return queue, times[0], times[2], times[5]


@pytest.mark.parametrize("policy", ["latest", "fail"])
def test_from_a_time_that_the_queue_covers(lab: Lab, timed: tuple[MessageQueue, int, int, int], policy: Any) -> None:
    queue, first, middle, last = timed
    for t, begin in ((first - 3_600_000, 0), (first, 0), (middle - 1, 10), (middle, 10), (middle / 1000, 10)):
        read = lab.read(
            queue.topic,
            start=StartFrom.timestamp(t),
            stop=StopAt.latest(),
            options=options(on_timestamp_after_end=policy),
        )
        assert finished(read).offsets == {queue: span(begin, 30)}, (t, begin)
    read = lab.read(queue.topic, start=StartFrom.timestamp(last), stop=StopAt.latest())
    assert finished(read).offsets[queue][-1] == 29


@pytest.mark.parametrize("ahead_ms", [1, 3_600_000], ids=["just behind the end", "in the future"])
def test_from_a_time_behind_the_end_waits_there_or_fails(lab: Lab, ahead_ms: int) -> None:
    (queue,) = lab.topic(10)
    start = StartFrom.timestamp(lab.store_time(queue, 9) + ahead_ms)
    assert finished(lab.read(queue.topic, start=start, stop=StopAt.latest())).offsets == NONE
    group = new_group()
    with running(lab.read(queue.topic, start=start, consumer_group=group), stop_after=5) as run:
        lab.until_committed(run, group, {queue: 10})
        lab.send(queue, 5)
    assert run.offsets == {queue: span(10, 15)}
    late = StartFrom.timestamp(lab.store_time(queue, 14) + ahead_ms)
    strict = options(on_timestamp_after_end="fail")
    for stop in (StopAt.latest(), None):
        text = failure(lab.read(queue.topic, start=late, stop=stop, options=strict))
        assert "holds no message stored at or after" in text


def test_up_to_a_time(lab: Lab, timed: tuple[MessageQueue, int, int, int]) -> None:
    queue, first, middle, last = timed
    for t, end in ((first, 0), (first - 1000, 0), (middle, 10), (middle - 1, 10), (last + 1, 30), (last + 10**7, 30)):
        run = finished(lab.read(queue.topic, stop=StopAt.timestamp(t)))
        assert run.offsets == ({queue: span(0, end)} if end else NONE), (t, end)
    run = finished(lab.read(queue.topic, start=StartFrom.timestamp(middle), stop=StopAt.timestamp(middle)))
    assert run.offsets == NONE


# ---- the group's offsets, and specific ones -------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "of_unknown"), [("earliest", span(0, 40)), ("latest", None), ("error", None)])
def test_group_offsets_and_the_reset_where_there_are_none(lab: Lab, reset: Any, of_unknown: list[int] | None) -> None:
    q0, q1 = lab.topic(30, 40)
    group = new_group()
    lab.client.commit_offset(group, q0, 20)

    def read() -> Any:
        return lab.read(q0.topic, start=StartFrom.group_offsets(reset), consumer_group=group, stop=StopAt.latest())

    if reset == "error":
        text = failure(read())
        assert f"{group!r} has no offset for {q1}" in text
        lab.client.commit_offset(group, q1, 0)
        assert finished(read()).offsets == {q0: span(20, 30), q1: span(0, 40)}
    else:
        expected = {q0: span(20, 30)} | ({q1: of_unknown} if of_unknown else {})
        assert finished(read()).offsets == expected


def test_group_offsets_are_the_default_start_of_a_group_and_its_reset_is_latest(lab: Lab) -> None:
    q0, _ = lab.topic(30, 40)
    group = new_group()
    lab.client.commit_offset(group, q0, 20)
    read = lab.read(q0.topic, start=None, consumer_group=group, stop=StopAt.latest())
    assert finished(read).offsets == {q0: span(20, 30)}


def test_group_offset_zero_is_an_offset(lab: Lab) -> None:
    (queue,) = lab.topic(30)
    group = new_group()
    lab.client.commit_offset(group, queue, 0)
    read = lab.read(queue.topic, start=StartFrom.group_offsets("latest"), consumer_group=group, stop=StopAt.latest())
    assert finished(read).offsets == {queue: span(0, 30)}


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_specific_offsets_then_the_groups_then_the_reset(lab: Lab, reset: Any) -> None:
    q0, q1, q2 = lab.topic(30, 30, 30)
    group = new_group()
    lab.client.commit_offset(group, q0, 29)  # a named queue's own does not count
    lab.client.commit_offset(group, q1, 5)
    start = StartFrom.specific_offsets({q0: 10}, reset=reset)
    read = lab.read(q0.topic, start=start, consumer_group=group, stop=StopAt.latest())
    if reset == "error":
        assert f"has no offset for {q2}" in failure(read)
        return
    expected = {q0: span(10, 30), q1: span(5, 30)} | ({q2: span(0, 30)} if reset == "earliest" else {})
    assert finished(read).offsets == expected


def test_specific_offsets_without_a_group(lab: Lab) -> None:
    q0, q1 = lab.topic(30, 30)
    for reset, of_other in (("earliest", {q1: span(0, 30)}), ("latest", NONE)):
        start = StartFrom.specific_offsets({q0: 30 - 1}, reset=reset)  # type: ignore[arg-type]
        assert finished(lab.read(q0.topic, start=start, stop=StopAt.latest())).offsets == {q0: [29]} | of_other


BEHIND = "offset 31 is not available; the broker holds [0, 30)"


def test_a_read_without_end_fails_at_an_offset_behind_the_end(lab: Lab) -> None:
    (queue,) = lab.topic(30)
    assert BEHIND in failure(lab.read(queue.topic, start=StartFrom.specific_offsets({queue: 31})))


@pytest.mark.parametrize("by", ["specific", "group"])
def test_an_offset_behind_the_end_fails_or_goes_where_the_policy_says(lab: Lab, by: str) -> None:
    (queue,) = lab.topic(30)
    group = new_group()
    lab.client.commit_offset(group, queue, 31)
    start = StartFrom.specific_offsets({queue: 31}) if by == "specific" else StartFrom.group_offsets()
    assert BEHIND in failure(lab.read(queue.topic, start=start, consumer_group=group, stop=StopAt.latest()))
    for policy, expected in (("earliest", {queue: span(0, 30)}), ("latest", NONE)):
        chosen = options(on_offset_out_of_range=policy, commit_offsets=False)
        read = lab.read(queue.topic, start=start, consumer_group=group, stop=StopAt.latest(), options=chosen)
        assert finished(read).offsets == expected
    # The end itself is in range: there is nothing yet.
    at_end = StartFrom.specific_offsets({queue: 30})
    assert finished(lab.read(queue.topic, start=at_end, stop=StopAt.latest())).offsets == NONE


def goes_on_waiting(run: Run, begun: list[Any]) -> None:
    """It begins more bundles, in which nothing comes: it has not ended. `begun`: those until now."""
    so_far = len(begun)
    run.wait_until(lambda: len(begun) > so_far + 3, "bundles in which it waits")


# ---- stops ----------------------------------------------------------------------------------------------------------


def test_stop_at_latest_is_the_end_at_the_start(lab: Lab) -> None:
    (queue,) = lab.topic(3_000)
    run = finished(lab.read(queue.topic, stop=StopAt.latest()), steps={1: lambda: lab.send(queue, 500)})
    assert run.offsets == {queue: span(0, 3_000)}


def test_stop_at_offsets_reads_up_to_them_waits_for_them_and_leaves_out_other_queues(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    q0, q1, q2, q3 = lab.topic(50, 50, 50, 50)
    stop = StopAt.offsets({q0: 7, q1: 60, q3: 0})
    begun = bundles_of(monkeypatch, ReadQueueFn)
    with running(lab.read(q0.topic, stop=stop)) as run:
        for end, more in ((50, 9), (59, 20)):
            run.wait_until(lambda end=end: run.offsets.get(q1) == span(0, end), "all that is there")  # type: ignore[misc]
            goes_on_waiting(run, begun)
            lab.send(q1, more)
    assert run.error is None
    assert run.offsets == {q0: span(0, 7), q1: span(0, 60)}
    assert q2 not in run.offsets


def test_a_stop_before_the_start_is_nothing(lab: Lab) -> None:
    (queue,) = lab.topic(50)
    read = lab.read(queue.topic, start=StartFrom.specific_offsets({queue: 20}), stop=StopAt.offsets({queue: 10}))
    assert finished(read).offsets == NONE


def test_max_num_records_bounded(lab: Lab) -> None:
    q0, q1, q2 = lab.topic(100, 2, 100)
    for limit, expected in (
        (12, {q0: span(0, 5), q1: span(0, 2), q2: span(0, 5)}),
        (1, {q0: [0]}),
        (1_000, {q0: span(0, 100), q1: span(0, 2), q2: span(0, 100)}),
    ):
        run = finished(lab.read(q0.topic, stop=StopAt.latest(), options=options(max_num_records=limit)))
        assert run.offsets == expected, limit


def test_max_num_records_without_a_stop_takes_what_is_there(lab: Lab) -> None:
    q0, q1, q2 = lab.topic(100, 2, 100)
    with running(lab.read(q0.topic, options=options(max_num_records=10))) as run:
        pass
    assert run.error is None
    assert run.offsets == {q0: span(0, 4), q1: span(0, 2), q2: span(0, 4)}


def test_max_num_records_without_a_stop_waits_for_what_is_missing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    q0, q1 = lab.topic(3, 1)
    begun = bundles_of(monkeypatch, ReadQueueFn)
    with running(lab.read(q0.topic, options=options(max_num_records=6))) as run:
        run.wait_until(lambda: run.offsets.get(q0) == [0, 1, 2], "what is there")
        goes_on_waiting(run, begun)
        lab.send(q0, 5)
        lab.send(q1, 5)
    assert run.error is None
    assert run.offsets == {q0: span(0, 4), q1: span(0, 2)}


# ---- what is read ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(lab: Lab) -> tuple[str, tuple[MessageQueue, ...]]:
    """Topics `<prefix>-a` (two queues), `<prefix>-B` and `x<prefix>-a`, with ten messages a queue."""
    prefix = f"family{uuid.uuid4().hex[:8]}"
    names = ((f"{prefix}-a", 2), (f"{prefix}-B", 1), (f"x{prefix}-a", 1))
    return prefix, tuple(queue for name, count in names for queue in lab.topic(*[10] * count, name=name))


def test_several_topics_are_read_each_once(lab: Lab, family: tuple[str, tuple[MessageQueue, ...]]) -> None:
    prefix, (a0, a1, b0, _) = family
    run = finished(lab.read([f"{prefix}-a", f"{prefix}-B", f"{prefix}-a"], stop=StopAt.latest()))
    assert run.offsets == dict.fromkeys((a0, a1, b0), span(0, 10))


def test_a_pattern_must_match_the_whole_name(lab: Lab, family: tuple[str, tuple[MessageQueue, ...]]) -> None:
    prefix, (a0, a1, b0, x0) = family
    for pattern, expected in (
        (re.compile(f"{prefix}-[a-z]"), (a0, a1)),
        (re.compile(f"{prefix}-[a-z]", re.IGNORECASE), (a0, a1, b0)),
        (re.compile(f".*{prefix}-a"), (a0, a1, x0)),
        (re.compile(f"{prefix}"), ()),
    ):
        run = finished(lab.read(pattern, stop=StopAt.latest()))
        assert run.offsets == dict.fromkeys(expected, span(0, 10)), pattern


def test_explicit_queues(lab: Lab, family: tuple[str, tuple[MessageQueue, ...]]) -> None:
    _, (_, a1, b0, _) = family
    assert finished(lab.read([b0, a1, b0], stop=StopAt.latest())).offsets == dict.fromkeys((a1, b0), span(0, 10))
    assert finished(lab.read(a1, stop=StopAt.latest())).offsets == {a1: span(0, 10)}


@pytest.mark.parametrize("stop", [StopAt.latest(), None], ids=["bounded", "endless"])
def test_what_is_not_there_is_an_error_at_the_start(lab: Lab, stop: StopAt | None) -> None:
    (queue,) = lab.topic(10)
    assert "TOPIC_NOT_EXIST" in failure(lab.read("no-such-topic", stop=stop))
    assert "TOPIC_NOT_EXIST" in failure(lab.read([queue.topic, "no-such-topic"], stop=stop))
    assert "does not exist" in failure(lab.read(queue._replace(queue_id=1), stop=stop))
    assert "no name server answers" in failure(lab.read(queue.topic, name_server="127.0.0.1:1", stop=stop))


# ---- ReadAll --------------------------------------------------------------------------------------------------------


def read_all(lab: Lab, **arguments: Any) -> ReadAllFromRocketMQ:
    defaults: dict[str, Any] = {"name_server": lab.broker.name_server, "start": StartFrom.earliest(), "options": QUICK}
    return ReadAllFromRocketMQ(**defaults | arguments)


def test_read_all_takes_every_kind_of_element(lab: Lab) -> None:
    a0, a1 = lab.topic(20, 20)
    b0, b1 = lab.topic(20, 20)
    c0, c1, c2, c3 = lab.topic(20, 20, 20, 20)
    elements = [
        a0.topic,
        b1,
        QueueDescriptor(c0),
        QueueDescriptor(c1, start=StartFrom.specific_offsets({c1: 5}), stop=StopAt.offsets({c1: 15})),
        QueueDescriptor(c2, limit=3),
        QueueDescriptor(c3, start=StartFrom.latest()),
    ]
    run = finished(beam.Create(elements), read_all(lab, stop=StopAt.latest()))
    assert run.offsets == {
        a0: span(0, 20),
        a1: span(0, 20),
        b1: span(0, 20),
        c0: span(0, 20),
        c1: span(5, 15),
        c2: span(0, 3),
    }
    assert b0 not in run.offsets


def test_read_all_reads_equal_elements_each(lab: Lab) -> None:
    (queue,) = lab.topic(20)
    run = finished(beam.Create([queue.topic, queue.topic]), read_all(lab, stop=StopAt.latest()))
    assert sorted(run.offsets[queue]) == sorted(2 * span(0, 20))


def test_read_all_without_a_stop_is_endless(lab: Lab) -> None:
    q0, q1 = lab.topic(20, 0)
    with running(beam.Create([q0.topic]), read_all(lab), stop_after=50) as run:
        run.wait_for(20)
        lab.send(q1, 10)
        run.wait_for(30)
        lab.send(q0, 20)
    assert run.offsets == {q0: span(0, 40), q1: span(0, 10)}


def test_read_all_of_an_unknown_topic_fails(lab: Lab) -> None:
    assert "TOPIC_NOT_EXIST" in failure(beam.Create(["no-such-topic"]), read_all(lab, stop=StopAt.latest()))
