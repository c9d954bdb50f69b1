"""Rows that fail after a join or an aggregate: the option `on-error` of their tables says what becomes of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio.errors import counted
from rmqio.sql.job import summary
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.outputs import row_text
from rmqio.sql.types import SqlType
from rmqio.sql.values import LAST_US
from rmqio.testing import InMemoryCluster
from tests.unit.sql.job_support import SINK, cluster, job, put, rows, stored, table

__all__ = ["cluster"]

T = [{"a": 1, "b": "1"}, {"a": 2, "b": "x"}, {"a": 2, "b": "3"}]
U = [{"a": 1, "b": "5"}, {"a": 2, "b": "7"}]
TTL = "SET 'table.exec.state.ttl' = '1 h';"
PLACE = " (INSERT INTO sink, line 2)"
NOT_WHOLE = "CAST(t.b AS BIGINT): 'x' is not a whole number"
GROUP = "SELECT a, CAST(10 / SUM(a - 1) AS STRING) FROM t GROUP BY a"

CASES: dict[str, tuple[str, list[tuple[Any, ...]], str, dict[str, Any]]] = {
    "group": (GROUP, [(2, "5")], "10 / (SUM(a - 1)): division by zero", {"a": 1, "SUM(a - 1)": 0}),
    "key of a group": (
        "SELECT a, CAST(COUNT(*) AS STRING) FROM t WHERE b <> 'x' GROUP BY a, (a - 1) * 200000000 * INTERVAL '1' DAY",
        [(1, "1")],
        "((a - 1) * 200000000) * INTERVAL '1' DAY: 17280000000000000000 is out of range of INTERVAL DAY TO SECOND",
        {"a": 2, "b": "3"},
    ),
    "sum": (
        "SELECT a, CAST(SUM(a + 9223372036854775800) AS STRING) FROM t GROUP BY a",
        [(1, "9223372036854775801")],
        "SUM(a + 9223372036854775800): the sum 18446744073709551604 is out of range of BIGINT: CAST the argument to a "
        "wider type",
        {"a": 2, "SUM(a + 9223372036854775800)": None},
    ),
    "join": (
        "SELECT t.a, CAST(CAST(t.b AS BIGINT) + 1 AS STRING) FROM t JOIN u ON t.a = u.a",
        [(1, "2"), (2, "4")],
        "CAST(b AS BIGINT): 'x' is not a whole number",
        {"t.a": 2, "b": "x", "u.a": 2},
    ),
    "condition of an outer join": (
        "SELECT t.a, u.b FROM t LEFT JOIN u ON t.a = u.a AND CAST(t.b AS BIGINT) < 3",
        [(1, "5"), (2, "")],  # the row that fails is not one without a partner
        NOT_WHOLE,
        {"t.a": 2, "t.b": "x", "u.a": 2, "u.b": "7"},
    ),
    "over": (
        "SELECT a, CAST(CAST(b AS BIGINT) + n AS STRING) "
        "FROM (SELECT a, b, COUNT(*) OVER (PARTITION BY a) AS n FROM t)",
        [(1, "2"), (2, "5")],
        "CAST(b AS BIGINT): 'x' is not a whole number",
        {"a": 2, "b": "x", "COUNT(*) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)": 2},
    ),
    "sum over": (
        "SELECT a, CAST(SUM(n) OVER (PARTITION BY a ORDER BY b ROWS UNBOUNDED PRECEDING) AS STRING) "
        "FROM (SELECT a, b, a + 9223372036854775800 AS n FROM t)",
        [(1, "9223372036854775801"), (2, "9223372036854775802")],
        "SUM(n) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW): the sum 18446744073709551604 is out of range "
        "of BIGINT: CAST the argument to a wider type",
        {"a": 2, "b": "x", "SUM(n) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)": None},
    ),
    "intersection": (
        "SELECT a, CAST(CAST(b AS BIGINT) AS STRING) FROM (SELECT a, b FROM t INTERSECT SELECT a, b FROM t)",
        [(1, "1"), (2, "3")],
        "CAST(b AS BIGINT): 'x' is not a whole number",
        {"a": 2, "b": "x"},
    ),
    "rank": (
        "SELECT a, CAST(CAST(b AS BIGINT) AS STRING) FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b "
        "DESC) AS n FROM t) WHERE n = 1",
        [(1, "1")],
        "CAST(b AS BIGINT): 'x' is not a whole number",
        {"a": 2, "b": "x"},
    ),
}


def script(query: str, on_error: str) -> str:
    more = {"on_error": on_error} | ({"dead_letter_topic": "letters"} if on_error == "dead-letter" else {})
    return f"{TTL} {table(**more)} {table('u', on_error='skip')} {SINK}\nINSERT INTO sink {query};"


def in_order(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(each or "" for each in row) for row in found)


@pytest.mark.parametrize("name", CASES)
def test_a_row_goes_to_the_dead_letters_of_its_table(cluster: InMemoryCluster, name: str) -> None:
    query, wanted, reason, row = CASES[name]
    put(cluster, "t", *T)
    put(cluster, "u", *U)
    result = job(cluster, script(query, "dead-letter"))
    found = [tuple(json.loads(each.body).values()) for each in stored(cluster, "sink")]
    assert in_order(found) == wanted
    (letter,) = stored(cluster, "letters")
    said = {key: value for key, value in json.loads(letter.body).items() if key in row}
    assert (letter.properties["RMQIO_ERROR_REASON"], said) == (reason + PLACE, row)
    assert summary(result) == f"{counted(len(wanted), 'row')} written, 1 failed", "the letter is not a row of the sink"


def test_a_large_row_has_a_letter_that_can_be_sent(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 7, "b": "y" * 2_000_000})
    put(cluster, "u", {"a": 7, "b": "y" * 2_000_000})
    query = "SELECT t.a, CAST(CAST(t.b || u.b || 'x' AS BIGINT) AS STRING) FROM t JOIN u ON t.a = u.a"
    job(cluster, script(query, "dead-letter"))
    (letter,) = stored(cluster, "letters")
    assert json.loads(letter.body)["t.a"] == 7
    assert len(letter.body) < 2000


@pytest.mark.parametrize("name", ["group", "join", "intersection"])
def test_an_error_names_the_expression_the_statement_and_the_row(cluster: InMemoryCluster, name: str) -> None:
    query, _, reason, row = CASES[name]
    put(cluster, "t", *T)
    put(cluster, "u", *U)
    with pytest.raises(Exception, match=re.escape(f"{reason}{PLACE}; the row is {json.dumps(row)}")):
        job(cluster, script(query, "fail"))
    assert stored(cluster, "letters") == []


def test_a_row_of_values_has_its_number(cluster: InMemoryCluster) -> None:
    values = "SELECT 1 / a, '' FROM (VALUES (1), (0)) AS v (a)"
    with pytest.raises(Exception, match=r"row 2 of the statement: 1 / 0: division by zero \(INSERT INTO sink"):
        job(cluster, f"{SINK} INSERT INTO sink {values};")


def test_a_row_whose_regular_expression_takes_too_long_is_a_bad_row(cluster: InMemoryCluster) -> None:
    """The others are written."""
    pytest.importorskip("regex", reason="a time limit needs the extra 'sql'")
    put(cluster, "t", *T)
    slow = "REGEXP_EXTRACT(REPEAT('a', 100) || b, '(a|aa)+$', 0)"
    job(cluster, script(f"SELECT a, CASE WHEN b = 'x' THEN {slow} ELSE b END FROM t", "dead-letter"))
    assert rows(cluster) == [(1, "1"), (2, "3")]
    (letter,) = stored(cluster, "letters")
    reason = letter.properties["RMQIO_ERROR_REASON"]
    assert "the regular expression '(a|aa)+$' took longer than 0.25 s for 'aaaa" in reason


def test_a_row_is_left_out_and_counted(cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    put(cluster, "t", *T)
    job(cluster, script(GROUP, "skip"))
    assert rows(cluster) == [(2, "5")]
    assert '1 row left out, the first is {"a": 1, "SUM(a - 1)": 0}: 10 / (SUM(a - 1)): division by' in caplog.text


def test_the_strictest_of_several_tables_counts(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *T)
    put(cluster, "u", *U)
    given = f"{TTL} {table(on_error='skip')} {table('u')} {SINK}\n"
    with pytest.raises(Exception, match="is not a whole number"):
        job(cluster, f"{given}INSERT INTO sink {CASES['join'][0]};")


NULLS: dict[str, tuple[str, list[Any], list[tuple[Any, ...]], int, int]] = {
    "field": ("SELECT a, b FROM t", [{"a": "x", "b": "1"}, b"{", {"a": 2, "b": "2"}], [("", "1"), (2, "2")], 1, 1),
    "cast": ("SELECT CAST(b AS INT) + 1, b FROM t", [*T, {"b": "y"}], [("", "x"), ("", "y"), (2, "1"), (4, "3")], 2, 0),
    "where": ("SELECT a, b FROM t WHERE CAST(b AS INT) > 0", T, [(1, "1"), (2, "3")], 1, 0),
    "group": (GROUP, T, [(1, ""), (2, "5")], 1, 0),
    "sum": (
        "SELECT a, CAST(SUM(a + 9223372036854775800) AS STRING) FROM t GROUP BY a",
        T,
        [(1, "9223372036854775801"), (2, "")],
        1,
        0,
    ),
    "sum over": (
        "SELECT a, CAST(SUM(a + 9223372036854775800) OVER (PARTITION BY a) AS STRING) FROM t",
        T,
        [(1, "9223372036854775801"), (2, ""), (2, "")],
        2,
        0,
    ),
    "not null": (
        "SELECT COALESCE(CAST(b AS INT), 0) + CAST('1' || b AS INT), b FROM t",
        T,
        [(12, "1"), (16, "3")],
        2,
        1,
    ),
}


@pytest.mark.parametrize("name", NULLS)
def test_a_value_that_fails_is_null(cluster: InMemoryCluster, name: str) -> None:
    query, bodies, wanted, values, bad = NULLS[name]
    put(cluster, "t", *bodies)
    sink = SINK.replace("a INT", "a INT NOT NULL") if name == "not null" else SINK
    result = job(cluster, f"{table(on_error='null')} {sink} INSERT INTO sink {query};")
    found = [tuple(json.loads(each.body).values()) for each in stored(cluster, "sink")]
    assert sorted((tuple("" if each is None else each for each in row) for row in found), key=str) == wanted
    counters = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio.sql"))["counters"]
    counts = {each.key.metric.name: each.committed for each in counters}
    assert (counts.get("values_failed", 0), counts.get("rows_failed", 0)) == (values, bad)


def test_a_column_that_is_not_null_takes_none(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": "x", "b": "5"}, {"a": 1, "b": "y"}, {"a": 2, "b": "6"})
    given = table(on_error="null").replace("a INT, b STRING", "a INT NOT NULL, b STRING NOT NULL")
    sink = SINK.replace("a INT", "a INT NOT NULL")
    job(
        cluster,
        f"{given} {sink} INSERT INTO sink SELECT CAST(b AS INT) + a, b FROM t; INSERT INTO sink SELECT a, b FROM t;",
    )
    assert rows(cluster) == [(1, "y"), (2, "6"), (8, "6")]


@pytest.mark.parametrize(
    ("value", "precision", "shown"),
    [
        (253_402_300_800_000_000, 3, "10000-01-01 00:00:00.000"),
        (LAST_US, 6, "9999-12-31 23:59:59.999999"),
        (253_402_387_200_500_000, 1, "10000-01-02 00:00:00.5"),
        (1 << 62, 3, str(1 << 62)),
    ],
)
def test_the_end_of_a_window_can_be_after_the_last_year(value: int, precision: int, shown: str) -> None:
    text = row_text((value,), (Field("window_end", SqlType("TIMESTAMP", precision=precision)),))
    assert json.loads(text) == {"window_end": shown}
