"""A planner of queues on an in-memory cluster, called as a runner calls it."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any, Literal

from rmqio import MessageQueue, ReadOptions, StartFrom
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import DiscoveryConfig
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.planned import QueuePlanner, name_of
from rmqio.transforms.reading.restriction import born_time

N0, N1 = "t/broker-a/0", "t/broker-a/1"


@dataclass(frozen=True)
class TriggerLimits:
    """The same fields as the runner's class, which this package does not import."""

    max_records: int | None = None
    max_bytes: int | None = None
    may_cut: bool = True


ALL = TriggerLimits()


def config_of(cluster: InMemoryCluster, topic: Any = "t", **given: Any) -> ReadConfig:
    fields: dict[str, Any] = {
        "factory": InMemoryClientFactory(cluster.name),
        "group": None,
        "start": StartFrom.earliest(),
        "stop": None,
        "message_filter": MessageFilter("*"),
        "deserializer": None,
        "timestamp_of": born_time,
        "options": ReadOptions(poll_timeout_ms=1, max_out_of_orderness_ms=0),
    }
    return ReadConfig(**fields | given)


def planner_of(
    cluster: InMemoryCluster,
    topic: Any = "t",
    new_queue_start: Literal["earliest", "latest"] = "earliest",
    interval_ms: int = 30_000,
    **given: Any,
) -> QueuePlanner:
    config = config_of(cluster, **given)
    discovery = DiscoveryConfig(
        Subscription.of(topic), config.factory, config.group, config.start, config.stop,
        interval_ms=interval_ms, new_queue_start=new_queue_start,
    )  # fmt: skip
    planner: QueuePlanner = pickle.loads(pickle.dumps(QueuePlanner(config, discovery)))
    return planner


def advance(planner: QueuePlanner, position: Any, limits: TriggerLimits = ALL, until_now: bool = False) -> Any:
    """Returns the next position, as read from a checkpoint."""
    before = json.dumps(position)
    found = planner.advance(position, limits, until_now)
    assert json.dumps(position) == before, "the given position must not change"
    assert json.loads(json.dumps(found)) == found
    return json.loads(json.dumps(found))


def ranges(planner: QueuePlanner, begin: Any, end: Any) -> dict[str, tuple[int, int]]:
    found = planner.elements(begin, end)
    assert all(weight == last - first for (_, _, _, first, last, _), weight in found)
    return {name_of(MessageQueue(*each[:3])): each[3:5] for each, _ in found}
