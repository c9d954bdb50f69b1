"""FIRST_VALUE and LAST_VALUE of groups: the times of the rows decide, however rows come, as DuckDB's ARG_MIN has it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly

from rmqio.sql import types
from rmqio.sql.compile.aggregation import Merger
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.runtime import windows
from rmqio.sql.scripts.script import Script
from rmqio.sql.types import SqlType
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql import running
from tests.unit.sql.runtime.ranks import updating

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

TABLE = (
    "CREATE TABLE t (id INT, k STRING, s STRING, n INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
    "WITH ('topic' = 't', 'on-error' = 'skip'); CREATE TABLE u (id INT) WITH ('topic' = 'u');"
)
MINUTES = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        yield made


def some_rows(count: int) -> list[dict[str, Any]]:
    """Rows with different times, in some order."""
    random = Random(11)
    made = [
        {
            "id": number,
            "k": random.choice(["a", "b", None]),
            "s": random.choice([None, "é", "x", "y"]),
            "n": random.choice([None, -2, 7]),
            "ts": f"2024-01-01 00:{number // 20:02}:{number % 20:02}",
        }
        for number in range(count)
    ]
    random.shuffle(made)
    return made


def oracle(query: str, data: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INT, k VARCHAR, s VARCHAR, n INT, ts TIMESTAMP)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [tuple(each.values()) for each in data])
        return running.in_order(connection.execute(query).fetchall())


@pytest.mark.parametrize(
    ("query", "other"),
    [
        (
            "SELECT k, FIRST_VALUE(s), LAST_VALUE(n) FROM t GROUP BY k",
            "SELECT k, ARG_MIN(s, ts) FILTER (WHERE s IS NOT NULL), ARG_MAX(n, ts) FILTER (WHERE n IS NOT NULL) "
            "FROM t GROUP BY k",
        ),
        (
            "SELECT 'all', LAST_VALUE(DISTINCT s) FILTER (WHERE id < 30), FIRST_VALUE(n + id) FROM t",
            "SELECT 'all', ARG_MAX(s, ts) FILTER (WHERE s IS NOT NULL AND id < 30), "
            "ARG_MIN(n + id, ts) FILTER (WHERE n IS NOT NULL) FROM t",
        ),
        (
            f"SELECT k, FIRST_VALUE(s), MAX(id) FROM {MINUTES} GROUP BY k, window_start, window_end",
            "SELECT k, ARG_MIN(s, ts) FILTER (WHERE s IS NOT NULL), MAX(id) FROM t "
            "GROUP BY k, DATE_TRUNC('minute', ts)",
        ),
        (
            "SELECT k, LAST_VALUE(s), COUNT(*) FROM t GROUP BY ROLLUP (k)",
            "SELECT k, ARG_MAX(s, ts) FILTER (WHERE s IS NOT NULL), COUNT(*) FROM t GROUP BY ROLLUP (k)",
        ),
    ],
)
def test_values_of_first_and_last_rows(cluster: InMemoryCluster, query: str, other: str) -> None:
    data = some_rows(60)
    running.put(cluster, "t", *data)
    running.run(
        cluster, f"{TABLE} CREATE TABLE sink (k STRING, x STRING, y INT) WITH ('topic' = 'sink'); INSERT INTO sink "
        + query.replace("COUNT(*)", "CAST(COUNT(*) AS INT)"),
    )  # fmt: skip
    assert running.rows(cluster) == oracle(other, data)


@pytest.mark.parametrize("source", [f"{MINUTES} GROUP BY k, window_start, window_end", "t GROUP BY k"])
def test_rows_of_one_time_are_in_the_order_of_their_queue(cluster: InMemoryCluster, source: str) -> None:
    texts = ["b", "x", "a", "é", "c"]
    updating.put(cluster, "t", [{"k": k, "s": s, "ts": "2024-01-01 00:00:00"} for s in texts for k in "ab"])
    running.run(
        cluster,
        f"{TABLE} CREATE TABLE sink (k STRING, x STRING, y STRING) WITH ('topic' = 'sink');"
        f"INSERT INTO sink SELECT k, FIRST_VALUE(s), LAST_VALUE(s) FROM {source}",
    )
    assert running.rows(cluster) == [("a", "b", "c"), ("b", "b", "c")]


def test_a_row_that_comes_late_changes_no_last_value(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Beam's Direct runner has no clock for triggers of processing time, if the input ends.
    often = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.ACCUMULATING}
    monkeypatch.setattr(windows, "of_groups", lambda: often)
    data = some_rows(40)
    running.put(cluster, "t", *data)
    updating.run(
        cluster,
        f"{TABLE} CREATE TABLE sink (k STRING NOT NULL, x STRING, PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT COALESCE(k, '?'), LAST_VALUE(s) FROM t GROUP BY COALESCE(k, '?')",
        endless=True,
    )
    expected = oracle(
        "SELECT COALESCE(k, '?'), ARG_MAX(s, ts) FILTER (WHERE s IS NOT NULL) FROM t GROUP BY COALESCE(k, '?')", data
    )
    assert running.in_order(updating.held(cluster)) == expected


def test_a_row_without_a_time_is_bad(cluster: InMemoryCluster) -> None:
    running.put(
        cluster, "t", {"id": 1, "s": "none"}, {"id": 2, "s": "some", "ts": "2024-01-01 00:00:00"}, {"id": 3, "k": "b"}
    )
    running.run(
        cluster,
        f"{TABLE} CREATE TABLE sink (k STRING, x STRING, n BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT k, FIRST_VALUE(s), COUNT(*) FROM t GROUP BY k",
    )
    assert running.rows(cluster) == [(None, "some", 1)], "neither are rows counted that have no time"


@pytest.mark.parametrize(
    ("kind", "rows", "first", "last"),
    [
        (types.INTEGER, [(5, 3), (None, 1), (9, 2), (7, 4)], 9, 7),
        (types.VARCHAR, [("b", 1), ("a", 1), ("c", 1)], "a", "c"),
        (types.array_of(types.INTEGER), [([1], 2), ([1, None], 2)], [1], [1, None]),
        (types.DOUBLE, [(float("inf"), 1), (-1.5, 1), (None, 0)], float("inf"), -1.5),
        (types.VARCHAR, [("b", 1, 7), ("a", 1, 8), ("c", 1, 6)], "c", "a"),
        (types.INTEGER, [(None, 1)], None, None),
    ],
)  # fmt: skip
def test_the_order_of_rows_and_of_their_merging_means_nothing(
    kind: SqlType, rows: list[tuple[Any, ...]], first: Any, last: Any
) -> None:
    elements = (kind, types.TIMESTAMP, types.BIGINT)[: len(rows[0])]
    row = SqlType("ROW", False, elements=elements, names=("value", "time", "offset")[: len(rows[0])])
    merger = Merger([(AggregateCall(name, kind), row) for name in ("FIRST_VALUE", "LAST_VALUE")])
    for ordered in permutations(rows):
        merged: list[Any] = [None, None]
        for each in ordered:
            merged = merger.merge(merged, [None if each[0] is None else each] * 2)
        assert merger.finish(merged) == [first, last]


def test_the_plan_says_by_which_time() -> None:
    script = Script()
    script.run(f"{TABLE} EXPLAIN SELECT k, FIRST_VALUE(s) FILTER (WHERE id > 1) FROM t GROUP BY k")
    assert "FIRST_VALUE(s) by ts FILTER (WHERE id > 1)" in explain(script.explained)


NONE = "these rows have none: give the table a WATERMARK FOR a column"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT FIRST_VALUE(id) FROM u", NONE),
        ("SELECT LAST_VALUE(id) FROM (SELECT id, k FROM t)", NONE),
        ("SELECT LAST_VALUE(t.id) FROM t JOIN u ON t.id = u.id", NONE),
        ("SELECT FIRST_VALUE(t.id) FROM t JOIN t AS o ON t.k = o.k AND t.ts = o.ts", "these rows have several, ts and"),
        (
            f"SELECT FIRST_VALUE(s) FROM (SELECT * FROM {MINUTES}) GROUP BY window_start, window_end",
            "no time but that of their window: compute FIRST_VALUE in the SELECT FROM TABLE(...) of the window",
        ),
        ("SELECT LAST_VALUE(*) FROM t", "LAST_VALUE takes one argument, not *"),
        ("SELECT LAST_VALUE(id, 2) FROM t", "LAST_VALUE takes one argument, not 2"),
    ],
)
def test_rows_without_one_time_are_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        Script().run(f"{TABLE} EXPLAIN {query}")
    assert message in str(raised.value)
