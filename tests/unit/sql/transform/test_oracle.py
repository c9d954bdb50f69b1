"""Random tables through `SqlTransform`, beside DuckDB."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("duckdb", reason="it is the oracle")

import apache_beam as beam
import duckdb
from apache_beam.testing.util import assert_that, equal_to

from rmqio.runners import options
from rmqio.sql import SqlTransform
from tests.unit.sql.transform.row_kinds import Left, Right

QUERIES = [
    "SELECT k, n, n + 1 AS m, x > 0 AS p FROM a WHERE n IS NOT NULL AND (x < 0 OR k = 'x')",
    "SELECT k, COUNT(*) AS c, COUNT(n) AS d, SUM(n) AS s, MIN(x) AS lo, MAX(x) AS hi FROM a GROUP BY k",
    "SELECT a.n, b.t, a.k FROM a JOIN b ON a.k = b.k WHERE a.n < 5",
    "SELECT b.t, COUNT(*) AS c, SUM(a.n) AS s FROM a JOIN b ON a.k = b.k GROUP BY b.t HAVING COUNT(*) > 1",
    "SELECT a.n, b.t FROM b JOIN (a JOIN (SELECT t AS m FROM b) AS c ON a.n = c.m) ON a.k = b.k",
    "SELECT k, n FROM a WHERE n > 0 UNION ALL SELECT k, t FROM b",
    "SELECT COUNT(DISTINCT k) AS c, COUNT(*) FILTER (WHERE n > 2) AS f FROM a GROUP BY n IS NULL",
]
KEYS = st.sampled_from(["x", "y", "é", "", None])
NUMBERS = st.none() | st.integers(-10, 10)
LEFT = st.lists(st.builds(Left, KEYS, NUMBERS, st.floats(-4, 4, width=16)), max_size=30)
RIGHT = st.lists(st.builds(Right, KEYS, NUMBERS), max_size=12)


def expected(query: str, left: list[Left], right: list[Right]) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE a (k VARCHAR, n BIGINT, x DOUBLE); CREATE TABLE b (k VARCHAR, t BIGINT)")
    for name, rows in (("a", left), ("b", right)):
        for row in rows:
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row))
    return list(connection.execute(query).fetchall())


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(LEFT, RIGHT)
def test_queries_give_what_duckdb_gives(left: list[Left], right: list[Right]) -> None:
    with beam.Pipeline(options=options([])) as pipeline:
        inputs = {
            "a": pipeline | "a" >> beam.Create(left).with_output_types(Left),
            "b": pipeline | "b" >> beam.Create(right).with_output_types(Right),
        }
        for number, query in enumerate(QUERIES):
            rows = inputs | f"query {number}" >> SqlTransform(query)
            found = rows | f"tuples {number}" >> beam.Map(tuple)
            assert_that(found, equal_to(expected(query, left, right)), label=f"check {number}")
