"""The DoFn that reads what a planner has planned, on a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest

from rmqio import MessageQueue, ReadOptions, repeats
from rmqio.errors import BrokerSilent, OffsetOutOfRange
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryCluster
from rmqio.transforms.reading import planned as planned_ranges
from rmqio.transforms.reading.planned import NOT_CUT, WATERMARKS_TAG, ReadRangesFn
from tests.helpers.transforms.reading import T0, append, bodies, fill, read_config

Q0 = MessageQueue("t", "broker-a", 0)
N0, N1 = "t/broker-a/0", "t/broker-a/1"


@pytest.fixture
def reading(clocked: InMemoryCluster) -> Iterator[Callable[..., tuple[list[bytes], list[Any]]]]:
    made: list[ReadRangesFn] = []

    def read(*elements: Any, **given: Any) -> tuple[list[bytes], list[Any]]:
        """Returns the bodies, and the reported watermarks."""
        fn = ReadRangesFn(read_config(clocked, **{"group": None, "deserializer": None} | given))
        made.append(fn)
        fn.setup()
        fn.start_bundle()
        found, told = list[bytes](), []
        for element in elements:
            for each in fn.process(element, beam.window.GlobalWindow()):
                if isinstance(each, beam.pvalue.TaggedOutput):
                    assert each.tag == WATERMARKS_TAG
                    told.append(each.value)
                else:
                    found += [record.body for record in each.value.records]
        return found, told

    yield read
    for fn in made:
        fn.teardown()


def test_a_range_is_read_exactly_and_tells_its_watermark(clocked: InMemoryCluster, reading: Any) -> None:
    q0, q1 = fill(clocked, 200, 10)
    options = ReadOptions(poll_timeout_ms=1, max_out_of_orderness_ms=500, max_records_per_bundle=20)
    elements = ("t", "broker-a", 0, 7, 150, True), ("t", "broker-a", 1, 3, 4, False)
    for _ in range(2):
        found, told = reading(*elements, options=options, group="g")
        assert found == bodies(q0, range(7, 150)) + bodies(q1, [3])
        assert told == [(N0, (T0 + 149_000 - 500) * 1000, NOT_CUT), (N1, (T0 + 3_000 - 500) * 1000, NOT_CUT)]
    assert clocked.committed("g", q0) is None, "the planner commits"


def test_a_range_is_read_around_what_is_filtered_out(clocked: InMemoryCluster, reading: Any) -> None:
    (queue,) = clocked.create_topic("t", 1)
    for number in range(40):
        append(clocked, queue, 1, tags="odd" if number % 2 else "even")
    found, _ = reading(("t", "broker-a", 0, 5, 30, True), message_filter=MessageFilter("odd"))
    assert found == bodies(queue, range(5, 30, 2))


@pytest.mark.timeout(60)
def test_what_was_planned_and_is_lost_is_an_error(clocked: InMemoryCluster, reading: Any) -> None:
    fill(clocked, 10)
    with pytest.raises(OffsetOutOfRange):
        reading(("t", "broker-a", 0, 5, 30, False))
    clocked.delete_before(Q0, 8)
    with pytest.raises(OffsetOutOfRange):
        reading(("t", "broker-a", 0, 5, 10, True))


@pytest.mark.timeout(60)
def test_a_range_of_a_broker_that_gives_nothing_is_cut_short_where_that_is_permitted(
    clocked: InMemoryCluster, reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    q0, q1 = fill(clocked, 10, 10)
    monkeypatch.setattr(planned_ranges, "time", SimpleNamespace(monotonic=clocked.clock.monotonic))
    broken = BrokerSilent("silent")
    clocked.fail_next("poll", broken, times=1_000, queue=q1)
    elements = ("t", "broker-a", 1, 2, 10, True), ("t", "broker-a", 0, 0, 10, True)
    found, told = reading(*elements)
    assert found == bodies(q0, range(10)), "the other queue is read"
    assert told[0][2] == 2
    assert told[1] == (N0, (T0 + 9_000) * 1000, NOT_CUT)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("may_cut", [True, False], ids=["a repeat", "what ends"])
def test_a_range_that_must_not_be_cut_waits_for_its_broker(
    clocked: InMemoryCluster, reading: Any, may_cut: bool
) -> None:
    """This attempt must read what an earlier one has read and written, or it is written again by the next."""
    (queue,) = fill(clocked, 10)
    clocked.fail_next("poll", BrokerSilent("silent"), times=30)
    with repeats.in_attempt(repeats.Attempt(may_be_repeat=may_cut)):
        found, told = reading(("t", "broker-a", 0, 0, 10, may_cut))
    assert found == bodies(queue, range(10))
    assert told == [(N0, (T0 + 9_000) * 1000, NOT_CUT)]
