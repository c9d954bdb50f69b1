"""The shared producers of a process."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from rmqio.sending import producers
from rmqio.sending.producers import ProducerLease
from rmqio.testing import InMemoryClientFactory, InMemoryCluster


@pytest.fixture
def cluster() -> InMemoryCluster:
    return InMemoryCluster()


def test_equal_factories_share_a_producer_until_the_last_lease(cluster: InMemoryCluster) -> None:
    first = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    second = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    assert first.producer is second.producer
    first.release()
    assert not first.is_valid
    assert second.is_valid
    assert cluster.open_clients == 1
    first.release()  # again: must not count twice
    assert cluster.open_clients == 1
    second.release()
    assert cluster.open_clients == 0


def test_other_groups_and_factories_have_their_own(cluster: InMemoryCluster) -> None:
    other = InMemoryCluster()
    leases = [
        ProducerLease(InMemoryClientFactory(cluster.name), "g"),
        ProducerLease(InMemoryClientFactory(cluster.name), "h"),
        ProducerLease(InMemoryClientFactory(other.name), "g"),
    ]
    assert len({id(lease.producer) for lease in leases}) == 3
    for lease in leases:
        lease.release()


def test_a_producer_is_made_anew_after_the_last_release(cluster: InMemoryCluster) -> None:
    first = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    first.release()
    second = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    assert second.producer is not first.producer
    second.release()


def test_known_topics_outlive_the_producer(cluster: InMemoryCluster) -> None:
    first = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    first.known_topics.add("t")
    first.release()
    second = ProducerLease(InMemoryClientFactory(cluster.name), "another")
    assert second.known_topics == {"t"}
    second.release()


@dataclass(frozen=True)
class FailingFactory:
    def queue_client(self) -> None: ...

    def producer(self, group: str) -> None:
        raise ConnectionError("no")


def test_a_factory_that_fails_leaves_nothing_behind() -> None:
    before = dict(producers._producers)
    with pytest.raises(ConnectionError):
        ProducerLease(FailingFactory(), "g")  # type: ignore[arg-type]
    assert producers._producers == before


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # other tests leave threads; the child runs none
def test_a_forked_child_neither_uses_nor_closes_the_parents_producer(cluster: InMemoryCluster) -> None:
    lease = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    child = os.fork()
    if child == 0:
        passed = False
        try:
            mine = ProducerLease(InMemoryClientFactory(cluster.name), "g")
            open_before = cluster.open_clients
            lease.release()
            passed = (
                not lease.is_valid
                and mine.is_valid
                and mine.producer is not lease.producer
                and cluster.open_clients == open_before
            )
        finally:
            os._exit(0 if passed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lease.is_valid
    lease.release()
    assert cluster.open_clients == 0
