"""Jobs over rows that change, on the Direct runner and a cluster in memory; what a table holds after its messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam

from rmqio import MessageQueue, Record, StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.catalog.tables import Table
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

QUEUES = 2


class Cell:
    """A state or a timer of one key, as Beam gives it to the DoFn."""

    def __init__(self) -> None:
        self.value: Any = None

    def read(self) -> Any:
        return self.value

    def write(self, value: Any) -> None:
        self.value = value

    set = write

    def clear(self) -> None:
        self.value = None


class Endless(Translation):
    """Takes inputs as such without end, though the reads end, so that the job does."""

    __slots__ = ()

    def _ends(self, table: Table) -> bool:
        return False


def put(cluster: InMemoryCluster, topic: str, rows: Iterable[Any]) -> None:
    """Appends rows to a topic, to its queues by turns."""
    for number, row in enumerate(rows):
        cluster.append(topic, json.dumps(row).encode(), queue_id=number % QUEUES)


def run(cluster: InMemoryCluster, text: str, *, endless: bool = False) -> Any:
    """Runs a script to the end of its topics."""
    script = Script()
    script.run(text)
    pipeline = beam.Pipeline(options=options([]))
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    translation = (Endless if endless else Translation)(pipeline, connection)
    for sink in script.sinks:
        translation.add(sink)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def stored(cluster: InMemoryCluster, topic: str = "sink") -> list[list[Record]]:
    """Returns the messages of each queue."""
    queues = [MessageQueue(topic, "broker-a", number) for number in range(QUEUES)]
    return [list(cluster.stored_queue(queue).slice(0, 100_000)) for queue in queues]


def held(cluster: InMemoryCluster, topic: str = "sink") -> list[tuple[Any, ...]]:
    """Returns the rows that a table holds after its messages: the newest of each key, without those deleted."""
    return replayed(stored(cluster, topic))


def replayed(queues: Sequence[Sequence[Record]]) -> list[tuple[Any, ...]]:
    """Returns the rows after the messages of queues. A key is in one queue."""
    found: dict[str, Any] = {}
    places: dict[str, int] = {}
    for number, records in enumerate(queues):
        for record in records:
            (key,) = record.keys
            assert record.sharding_key == key
            assert places.setdefault(key, number) == number
            if record.body:
                found[key] = tuple(json.loads(record.body).values())
            else:
                assert record.properties["rmqio.tombstone"] == "true"
                assert key in found, "what was never there is not deleted"
                del found[key]
    return sorted(found.values(), key=repr)


def rows(cluster: InMemoryCluster, topic: str = "sink") -> list[tuple[Any, ...]]:
    """Returns all rows that were written."""
    found = [tuple(json.loads(record.body).values()) for records in stored(cluster, topic) for record in records]
    return sorted(found, key=repr)
