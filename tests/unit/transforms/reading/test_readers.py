"""The readers that bundles share: their places, the wait for them, and when they are closed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rmqio import MessageQueue
from rmqio.errors import OffsetOutOfRange
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.reading.readers import Readers, Slot
from rmqio.transforms.shared import shared_client
from tests.helpers.transforms.reading import QueueBundles, bodies, clocked_cluster, elements_of, fill


def slot_of(readers: Readers, queue: MessageQueue, offset: int) -> Slot:
    slot = readers.slot(queue, offset)
    assert slot is not None
    return slot


def test_an_error_behind_what_has_arrived_waits_until_that_is_through() -> None:
    with clocked_cluster(poll_records=2) as cluster:
        (queue,) = fill(cluster, 9)
        bundles = QueueBundles(cluster, [queue])
        assert bundles.fn._readers is not None
        slot = slot_of(bundles.fn._readers, queue, 0)
        reader, polls = slot.reader, itertools.count(1)

        class FailsAfterTwo:
            """The reader, whose third poll finds its messages deleted."""

            def __getattr__(self, name: str) -> Any:
                return getattr(reader, name)

            def poll(self) -> FetchedBatch | None:
                if next(polls) == 3:
                    cluster.delete_before(queue, 7)
                return reader.poll()

        slot.reader = FailsAfterTwo()
        outputs, _ = bundles.begin(queue)
        assert elements_of([next(outputs)]) == bodies(queue, range(4))
        with pytest.raises(OffsetOutOfRange, match=r"offset 4 is not available; the broker holds \[7, 9\)"):
            next(outputs)


class SlowReader:
    """A reader whose pull is not answered."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue, self.position, self.is_at_end = queue, 0, False

    def is_ready(self) -> bool:
        return False

    def poll(self) -> FetchedBatch | None:
        return None

    def seek(self, offset: int) -> None:
        self.position = offset

    def close(self) -> None:
        pass


def test_a_broker_that_does_not_answer_costs_a_bundle_its_wait_once_and_not_once_a_queue(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = fill(clocked, 0, 0, 0)
    factory = InMemoryClientFactory(clocked.name)
    client: Any = shared_client(factory)
    waits: list[int] = []
    monkeypatch.setattr(client, "open_reader", lambda queue, offset, message_filter: SlowReader(queue))
    monkeypatch.setattr(client, "wait", lambda readers, timeout_ms: waits.append(timeout_ms))
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=300)
    readers.start_bundle()
    for queue in queues:
        assert not readers.await_data(slot_of(readers, queue, 0))
    assert sum(waits) == 300
    waits.clear()
    readers.start_bundle()
    readers.await_data(slot_of(readers, queues[0], 0))
    assert waits == [200], "a new bundle has a new budget"


def test_a_reader_that_has_not_been_used_for_half_a_minute_is_closed(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 1, 1)
    now = [0.0]
    factory = InMemoryClientFactory(clocked.name)
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=1, monotonic=lambda: now[0])
    readers.slot(q0, 0)
    now[0] = 29.0
    readers.slot(q1, 0)
    readers.start_bundle()
    assert clocked.open_readers == 2
    now[0] = 31.0
    readers.start_bundle()
    assert clocked.open_readers == 1
    readers.close()
    assert clocked.open_readers == 0


def test_a_slot_is_positioned_where_its_restriction_begins(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 9)
    readers = Readers(InMemoryClientFactory(clocked.name), MessageFilter(), poll_timeout_ms=1)
    slot = slot_of(readers, queue, 3)
    assert slot.reader.position == 3
    slot.reader.poll()
    assert readers.slot(queue, 5) is slot
    assert slot.reader.position == 5
    readers.close()
