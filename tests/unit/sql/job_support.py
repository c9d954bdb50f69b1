"""Jobs on the Direct runner and a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio import MessageQueue, Record, StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster

SINK = "CREATE TABLE sink (a INT, b STRING) WITH ('topic' = 'sink');"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink", "letters"):
            made.create_topic(topic, 2)
        yield made


def put(cluster: InMemoryCluster, topic: str, *bodies: Any, **fields: Any) -> None:
    for number, body in enumerate(bodies):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        cluster.append(topic, data, queue_id=number % 2, **fields)


def job(cluster: InMemoryCluster, text: str) -> Any:
    script = Script()
    script.run(text)
    pipeline = beam.Pipeline(options=options([]))
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    Translation(pipeline, connection).add_all(script.sinks)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def stored(cluster: InMemoryCluster, topic: str) -> list[Record]:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
    return [record for queue in queues for record in cluster.stored_queue(queue).slice(0, 1000)]


def rows(cluster: InMemoryCluster, topic: str = "sink") -> list[tuple[Any, ...]]:
    return sorted(tuple(json.loads(record.body).values()) for record in stored(cluster, topic))


def table(name: str = "t", **more: str) -> str:
    extra = "".join(f", '{key.replace('_', '-')}' = '{value}'" for key, value in more.items())
    return f"CREATE TABLE {name} (a INT, b STRING) WITH ('topic' = '{name}'{extra});"


TIMED = (
    "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
    "SET 'table.exec.state.ttl' = '1 d';"
)


def timed(count: int) -> list[dict[str, Any]]:
    return [{"a": n, "b": f"k{n % 2}", "ts": f"2024-01-01 00:{n // 6:02}:{n % 6 * 10:02}"} for n in range(count)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.sql"
    path.write_text(f"{table()}\n{SINK}\nINSERT INTO sink SELECT a, b FROM t WHERE a > 1;\n")
    return path
