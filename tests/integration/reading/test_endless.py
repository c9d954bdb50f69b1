"""Endless reads of a real broker in the in-process runner: new queues and topics, and queues that give nothing."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from rmqio import MessageQueue, ReadOptions, StartFrom
from rmqio.client.admin import Admin
from rmqio.options import ClientOptions
from rmqio.transforms.reading.in_process import ReadSubscriptionFn
from rmqio.transforms.reading.read_fn import UnboundedReadFn
from tests.helpers.ledgers.ledger import QUICK, Lab, check, new_group, running
from tests.helpers.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(lab: Lab) -> Iterator[Admin]:
    with Admin(ClientOptions(lab.broker.name_server)) as admin:
        yield admin


def looking_often(**changes: Any) -> ReadOptions:
    return dataclasses.replace(QUICK, discovery_interval_ms=300, **changes)


# ---- new queues and topics ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("new_queue_start", "first"), [("earliest", 0), ("latest", 10)])
def test_a_queue_added_while_it_runs_is_read_from_where_the_option_says(
    lab: Lab, admin: Admin, new_queue_start: Any, first: int
) -> None:
    (q0,) = lab.topic(5)
    q1, q2 = q0._replace(queue_id=1), q0._replace(queue_id=2)
    group = new_group()

    def grow() -> None:
        # In the pipeline's own thread, which so cannot look for queues before they hold messages.
        admin.create_topic(q0.topic, queues=3)
        lab.send(q1, 10)
        until(lambda: lab.client.max_offset(q1) == 10, "the messages to count: a broker stores them before")

    options = looking_often(new_queue_start=new_queue_start)
    # Its start is its own: that is for the queues of the first look only.
    read = lab.read(q0.topic, start=StartFrom.specific_offsets({q0: 2}), consumer_group=group, options=options)
    with running(read, stop_after=3 + (10 - first) + 4 + 2 + 1, steps={1: grow}) as run:
        run.wait_until(lambda: len(lab.sent.get(q1, ())) == 10 and lab.client.max_offset(q1) == 10, "the new queues")
        lab.until_committed(run, group, {q1: 10, q2: 0})
        lab.send(q1, 4)
        lab.send(q2, 2)
        run.wait_for(3 + (10 - first) + 4 + 2)
        lab.send(q0, 1)
    assert run.offsets == {q0: [2, 3, 4, 5], q1: list(range(first, 14)), q2: [0, 1]}


def test_a_topic_that_comes_to_match_the_pattern_is_read(lab: Lab) -> None:
    prefix = f"growing{uuid.uuid4().hex[:8]}"
    (old,) = lab.topic(5, name=f"{prefix}-1")
    read = lab.read(re.compile(rf"{prefix}-\d"), options=looking_often())
    with running(read, stop_after=5 + 12 + 1) as run:
        run.wait_for(5)
        new = lab.topic(7, 5, name=f"{prefix}-2")
        lab.topic(3, name=f"{prefix}-other")
        run.wait_for(17)
        lab.send(old, 1)
    assert run.offsets == {old: list(range(6)), new[0]: list(range(7)), new[1]: list(range(5))}


def test_a_pattern_that_matches_nothing_yet_waits_for_a_topic(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"growing{uuid.uuid4().hex[:8]}"
    begun = bundles_of(monkeypatch, ReadSubscriptionFn)
    with running(lab.read(re.compile(rf"{prefix}-\d"), options=looking_often()), stop_after=5) as run:
        run.wait_until(lambda: len(begun) > 3, "bundles in which it finds nothing")
        (queue,) = lab.topic(5, name=f"{prefix}-1")
    assert run.offsets == {queue: list(range(5))}


# ---- many queues, most of them idle ---------------------------------------------------------------------------------


def test_busy_queues_are_read_in_order_over_many_bundles_while_they_are_written(lab: Lab) -> None:
    queues = lab.topic(3_000, 10, 2_000, 0)
    options = dataclasses.replace(QUICK, max_records_per_bundle=100)
    with running(lab.read(queues[0].topic, options=options), stop_after=6_510) as run:
        for _ in range(10):
            for queue, count in zip(queues, (100, 0, 0, 50), strict=True):
                lab.send(queue, count)
    assert not check(run.entries, lab.sent_to(*queues))
    assert run.bundles >= 8


def bundles_of(monkeypatch: pytest.MonkeyPatch, fn: Any) -> list[Any]:
    """Returns a list that grows with each bundle that a DoFn begins in this process."""
    begun: list[Any] = []
    start_bundle = fn.start_bundle

    def start(self: Any) -> None:
        begun.append(self)
        start_bundle(self)

    monkeypatch.setattr(fn, "start_bundle", start)
    return begun


@pytest.mark.parametrize("discovery_interval_ms", [30_000, 0], ids=["looks for queues", "looks once"])
def test_seven_idle_queues_do_not_hold_up_the_eighth(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, discovery_interval_ms: int
) -> None:
    """How long bundles wait: tests/unit/transforms/reading, test_in_process.py and test_read_fn.py."""
    begun = bundles_of(monkeypatch, ReadSubscriptionFn if discovery_interval_ms else UnboundedReadFn)
    queues = lab.topic(*[1] * 8)
    busy = queues[3]
    group = new_group()
    options = ReadOptions(discovery_interval_ms=discovery_interval_ms, offset_commit_interval_ms=0)
    with running(lab.read(busy.topic, consumer_group=group, options=options), stop_after=8 + 20 + 1) as run:
        run.wait_for(8)
        lab.until_committed(run, group, dict.fromkeys(queues, 1))
        idle = len(begun)
        run.wait_until(lambda: len(begun) > idle + 8, "bundles in which nothing comes")
        for number in range(20):
            lab.send(busy, 1)
            run.wait_for(8 + number + 1)
        lab.send(queues[7], 1)
    expected: dict[MessageQueue, list[int]] = {queue: [0] for queue in queues}
    assert run.offsets == expected | {busy: list(range(21)), queues[7]: [0, 1]}
