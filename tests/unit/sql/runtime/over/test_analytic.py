"""OVER of inputs that end: ranks, LEAD and LAG, frames and orders of all kinds, beside DuckDB; and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio.runners import options
from rmqio.sql.errors import SqlError
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import in_order, put, rows, run

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

TABLE = "CREATE TABLE t (n BIGINT, k STRING, g INT, v BIGINT) WITH ('topic' = 't');"
FRAMES = [
    "",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING",
    "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS 2 PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
]
AGGREGATES = ["COUNT(*)", "COUNT(v)", "SUM(v)", "MIN(v)", "MAX(v)", "SUM(v) FILTER (WHERE g = 1)", "FIRST_VALUE(n)"]
RANKS = ["ROW_NUMBER()", "NTILE(3)", "LAG(v)", "LEAD(v)", "LAG(v, 2, -1)", "LEAD(n, 3, -7)"]
PEERS = ["RANK()", "DENSE_RANK()", "CAST(ROUND(PERCENT_RANK() {0} * 1000) AS BIGINT)",
         "CAST(ROUND(CUME_DIST() {0} * 1000) AS BIGINT)"]  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        yield made


def data(random: Random, count: int = 40) -> list[tuple[Any, ...]]:
    return [
        (n, random.choice(["x", "y", None]), random.choice([None, 1, 2]), random.choice([None, 1, 2, 3, 4]))
        for n in range(count)
    ]


def outcome(cluster: InMemoryCluster, query: str, columns: int, given: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    put(cluster, "t", *(dict(zip("nkgv", row, strict=True)) for row in given))
    names = ", ".join(f"c{i} BIGINT" for i in range(columns))
    run(cluster, f"{TABLE} CREATE TABLE sink ({names}) WITH ('topic' = 'sink'); INSERT INTO sink {query};")
    return rows(cluster)


def oracle(query: str, given: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        connection.execute("CREATE TABLE t (n BIGINT, k VARCHAR, g INT, v BIGINT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", given)
        found = connection.execute(query).fetchall()
    return in_order([tuple(None if each is None else int(each) for each in row) for row in found])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n, {} FROM t",
        "SELECT n, rn FROM (SELECT *, {} AS rn FROM t) AS r WHERE rn > 3 OR n < 5",
        "SELECT n, v FROM (SELECT *, {} AS rn FROM t WHERE v > 1) AS r",
        "SELECT g, MAX(rn) FROM (SELECT g, {} AS rn FROM t) AS r GROUP BY g",
    ],
)
def test_numbers_of_all_rows_of_a_partition(query: str, cluster: InMemoryCluster) -> None:
    given = data(Random(7))
    text = query.format("ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, n)")
    assert outcome(cluster, text, 2, given) == oracle(text, given)


@pytest.mark.parametrize("order", ["v DESC, n", "g NULLS LAST, v DESC NULLS FIRST, n"])
def test_functions_and_frames_give_what_duckdb_gives(cluster: InMemoryCluster, order: str) -> None:
    over = f"PARTITION BY k ORDER BY {order}"
    calls = [f"{each} OVER ({over} {frame})" for frame in FRAMES for each in AGGREGATES]
    calls += [f"{each} OVER ({over})" for each in RANKS]
    query = f"SELECT n, {', '.join(calls)} FROM t"
    given = data(Random(7))
    assert outcome(cluster, query, len(calls) + 1, given) == oracle(query, given)


def test_peers_have_one_rank_and_several_orders_stand_in_one_select(cluster: InMemoryCluster) -> None:
    calls = []
    for over in ("OVER (PARTITION BY k ORDER BY v)", "OVER (ORDER BY g DESC, k)"):
        calls += [each.format(over) if "{0}" in each else f"{each} {over}" for each in PEERS]
        calls += [f"SUM(n) {over}", f"COUNT(*) {over}"]
    calls += ["SUM(n) OVER ()", "MAX(n) OVER (PARTITION BY g)", "n - MIN(n) OVER (PARTITION BY g, k)"]
    query = f"SELECT n, {', '.join(calls)} FROM t WHERE n > 3"
    given = data(Random(8))
    assert outcome(cluster, query, len(calls) + 1, given) == oracle(query, given)


def test_a_rank_can_be_a_filter_and_a_group(cluster: InMemoryCluster) -> None:
    query = (
        "SELECT r, COUNT(*) AS c, MAX(n) AS m FROM "
        "(SELECT n, DENSE_RANK() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM t) AS ranked WHERE r <= 2 GROUP BY r"
    )
    given = data(Random(9))
    assert outcome(cluster, query, 3, given) == oracle(query, given)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n, COUNT(*) OVER (PARTITION BY k), count(*) OVER (PARTITION BY t.k), MAX(v) OVER (ORDER BY g) FROM t",
        "SELECT n, COUNT(*) OVER (PARTITION BY k) + COUNT(*) OVER (PARTITION BY k), 1, 2 FROM t",
        "SELECT n, v, v, v FROM (SELECT n, v, RANK() OVER (ORDER BY g) AS r FROM t)",
        "SELECT COUNT(*), COUNT(*), 1, 1 FROM (SELECT n, RANK() OVER (ORDER BY g) AS r FROM t)",
    ],
)
def test_equal_calls_are_one_and_calls_that_nothing_needs_are_none(cluster: InMemoryCluster, query: str) -> None:
    given = data(Random(10))
    assert outcome(cluster, query, 4, given) == oracle(query, given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("LAG(v, CAST(NULL AS INT)) OVER (ORDER BY n)", "how far LAG goes back is a number of rows: 1, 2 ..."),
        ("RANK() OVER (PARTITION BY k)", "RANK needs an order: OVER (PARTITION BY key ORDER BY column)"),
        ("RANK(v) OVER (ORDER BY v)", "RANK takes no arguments"),
        ("RANK() OVER (ORDER BY v ROWS 1 PRECEDING)", "takes no ROWS or RANGE: it always uses the whole partition"),
        ("RANK() OVER (ORDER BY 1)", "ORDER BY in OVER takes columns, not positions or constants"),
        ("NTILE() OVER (ORDER BY v)", "NTILE takes the number of groups"),
        ("NTILE(0) OVER (ORDER BY v)", "the number of groups of NTILE is a constant: 1, 2 ..."),
        ("NTILE(v) OVER (ORDER BY v)", "the number of groups of NTILE is a constant: 1, 2 ..."),
        ("LEAD() OVER (ORDER BY v)", "LEAD takes a column, the number of rows to go ahead, and a default value"),
        ("LEAD(v, -1) OVER (ORDER BY v)", "how far LEAD goes ahead is a number of rows: 1, 2 ..."),
        ("LEAD(v) FILTER (WHERE v > 1) OVER (ORDER BY v)", "belongs to aggregate functions, but LEAD is not one"),
        ("SUM(v) OVER (ORDER BY v DESC ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW)", "a frame must begin before it ends"),
        ("SUM(v) OVER (ORDER BY v DESC ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)",
         "a frame must begin before it ends"),
        ("SUM(v) OVER (ORDER BY v DESC RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW)",
         "RANGE takes a distance, INTERVAL '1' HOUR PRECEDING, only in OVER by time up to the CURRENT ROW"),
        ("SUM(v) OVER (ORDER BY v DESC ROWS BETWEEN v PRECEDING AND CURRENT ROW)",
         "a frame goes a constant distance, and v is not constant"),
        ("SUM(v) OVER (PARTITION BY k ROWS 1 PRECEDING)", "a frame needs an order"),
        ("SUM(k) OVER (PARTITION BY k)", "SUM takes numbers, not STRING"),
        ("SUM(DISTINCT v) OVER (PARTITION BY k)", "DISTINCT before OVER is not supported"),
    ],
)  # fmt: skip
def test_calls_that_are_refused(call: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        Script().run(f"{TABLE} EXPLAIN SELECT {call} FROM t;")


@pytest.mark.parametrize(
    "call", ["RANK() OVER (ORDER BY v)", "SUM(v) OVER (PARTITION BY k)", "LEAD(v) OVER (ORDER BY v)"]
)
def test_rows_without_end_are_refused(call: str) -> None:
    script = Script()
    script.run(f"{TABLE} CREATE TABLE sink (c BIGINT) WITH ('topic' = 'sink'); INSERT INTO sink SELECT {call} FROM t;")
    with pytest.raises(SqlError, match="this OVER needs an input that ends"):
        Translation(beam.Pipeline(options=options([])), Connection("127.0.0.1:1")).add_all(script.sinks)
