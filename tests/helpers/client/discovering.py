"""The setup of a search for queues on an in-memory cluster."""

from __future__ import annotations

from typing import Any

from rmqio.model import MessageQueue
from rmqio.start import StartFrom
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import DiscoveryConfig


def client_of(cluster: InMemoryCluster) -> Any:
    return InMemoryClientFactory(cluster.name).queue_client()


def config(cluster: InMemoryCluster, **changes: Any) -> DiscoveryConfig:
    fields: dict[str, Any] = {
        "subscription": Subscription.of("t"),
        "factory": InMemoryClientFactory(cluster.name),
        "group": None,
        "start": StartFrom.earliest(),
        "stop": None,
    }
    return DiscoveryConfig(**fields | changes)


def filled(cluster: InMemoryCluster, *counts: int) -> tuple[MessageQueue, ...]:
    queues = cluster.create_topic("t", len(counts))
    for queue, count in zip(queues, counts, strict=True):
        for number in range(count):
            cluster.append("t", b"%d" % number, queue_id=queue.queue_id)
    return queues
