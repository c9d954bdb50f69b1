"""Runs scripts of SQL on the Direct runner and a cluster in memory, whose topics the test fills and looks at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from rmqio import MessageQueue, Record, StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import in_zone
from rmqio.testing import InMemoryClientFactory, InMemoryCluster


def put(cluster: InMemoryCluster, topic: str, *bodies: Any, queue_id: int | None = None, **fields: Any) -> None:
    """Adds messages: bytes as they are, anything else as JSON; to two queues by turns."""
    for number, body in enumerate(bodies):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        cluster.append(topic, data, queue_id=number % 2 if queue_id is None else queue_id, **fields)


def run(cluster: InMemoryCluster, text: str) -> Any:
    """Runs a script until all that the topics hold is read."""
    script = Script()
    script.run(text)
    return run_script(cluster, script)


def run_script(cluster: InMemoryCluster, script: Script) -> Any:
    """Runs all INSERTs of a script, as one job."""
    pipeline = beam.Pipeline(options=options([]))
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    with in_zone(script.settings.zone):
        Translation(pipeline, connection).add_all(script.sinks)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def stored(cluster: InMemoryCluster, topic: str) -> list[Record]:
    """Returns what a topic of two queues holds."""
    queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
    return [record for queue in queues for record in cluster.stored_queue(queue).slice(0, 100_000)]


def rows(cluster: InMemoryCluster, topic: str = "sink") -> list[tuple[Any, ...]]:
    """Returns the rows of a topic, in order."""
    return in_order([tuple(json.loads(record.body).values()) for record in stored(cluster, topic)])


def in_order(found: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns rows in an order that NULLs have, too."""
    return sorted(found, key=lambda row: [(each is not None, each if each is not None else 0) for each in row])
