"""The group's offsets after reads of a real broker, and pipelines that go on where another one has ended."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rmqio import StartFrom, StopAt
from tests.helpers.ledgers.ledger import QUICK, Entry, Lab, check, finished, new_group, running

pytestmark = pytest.mark.broker


def other_process() -> dict[str, Any]:
    """Arguments of a read that shares nothing with earlier ones: what is committed is known per client options."""
    other_process.count += 1  # type: ignore[attr-defined]
    return {"options": dataclasses.replace(QUICK, request_timeout_ms=3_000 + other_process.count)}  # type: ignore[attr-defined]


other_process.count = 0  # type: ignore[attr-defined]


def test_a_bounded_read_leaves_a_group_never_seen_before_at_its_stops(lab: Lab) -> None:
    q0, q1, q2 = lab.topic(2_000, 30, 50)
    group = new_group()
    assert lab.committed(group, q0, q1, q2) == [None, None, None]
    run = finished(lab.read(q0.topic, consumer_group=group, stop=StopAt.offsets({q0: 2_000, q1: 7})))
    assert run.offsets == {q0: list(range(2_000)), q1: list(range(7))}
    assert lab.committed(group, q0, q1, q2) == [2_000, 7, None]  # the third was not read


def test_a_bounded_read_under_a_record_limit_leaves_the_group_behind_the_last_record(lab: Lab) -> None:
    q0, q1 = lab.topic(100, 100)
    group = new_group()
    limited = dataclasses.replace(QUICK, max_num_records=31)
    finished(lab.read(q0.topic, consumer_group=group, stop=StopAt.latest(), options=limited))
    assert lab.committed(group, q0, q1) == [16, 15]


def test_without_a_group_or_with_commits_off_nothing_is_committed(lab: Lab) -> None:
    (queue,) = lab.topic(100)
    group = new_group()
    off = dataclasses.replace(QUICK, commit_offsets=False)
    assert len(finished(lab.read(queue.topic, consumer_group=group, stop=StopAt.latest(), options=off)).records) == 100
    assert lab.committed(group, queue) == [None]


@pytest.mark.parametrize("discovery_interval_ms", [30_000, 0], ids=["looks for queues", "looks once"])
@pytest.mark.parametrize("commit_interval_ms", [0, 1_000])
def test_an_endless_read_commits_what_its_bundles_have_read_and_not_what_failed(
    lab: Lab, discovery_interval_ms: int, commit_interval_ms: int
) -> None:
    q0, q1 = lab.topic(400, 20)
    group = new_group()
    options = dataclasses.replace(
        QUICK, discovery_interval_ms=discovery_interval_ms, offset_commit_interval_ms=commit_interval_ms
    )
    with running(lab.read(q0.topic, consumer_group=group, options=options), stop_after=421) as run:
        run.wait_for(420)
        lab.until_committed(run, group, {q0: 400, q1: 20})
        lab.send(q1, 1)  # the bundle that reads this one is failed by the sink
    assert run.offsets == {q0: list(range(400)), q1: list(range(21))}
    assert lab.committed(group, q0, q1) == [400, 20]


def test_commits_come_at_most_once_an_interval(lab: Lab) -> None:
    (queue,) = lab.topic(1)
    group = new_group()
    options = dataclasses.replace(QUICK, offset_commit_interval_ms=3_600_000)
    with running(lab.read(queue.topic, consumer_group=group, options=options), stop_after=21) as run:
        lab.until_committed(run, group, {queue: 1})
        for count in range(2, 21):
            lab.send(queue, 1)
            run.wait_for(count)
            assert lab.committed(group, queue) == [1]  # the bundle before this one is final
        lab.send(queue, 1)


def test_a_read_never_takes_the_group_back(lab: Lab) -> None:
    q0, q1 = lab.topic(100, 100)
    group = new_group()
    lab.client.commit_offset(group, q0, 90)
    for _ in range(2):
        read = lab.read(q0.topic, consumer_group=group, stop=StopAt.offsets({q0: 50, q1: 50}), **other_process())
        assert finished(read).offsets == {q0: list(range(50)), q1: list(range(50))}
        assert lab.committed(group, q0, q1) == [90, 50]
    with running(lab.read(q0.topic, consumer_group=group, **other_process()), stop_after=200) as run:
        run.wait_for(1)
    assert lab.committed(group, q0)[0] in (90, 100)
    lab.client.commit_offset(group, q1, 100)
    finished(lab.read(q1, consumer_group=group, stop=StopAt.offsets({q1: 60})))
    assert lab.committed(group, q1) == [100]


def test_a_second_pipeline_resumes_where_the_first_one_has_ended(lab: Lab) -> None:
    queues = lab.topic(500, 40, 3, 0)
    topic = queues[0].topic
    group = new_group()
    entries: list[Entry] = []
    for round_number in range(3):
        start = StartFrom.earliest() if round_number == 0 else StartFrom.group_offsets("error")
        run = finished(lab.read(topic, start=start, consumer_group=group, stop=StopAt.latest(), **other_process()))
        entries += run.entries
        assert lab.committed(group, *queues) == [len(lab.sent[queue]) for queue in queues], round_number
        for queue, count in zip(queues, (70, 0, 200, 5), strict=True):
            lab.send(queue, count)
    start = StartFrom.group_offsets("error")
    with running(lab.read(topic, start=start, consumer_group=group), stop_after=275) as last:
        pass
    assert not check(entries + last.entries, lab.sent_to(*queues))


def test_a_bounded_pipeline_resumes_behind_an_endless_one(lab: Lab) -> None:
    q0, q1 = lab.topic(300, 100)
    group = new_group()
    with running(lab.read(q0.topic, consumer_group=group), stop_after=501) as first:
        first.wait_for(400)
        lab.send(q1, 100)
        lab.until_committed(first, group, {q0: 300, q1: 200})
        lab.send(q0, 50)
    # From 300 on a bundle failed: whatever of it the sink has seen comes again, as from a runner's checkpoint.
    assert lab.committed(group, q0, q1) == [300, 200]
    assert not check(first.entries[:500], {q0: {n: lab.sent[q0][n] for n in range(300)}, **lab.sent_to(q1)})
    start = StartFrom.group_offsets("error")
    second = finished(lab.read(q0.topic, start=start, consumer_group=group, stop=StopAt.latest(), **other_process()))
    assert second.offsets == {q0: list(range(300, 350))}
    assert lab.committed(group, q0, q1) == [350, 200]


def test_groups_do_not_see_each_other(lab: Lab) -> None:
    (queue,) = lab.topic(100)
    one, two = new_group(), new_group()
    finished(lab.read(queue.topic, consumer_group=one, stop=StopAt.offsets({queue: 40})))
    finished(lab.read(queue.topic, consumer_group=two, stop=StopAt.offsets({queue: 60})))
    for group, begin in ((one, 40), (two, 60)):
        start = StartFrom.group_offsets("error")
        run = finished(lab.read(queue.topic, start=start, consumer_group=group, stop=StopAt.latest()))
        assert run.offsets == {queue: list(range(begin, 100))}
