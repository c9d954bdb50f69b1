"""Ids of rows of joins, groups and unions: the same when the job runs again, and no two alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio import StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.errors import SqlError
from rmqio.sql.functions.operators import row_id
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.job_support import SINK, TIMED, put, rows, stored, table, timed

JOIN = "INSERT INTO sink SELECT t.a * 10 + u.a, t.b FROM t JOIN u ON t.b = u.b AND t.a <> u.a + 100"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink"):
            made.create_topic(topic, 2)
        yield made


def run(cluster: InMemoryCluster, text: str, name: str = "r") -> None:
    script = Script()
    script.run(text)
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    with beam.Pipeline(options=options([])) as pipeline:
        Translation(pipeline, connection, _run=name).add_all(script.sinks)


def ids(cluster: InMemoryCluster) -> list[str]:
    return [record.message_id for record in stored(cluster, "sink")]


@pytest.mark.parametrize(
    "statement",
    [
        JOIN,
        "INSERT INTO sink SELECT CAST(COUNT(*) AS INT), b FROM t GROUP BY b, TUMBLE(ts, INTERVAL '1' MINUTE)",
        "INSERT INTO sink SELECT CAST(COUNT(*) AS INT), 'x' FROM t GROUP BY b",
        f"{JOIN} UNION ALL SELECT a, b FROM t UNION ALL SELECT a, b FROM t",
        "INSERT INTO sink SELECT MAX(t.a), t.b FROM t JOIN u USING (b) GROUP BY t.b;"
        "INSERT INTO sink SELECT a, b FROM t",
        "INSERT INTO sink VALUES (1, 'x'), (1, 'x'), (2, 'y')",
        "INSERT INTO sink SELECT CAST(COUNT(*) OVER (PARTITION BY b ORDER BY ts) AS INT), b FROM t",
        "INSERT INTO sink SELECT CAST(RANK() OVER (ORDER BY b) AS INT), b FROM t",
        "INSERT INTO sink SELECT a, b FROM t WHERE b IN (SELECT b FROM u)",
        "INSERT INTO sink SELECT a, b FROM t WHERE a NOT IN (SELECT a + 7 FROM u) AND (SELECT MAX(a) FROM u) > 0",
        "INSERT INTO sink SELECT a, b FROM t ORDER BY b LIMIT 5",
    ],
)
def test_again(statement: str, cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(12), {"a": 3, "b": "k1", "ts": "2024-01-01 00:00:30"})
    put(cluster, "u", *({"a": n % 2, "b": f"k{n % 2}"} for n in range(6)))  # rows that are equal, of several messages
    job = f"{TIMED} {table('u')} {SINK} {statement};"
    run(cluster, job)
    first, found = ids(cluster), rows(cluster)
    assert len(set(first)) == len(first) == len(found) > 1
    run(cluster, job)
    assert sorted(ids(cluster)) == sorted(first * 2)
    run(cluster, job, "another run")
    new = set(ids(cluster)) - set(first)
    depends = any(word in statement for word in ("GROUP BY", "VALUES", "OVER", "(SELECT", "LIMIT"))
    assert bool(new) == depends, "a run that ends can have read something else"


def test_statements_of_one_topic_have_ids_of_their_own(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(4))
    put(cluster, "u", {"a": 1, "b": "k1"})
    run(cluster, f"{TIMED} {table('u')} {SINK} {JOIN}; {JOIN};")
    found = ids(cluster)
    assert len(set(found)) == len(found) == 4


def test_exactly_once_needs_ids(cluster: InMemoryCluster) -> None:
    once = SINK.replace("'topic' = 'sink'", "'topic' = 'sink', 'sink.delivery-guarantee' = 'exactly-once'")
    with pytest.raises(SqlError, match="needs the option 'producerGroup'"):
        Script().run(once)
    once = once.replace("'topic' = 'sink'", "'topic' = 'sink', 'producerGroup' = 'sink-writer'")
    put(cluster, "t", *timed(4))
    put(cluster, "u", {"a": 1, "b": "k1"})
    run(cluster, f"{TIMED} {table('u')} {once} {JOIN};")
    assert len(rows(cluster)) == 2
    with pytest.raises(SqlError, match="have no ids that are the same"):
        run(cluster, f"{table('u')} {once} INSERT INTO sink SELECT a, b FROM u EXCEPT ALL SELECT 1, 'x';")


def test_an_exactly_once_table_gets_each_row_once_from_a_job_that_begins_anew(cluster: InMemoryCluster) -> None:
    options = "'topic' = 'sink', 'sink.delivery-guarantee' = 'exactly-once', 'producerGroup' = 'writer'"
    once = SINK.replace("'topic' = 'sink'", options)
    job = f"{TIMED} {once} INSERT INTO sink SELECT a, b FROM t WHERE a >= 0;"
    put(cluster, "t", *timed(6))
    run(cluster, job)
    assert sorted(row[0] for row in rows(cluster)) == [*range(6)]
    put(cluster, "t", *timed(3))
    run(cluster, job)
    assert sorted(row[0] for row in rows(cluster)) == sorted([*range(6), *range(3)])


def test_ids_of_values() -> None:
    assert row_id(1, None, "a") == row_id(1, None, "a") != row_id(1, "a", None)
    assert len(row_id(1 << 70)) == 32
