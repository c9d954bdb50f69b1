"""Sub-queries in expressions, set operations and ORDER BY give what DuckDB gives, on small tables with NULLs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio import MessageQueue, StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

Row = tuple[int | None, str | None]
COLUMNS = "n INT NOT NULL, a INT, b STRING"
TABLES = "".join(f"CREATE TABLE {name} ({COLUMNS}) WITH ('topic' = '{name}');" for name in ("t", "u"))

OPERANDS = ["t.a", "COALESCE(t.a, 2)", "t.a + 1"]
MEMBERS = [
    "SELECT u.a FROM u",
    "SELECT u.a FROM u WHERE u.a IS NOT NULL",
    "SELECT u.a FROM u WHERE u.b = t.b",
    "SELECT a FROM u WHERE b = t.b AND n > 1",
    "SELECT COALESCE(u.a, 1) FROM u WHERE t.b = u.b",
    "SELECT a FROM u WHERE FALSE",
    "SELECT MAX(a) FROM u",
    "SELECT MAX(a) FROM u WHERE u.b = t.b",
    "SELECT a FROM u WHERE b = t.b GROUP BY a",
    "SELECT u.a FROM u WHERE u.a IN (SELECT t.a FROM t WHERE t.b = 'x')",
    "SELECT CAST(u.a AS BIGINT) FROM u",
    "VALUES (1), (2)",
    "SELECT a FROM t EXCEPT SELECT a FROM u",
]
MEMBERSHIPS = [
    f"{operand} {test} ({member})" for operand, test, member in itertools.product(OPERANDS, ("IN", "NOT IN"), MEMBERS)
]
EXISTENCES = [
    f"EXISTS ({query})"
    for query in (
        "SELECT 1 FROM u",
        "SELECT * FROM u WHERE u.a = t.a",
        "SELECT * FROM u WHERE u.a = t.a AND u.b = t.b",
        "SELECT n FROM u WHERE u.a = t.a AND u.n < t.n",
        "SELECT n FROM u WHERE u.b = t.b AND (u.a > t.a OR u.a IS NULL)",
        "SELECT 1 FROM u WHERE u.a + 1 = t.a * 2 AND t.n > 2",
        "SELECT a FROM u WHERE a = 3 LIMIT 1",
        "SELECT u.b FROM u WHERE u.a = t.a GROUP BY u.b HAVING COUNT(*) > 1",
        "SELECT COUNT(*) FROM u WHERE u.a = t.a",
        "SELECT COUNT(*) FROM u WHERE u.a = t.a HAVING COUNT(*) > 1",
        "SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = u.a)",
        "SELECT 1 FROM u AS v JOIN u AS w ON v.a = w.a WHERE v.b = t.b AND w.n < t.n",
    )
]
VALUES = [
    "(SELECT COUNT(*) FROM u)",
    "(SELECT COUNT(*) FROM u WHERE u.b = t.b)",
    "(SELECT COUNT(a) * 10 + 1 FROM u WHERE u.b = t.b AND u.a > 1)",
    "(SELECT MAX(a) FROM u)",
    "(SELECT MIN(u.a) FROM u WHERE u.b = t.b HAVING COUNT(*) > 1)",
    "(SELECT MAX(u.a) FROM u WHERE u.a = t.a)",
    "(SELECT u.a FROM u WHERE u.n = t.n)",
    "(SELECT a FROM u WHERE n = 1)",
    "(SELECT COUNT(DISTINCT a) FROM u WHERE b = t.b)",
]
SETS = [
    f"SELECT {columns} FROM {left} {kind} SELECT {columns} FROM {right}"
    for columns, kind, (left, right) in itertools.product(
        ("a, b", "a, 'k'"),
        ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"),
        (("t", "u"), ("u", "t")),
    )
] + [
    "SELECT a, b FROM t UNION ALL SELECT a, b FROM u INTERSECT SELECT a, b FROM t",
    "(SELECT a, b FROM t UNION SELECT a, b FROM u) EXCEPT ALL SELECT a, b FROM u",
    "SELECT DISTINCT a, b FROM t EXCEPT SELECT a, b FROM u UNION ALL SELECT 7, 'x'",
]
ORDERS = (
    [
        f"SELECT n, b FROM t ORDER BY {keys} {limit}"
        for keys, limit in itertools.product(
            (
                "a NULLS FIRST, n",
                "b DESC NULLS LAST, a NULLS FIRST, n DESC",
                "2 NULLS LAST, 1",
                "t.a + 1 NULLS LAST, n",
            ),
            ("LIMIT 3", "LIMIT 2 OFFSET 2", "OFFSET 4", ""),
        )
    ]
    + [
        f"SELECT n, b FROM t ORDER BY n {limit}"
        for limit in (
            "OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY",
            "LIMIT 2 OFFSET 1 ROWS",
            "LIMIT ALL",
            "LIMIT ALL OFFSET 2",
        )
    ]
    + [
        "SELECT COUNT(*), b FROM t GROUP BY b ORDER BY COUNT(*) DESC, b NULLS FIRST LIMIT 2",
        "SELECT DISTINCT a, b FROM t ORDER BY b NULLS FIRST, a NULLS FIRST LIMIT 3",
        "SELECT a, b FROM t UNION SELECT a, b FROM u ORDER BY a NULLS FIRST, b NULLS FIRST LIMIT 4",
        "SELECT n, b FROM (SELECT * FROM t ORDER BY a DESC NULLS LAST, n LIMIT 3) WHERE n > 1",
        "SELECT n, b FROM t ORDER BY n FETCH FIRST 2 ROWS ONLY",
    ]
)
OTHERS = [
    "SELECT COUNT(*), b FROM t GROUP BY b HAVING COUNT(*) > (SELECT COUNT(*) FROM u WHERE a = 1)",
    "SELECT MAX(a) + (SELECT COUNT(*) FROM u), b FROM t WHERE a IN (SELECT a FROM u) GROUP BY b",
    "SELECT t.n, u.b FROM t, u WHERE t.a = u.a AND t.b IN (SELECT b FROM u)",
    "SELECT n, b FROM t WHERE EXISTS (SELECT 1 FROM u AS v, u AS w WHERE v.a = w.a AND v.b = t.b AND w.n > v.n)",
    "SELECT n, b FROM t WHERE n > (SELECT COUNT(*) FROM u AS v, u AS w WHERE v.a = w.a AND v.b = t.b)",
    "SELECT n, b FROM t WHERE (a, b) IN (SELECT a, b FROM u)",
    "SELECT n, b FROM t WHERE a = ANY (SELECT a FROM u WHERE u.b = t.b) AND n <> ALL (SELECT n FROM u WHERE n > 2)",
    "SELECT n, LOWER(CAST(a <> ALL (SELECT a FROM u) AS STRING)) FROM t WHERE b = SOME (SELECT b FROM u) OR n > 3",
    "SELECT n, b FROM t WHERE (n, n + 1) NOT IN (SELECT n, n + 1 FROM u WHERE n > 2)",
    "SELECT n, b FROM (SELECT * FROM t WHERE a = (SELECT MAX(a) FROM u)) WHERE EXISTS (SELECT 1 FROM u WHERE u.n = n)",
]


def queries() -> list[str]:
    """Returns all of them; each has an integer and a text."""
    found = []
    for test in MEMBERSHIPS + EXISTENCES:
        found.append(f"SELECT t.n, t.b FROM t WHERE {test}")
        found.append(f"SELECT t.n, LOWER(CAST({test} AS STRING)) FROM t")
        found.append(f"SELECT t.n, t.b FROM t WHERE ({test}) OR t.b = 'x'")
        found.append(f"SELECT t.n, t.b FROM t WHERE NOT ({test}) AND t.n > 0")
    for value in VALUES:
        found.append(f"SELECT t.n, CAST({value} AS STRING) FROM t")
        found.append(f"SELECT t.n, t.b FROM t WHERE t.a <= {value} AND t.n > 0")
    return found + SETS + ORDERS + OTHERS


def tables(random: Random) -> dict[str, list[Row]]:
    """Returns rows of both; sometimes one of them has none, or no NULL."""
    found = {}
    for name in ("t", "u"):
        numbers: list[int | None] = [1, 2, 3] if random.random() < 0.3 else [None, 1, 2, 3]
        texts: list[str | None] = ["x", "y"] if random.random() < 0.3 else [None, "x", "y"]
        count = random.choice((0, 2, 5, 8))
        found[name] = [(random.choice(numbers), random.choice(texts)) for _ in range(count)]
    return found


def by_duckdb(content: dict[str, list[Row]], chosen: list[str]) -> list[list[Any]]:
    connection = duckdb.connect()
    connection.execute("SET default_null_order = 'nulls_first'")
    for name, rows in content.items():
        connection.execute(f"CREATE TABLE {name} ({COLUMNS})")
        for n, (a, b) in enumerate(rows):
            connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", [n, a, b])
    return [connection.execute(each).fetchall() for each in chosen]


def by_us(cluster: InMemoryCluster, content: dict[str, list[Row]], chosen: list[str]) -> list[list[Any]]:
    script = Script()
    script.run(TABLES + "SET 'table.exec.state.ttl' = '1 h';")
    for name, rows in content.items():
        for n, (a, b) in enumerate(rows):
            cluster.append(name, json.dumps({"n": n, "a": a, "b": b}).encode(), queue_id=n % 2)
    for number, query in enumerate(chosen):
        cluster.create_topic(f"sink{number}", 1)
        script.run(f"CREATE TABLE s{number} (x BIGINT, y STRING) WITH ('topic' = 'sink{number}');")
        script.run(f"INSERT INTO s{number} {query};")
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    with beam.Pipeline(options=options([])) as pipeline:
        Translation(pipeline, connection).add_all(script.sinks)
    stored = [cluster.stored_queue(MessageQueue(f"sink{n}", "broker-a", 0)) for n in range(len(chosen))]
    return [[tuple(json.loads(record.body).values()) for record in each.slice(0, 1000)] for each in stored]


@pytest.mark.parametrize("seed", range(2))
def test_queries_give_what_duckdb_gives(seed: int) -> None:
    random = Random(seed)
    content = tables(random)
    chosen = random.sample(queries(), 25)
    with clean_cluster() as cluster:
        for name in ("t", "u"):
            cluster.create_topic(name, 2)
        found = by_us(cluster, content, chosen)
    wanted = by_duckdb(content, chosen)
    for query, ours, others in zip(chosen, found, wanted, strict=True):
        if query in ORDERS and "WHERE" not in query:
            assert ours == others, f"{query}, of {content}"
        assert Counter(ours) == Counter(others), f"{query}, of {content}"


def test_a_value_of_two_rows_fails_the_job() -> None:
    with clean_cluster() as cluster:
        for name in ("t", "u"):
            cluster.create_topic(name, 2)
        rows: list[Row] = [(1, "x"), (2, "x")]
        message = (
            r"a sub-query as a value has more than one row \(line \d+: \(SELECT u\.b FROM u "
            r"WHERE u\.b = t\.b\)\): take an aggregate of them, such as MAX\(column\), .* "
            r"\(INSERT INTO \w+, line \d+\)"
        )
        with pytest.raises(Exception, match=message):
            by_us(cluster, {"t": rows, "u": rows}, ["SELECT n, (SELECT u.b\n FROM u WHERE u.b = t.b) FROM t"])


def test_distinct_values_of_several_columns_are_counted() -> None:
    with clean_cluster() as cluster:
        for name in ("t", "u"):
            cluster.create_topic(name, 2)
        rows: list[Row] = [(1, "x"), (1, "x"), (1, "y"), (None, "x"), (2, None)]
        query = "SELECT COUNT(DISTINCT a, b), 'n' FROM t"
        assert by_us(cluster, {"t": rows}, [query]) == [[(2, "n")]]


def test_rows_of_windows_are_compared_and_can_go_into_windows_again() -> None:
    counts = (
        "SELECT window_start, window_end, window_time, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) {} GROUP BY window_start, window_end, window_time"
    )
    both = f"({counts.format('')} {{}} {counts.format('WHERE n <> 1')})"
    statements = [
        f"SELECT SUM(c), '{kind}' FROM {both.format(kind)}"
        for kind in ("UNION", "EXCEPT", "INTERSECT", "INTERSECT ALL")
    ]
    statements.append(
        f"SELECT SUM(c), CAST(TUMBLE_START(window_time, INTERVAL '2' MINUTE) AS STRING) FROM {both.format('UNION')} "
        "GROUP BY TUMBLE(window_time, INTERVAL '2' MINUTE)"
    )
    with clean_cluster() as cluster:
        for name in ("t", "sink"):
            cluster.create_topic(name, 1)
        for n, time in enumerate(["00:00:01", "00:00:02", "00:01:30", "00:02:59"]):
            cluster.append("t", json.dumps({"n": n, "ts": f"2024-01-01 {time}"}).encode())
        script = Script()
        script.run(
            "CREATE TABLE t (n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
            "CREATE TABLE sink (x BIGINT, y STRING) WITH ('topic' = 'sink');"
            + "".join(f"INSERT INTO sink {each};" for each in statements)
        )
        connection = Connection(
            start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
        )
        with beam.Pipeline(options=options([])) as pipeline:
            Translation(pipeline, connection).add_all(script.sinks)
        stored = cluster.stored_queue(MessageQueue("sink", "broker-a", 0))
        found = sorted(tuple(json.loads(record.body).values()) for record in stored.slice(0, 100))
    windows = [(1, "2024-01-01 00:02:00.000"), (4, "2024-01-01 00:00:00.000")]
    assert found == sorted([(2, "EXCEPT"), (2, "INTERSECT"), (2, "INTERSECT ALL"), (5, "UNION"), *windows])
