"""GROUPING SETS, ROLLUP, CUBE and groups of no rows, beside DuckDB; and CROSS JOIN."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

TABLES = (
    "CREATE TABLE t (k STRING, g INT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
    "CREATE TABLE u (a INT, b STRING) WITH ('topic' = 'u');"
)
ROWS = [("x", 1, 5), ("x", 2, 7), ("y", 1, 1), (None, 1, 2), ("y", None, 3), (None, None, 4)]
OTHERS = [(1, "p"), (2, "q"), (1, "r")]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink"):
            made.create_topic(topic, 2)
        yield made


def outcome(cluster: InMemoryCluster, query: str, columns: str, data: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    at = [f"2024-01-01 00:00:0{n // 3}" for n in range(len(data))]
    put(cluster, "t", *({"k": k, "g": g, "v": v, "ts": ts} for (k, g, v), ts in zip(data, at, strict=True)))
    put(cluster, "u", *({"a": a, "b": b} for a, b in OTHERS))
    run(cluster, f"{TABLES} CREATE TABLE sink ({columns}) WITH ('topic' = 'sink'); INSERT INTO sink {query};")
    return rows(cluster)


def oracle(query: str, data: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (k VARCHAR, g INT, v BIGINT); CREATE TABLE u (a INT, b VARCHAR)")
        connection.executemany("INSERT INTO u VALUES (?, ?)", OTHERS)
        if data:
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", data)
        return in_order(connection.execute(query).fetchall())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, g, COUNT(*), SUM(v) FROM t GROUP BY GROUPING SETS ((k, g), (k), ())",
        "SELECT k, g, COUNT(*), SUM(v) FROM t GROUP BY ROLLUP (k, g)",
        "SELECT k, g, GROUPING(k), MAX(v) FROM t GROUP BY CUBE (k, g)",
        "SELECT k, g, GROUPING_ID(k, g), MAX(v) FROM t GROUP BY k, ROLLUP (g)",
        "SELECT k, g, GROUPING(g, k), MIN(g) FROM t GROUP BY ROLLUP ((k, g)) HAVING COUNT(*) > 1 OR GROUPING(k) = 1",
        "SELECT k, g, 0, COUNT(v) FROM t GROUP BY GROUPING SETS ((k), ROLLUP (g), CUBE (k, g)), ROLLUP (g)",
        "SELECT k, g, 0, SUM(v) FROM t WHERE v > 1 GROUP BY GROUPING SETS ((k, g), (k, g), (g))",
        "SELECT k, 1, GROUPING(k), COUNT(*) FROM t GROUP BY GROUPING SETS ((k))",
    ],
)
def test_grouping_sets_give_what_duckdb_gives(cluster: InMemoryCluster, query: str) -> None:
    found = outcome(cluster, query, "a STRING, b INT, c BIGINT, d BIGINT", ROWS)
    assert found == oracle(query, ROWS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*), SUM(v), MAX(k) FROM t",
        "SELECT COUNT(DISTINCT k), AVG(v), MIN(k) FROM t WHERE v > 100",
        "SELECT COUNT(*), COUNT(v), CAST(NULL AS STRING) FROM t HAVING COUNT(*) > 3",
        "SELECT COUNT(*), SUM(v), MAX(k) FROM t GROUP BY ()",
        "SELECT 1, COUNT(*), k FROM t GROUP BY k",
        "SELECT COUNT(*), SUM(n), 'x' FROM (SELECT COUNT(*) AS n FROM t) AS inner_rows",
        "SELECT v, g, k FROM t WHERE g NOT IN (SELECT g FROM t WHERE v > 100) OR EXISTS (SELECT 1 FROM t WHERE v > 6)",
    ],
)
@pytest.mark.parametrize("data", [[], ROWS], ids=["no rows", "rows"])
def test_a_group_of_no_rows_is_one_row(cluster: InMemoryCluster, query: str, data: list[tuple[Any, ...]]) -> None:
    found = outcome(cluster, query, "a BIGINT, b BIGINT, c STRING", data)
    wanted = [tuple(int(part) if isinstance(part, float) else part for part in row) for row in oracle(query, data)]
    assert found == wanted


def test_sets_of_a_window(cluster: InMemoryCluster) -> None:
    query = (
        "SELECT CAST(EXTRACT(SECOND FROM window_start) AS STRING), k, GROUPING(k), SUM(v) FROM "
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end, ROLLUP (k)"
    )
    found = outcome(cluster, query, "w STRING, a STRING, b BIGINT, c BIGINT", ROWS)
    first = [("0", "x", 0, 12), ("0", "y", 0, 1), ("0", None, 1, 13)]
    assert found == in_order([*first, ("1", None, 0, 6), ("1", "y", 0, 3), ("1", None, 1, 9)])


LATER = "window_start > TIMESTAMP '2024-01-01 00:00:00'"


@pytest.mark.parametrize(
    ("columns", "more", "wanted"),
    [
        (f"COUNT(*), COUNT(*) FILTER (WHERE {LATER})", "ROLLUP (k)",
         [(n, n if at else 0) for at, n in [(0, 2), (0, 1), (0, 3), (1, 1), (1, 2), (1, 3)]]),
        (f"COUNT(*), SUM(v) FILTER (WHERE {LATER})", "k", [(2, None), (1, None), (2, 6), (1, 3)]),
        ("COUNT(*), SUM(EXTRACT(SECOND FROM window_end))", "CUBE (k)",
         [(1, 1), (2, 2), (3, 3), (1, 2), (2, 4), (3, 6)]),
        (f"COUNT(*), CHAR_LENGTH(LISTAGG(k) FILTER (WHERE {LATER}))", "ROLLUP (k)", None),
        (f"COUNT(*), CHAR_LENGTH(JSON_ARRAYAGG(g) FILTER (WHERE NOT {LATER}))", "GROUPING SETS ((k, g), ())", None),
        ("COUNT(DISTINCT window_start, k), COUNT(DISTINCT window_time)", "ROLLUP (k)", None),
        ("COUNT(*), 0", "k HAVING MAX(window_end) > TIMESTAMP '2024-01-01 00:00:01'", [(2, 0), (1, 0)]),
        ("COUNT(*), 0", "k HAVING MAX(window_start) IS NULL", []),
        ("COUNT(*), LAST_VALUE(v) FILTER (WHERE window_end IS NOT NULL)", "k", [(2, 7), (1, 1), (2, 4), (1, 3)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("window", "where"),
    [("TUMBLE", ""), ("HOP", f" WHERE {LATER}"), ("CUMULATE", " WHERE window_end > ts AND v > 1")],
    ids=["TUMBLE", "HOP", "CUMULATE"],
)
def test_rows_have_the_columns_of_their_window_as_in_a_sub_query(
    cluster: InMemoryCluster, window: str, where: str, columns: str, more: str, wanted: list[tuple[Any, ...]] | None
) -> None:
    step = "" if window == "TUMBLE" else "INTERVAL '0.5' SECOND, "
    rows_of = f"TABLE({window}(TABLE t, DESCRIPTOR(ts), {step}INTERVAL '1' SECOND))"
    query = f"SELECT {columns} FROM {{}}{where} GROUP BY window_start, window_end, {more}"
    cluster.create_topic("same", 2)
    also = "CREATE TABLE same (a BIGINT, b BIGINT) WITH ('topic' = 'same'); INSERT INTO same "
    also += "SELECT v, 0 FROM t" if "LAST_VALUE" in columns else query.format(f"(SELECT * FROM {rows_of})")
    found = outcome(cluster, f"{query.format(rows_of)}; {also}", "a BIGINT, b BIGINT", ROWS)
    if wanted is not None and window == "TUMBLE":
        assert found == in_order(wanted)
    if "LAST_VALUE" not in columns:  # a sub-query leaves the rows no time
        assert found == rows(cluster, "same")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k FROM t GROUP BY GROUPING SETS ((k), (TUMBLE(ts, INTERVAL '1' DAY)))",
         "in GROUP BY, write a window next to GROUPING SETS, ROLLUP and CUBE, not inside them"),
        ("SELECT k FROM t GROUP BY CUBE (k, g, v, k, g, v, k, g)", "CUBE of 8 columns has 256 sets: at most 128 are"),
        ("SELECT k FROM t GROUP BY CUBE (k, g, v, k), CUBE (k, g, v, k)",
         "GROUP BY has more than 128 sets, for each of which every row is counted"),
        ("SELECT g FROM t GROUP BY ROLLUP (k)", "g is neither in GROUP BY nor in an aggregate function"),
        ("SELECT GROUPING(g) FROM t GROUP BY ROLLUP (k)", "GROUPING takes columns of GROUP BY, and this is not one"),
        ("SELECT GROUPING() FROM t GROUP BY k", "GROUPING takes columns of GROUP BY"),
        ("SELECT GROUPING_ID(k) FROM t", "GROUPING_ID can be used only in SELECT and HAVING of a query with GROUP BY"),
        ("SELECT k FROM t GROUP BY ROLLUP ()", "ROLLUP takes columns, and columns together in parentheses"),
        ("SELECT k FROM t GROUP BY ROLLUP (1)", "GROUP BY takes columns, not positions"),
    ],
)  # fmt: skip
def test_sets_that_are_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        Script().run(f"{TABLES} EXPLAIN {query};")


def unbounded(text: str) -> None:
    script = Script()
    script.run(text)
    Translation(beam.Pipeline(options=options([])), Connection("127.0.0.1:1")).add_all(script.sinks)


def test_sets_without_end_need_a_window() -> None:
    sink = "CREATE TABLE s (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('topic' = 'sink');"
    with pytest.raises(SqlError, match="no PRIMARY KEY tells the rows apart"):
        unbounded(f"{TABLES} {sink} INSERT INTO s SELECT k, COUNT(*) FROM t GROUP BY ROLLUP (k);")


# ---- CROSS JOIN -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, a FROM t CROSS JOIN u",
        "SELECT k, a FROM t, u",
        "SELECT k, a FROM t CROSS JOIN (SELECT MAX(a) AS a FROM u) AS m WHERE v > a",
        "SELECT t.k, w.a FROM t, u, u AS w WHERE t.g = u.a AND u.a <= w.a",
        "SELECT t.k, u.a FROM t JOIN u ON t.g > u.a",
        "SELECT t.k, u.a FROM t JOIN u ON TRUE WHERE t.v < 3",
        "SELECT t.k, u.a FROM t JOIN u ON t.g < u.a OR u.a IS NULL",
    ],
)
def test_a_cross_join_gives_all_pairs(cluster: InMemoryCluster, query: str) -> None:
    assert outcome(cluster, query, "k STRING, a INT", ROWS) == oracle(query, ROWS)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k, a FROM t CROSS JOIN u", "CROSS JOIN keeps every row forever, for rows that may still arrive"),
        ("SELECT t.k, w.a FROM t, u, u AS w WHERE t.g = u.a AND u.a = w.a", "this join keeps every row forever"),
    ],
)
def test_a_cross_join_without_end_and_time_to_live_is_refused(query: str, message: str) -> None:
    sink = "CREATE TABLE sink (k STRING, a INT) WITH ('topic' = 'sink');"
    with pytest.raises(SqlError, match=message):
        unbounded(f"{TABLES} {sink} INSERT INTO sink {query};")
