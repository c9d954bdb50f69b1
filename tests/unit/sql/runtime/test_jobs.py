"""Jobs on the Direct runner and a cluster in memory: reads that are shared, bad rows, metadata, and names."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio.testing import InMemoryCluster
from tests.unit.sql.job_support import SINK, TIMED, cluster, job, put, rows, stored, table, timed

__all__ = ["cluster"]


def test_statements_of_one_topic_share_its_read(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    result = job(
        cluster,
        f"{table()} {SINK} INSERT INTO sink SELECT a, b FROM t WHERE a = 1; INSERT INTO sink SELECT a * 10, b FROM t;"
        "INSERT INTO sink SELECT a, 'none' FROM t WHERE FALSE;",
    )
    assert rows(cluster) == [(1, "x"), (10, "x"), (20, "y")]
    (read,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("records_read"))["counters"]
    assert read.committed == 2


def test_unions_and_views(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": None})
    put(cluster, "u", {"a": 3, "b": "z"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} CREATE VIEW v (n, text) AS SELECT a + 1, b FROM t WHERE b IS NOT NULL;"
        "INSERT INTO sink SELECT n, text FROM v UNION ALL SELECT a, UPPER(b) FROM u UNION ALL SELECT 0, b FROM u;",
    )
    assert rows(cluster) == [(0, "z"), (2, "x"), (3, "Z")]


def test_a_bad_row_goes_to_the_dead_letters(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, b"{", {"a": "many"}, {"a": 2, "b": "two"}, {"a": 3, "b": "3"}, keys=["k"])
    given = table(on_error="dead-letter", dead_letter_topic="letters")
    job(cluster, f"{given} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t WHERE a > 0;")
    assert rows(cluster) == [(1, "1"), (3, "3")]
    letters = stored(cluster, "letters")
    assert (
        sorted(each.body for each in letters) == [b"{", b'{"a": "many"}', b'{"a": 2, "b": "two"}'] or len(letters) == 2
    )
    reasons = " ".join(" ".join(each.properties.values()) for each in letters)
    assert "the body is not JSON" in reasons
    assert "column a: 'many' is not a whole number" in reasons
    assert "'two' is not a whole number" in reasons
    assert {each.keys for each in letters} == {("k",)}


def test_a_bad_row_can_be_skipped(cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, {"a": 2, "b": "two"})
    with caplog.at_level(logging.WARNING):
        result = job(cluster, f"{table(on_error='skip')} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")
    assert rows(cluster) == [(1, "1")]
    assert "'two' is not a whole number" in caplog.text
    (failed,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("rows_failed"))["counters"]
    assert failed.committed == 1


def test_a_bad_row_fails_the_job_with_its_place(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, {"a": 2, "b": "two"})
    with pytest.raises(Exception, match=r"t/broker-a/1, offset 0: CAST\(b AS INT\): 'two' is not a whole number"):
        job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")


def test_columns_that_nothing_needs_are_not_looked_at(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": "no number", "b": "1"})
    job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")
    assert rows(cluster) == [(1, "1")]


def test_metadata_is_read_and_written(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1}, {"a": 2}, tags="red", keys=["k1", "k2"])
    job(
        cluster,
        "CREATE TABLE t (a INT, `offset` BIGINT METADATA VIRTUAL, q INT METADATA FROM 'queue_id' VIRTUAL, tags STRING "
        "METADATA, k STRING METADATA FROM 'keys') WITH ('topic' = 't');"
        "CREATE TABLE sink (a INT, b STRING, tags STRING METADATA, keys STRING METADATA, topic STRING METADATA, "
        "properties MAP<STRING, STRING> METADATA) WITH ('topic' = 'sink', 'keyColumns' = 'a');"
        "INSERT INTO sink SELECT a, CAST(`offset` + q AS STRING), UPPER(tags), k, CASE WHEN a = 2 THEN 'u' END, "
        "MAP['p', b] FROM (SELECT *, 'v' AS b FROM t);",
    )
    (one,) = stored(cluster, "sink")
    (two,) = stored(cluster, "u")
    assert json.loads(one.body) == {"a": 1, "b": "0"}
    assert json.loads(two.body) == {"a": 2, "b": "1"}
    assert (one.tags, one.keys, one.get_property("p")) == ("RED", ("k1", "k2", "1"), "v")


def test_a_join_pairs_every_row_with_every_partner(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n, "b": f"k{n % 3}"} for n in range(7)), {"a": 9, "b": None})
    put(cluster, "u", *({"a": n, "b": f"k{n % 4}"} for n in range(6)), {"a": 9, "b": None})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT t.a * 10 + u.a, t.b FROM t JOIN u ON UPPER(t.b) = UPPER(u.b) AND t.a <= u.a "
        "WHERE u.a > 0;",
    )
    wanted = [
        (t * 10 + u, f"k{t % 3}") for t in range(7) for u in range(1, 6) if t % 3 == u % 4 and t <= u and u % 4 < 3
    ]
    assert rows(cluster) == sorted(wanted)
    assert wanted


def test_values_are_inserted(cluster: InMemoryCluster) -> None:
    job(cluster, f"{SINK} INSERT INTO sink VALUES (1, 'x'), (2, NULL); INSERT INTO sink SELECT 3, UPPER('y');")
    assert sorted(json.loads(each.body)["a"] for each in stored(cluster, "sink")) == [1, 2, 3]


def test_a_text_is_written_as_cast_to_the_type_of_its_column(cluster: InMemoryCluster) -> None:
    """As Flink 2.3.0 does it, unless the types are the same: then a text that is longer goes on as it is."""
    put(cluster, "t", {"v": "abcdef"})
    columns = "a VARCHAR(3), b ARRAY<VARCHAR(3)>, c VARBINARY(1), d CHAR(5), v VARCHAR(3)"
    sink = f"CREATE TABLE t (v VARCHAR(3)) WITH ('topic' = 't'); CREATE TABLE sink ({columns}) WITH ('topic' = 'sink');"
    job(cluster, f"{sink} INSERT INTO sink SELECT 'abcdef', ARRAY['abcdef'], X'6162', CAST('ab' AS CHAR(3)), v FROM t;")
    (found,) = (json.loads(each.body) for each in stored(cluster, "sink"))
    assert found == {"a": "abc", "b": ["abc"], "c": "YQ==", "d": "ab   ", "v": "abcdef"}


def test_a_time_without_a_precision_has_microseconds(cluster: InMemoryCluster) -> None:
    """They tell groups apart, too; the windows of such a column are those of its millisecond."""
    put(cluster, "t", *({"a": f"2024-01-01 00:00:00.12345{n}", "b": "x"} for n in (6, 7, 6)))
    given = "CREATE TABLE t (a TIMESTAMP, b STRING, WATERMARK FOR a AS a) WITH ('topic' = 't');"
    sink = "CREATE TABLE sink (a STRING, b BIGINT) WITH ('topic' = 'sink');"
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(a), INTERVAL '1' SECOND)) GROUP BY a, window_start, window_end"
    job(cluster, f"{given} {sink} INSERT INTO sink SELECT CAST(a AS STRING), COUNT(*) FROM {windows};")
    assert rows(cluster) == [("2024-01-01 00:00:00.123456", 2), ("2024-01-01 00:00:00.123457", 1)]


def test_a_name_that_was_dropped_is_another_table(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"})
    put(cluster, "u", {"a": 2, "b": "y"})
    again = "DROP TABLE t; CREATE TABLE t (a INT, b STRING) WITH ('topic' = 'u');"
    insert = "INSERT INTO sink SELECT a, b FROM t;"
    job(cluster, f"{table()} {SINK} {insert} {again} {insert}")
    assert rows(cluster) == [(1, "x"), (2, "y")]


def test_a_column_that_is_not_null_gets_no_null(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"b": "y"})
    sink = "CREATE TABLE sink (a INT NOT NULL, b STRING) WITH ('topic' = 'sink');"
    job(cluster, f"{table(on_error='skip')} {sink} INSERT INTO sink SELECT a, b FROM t;")
    assert rows(cluster) == [(1, "x")]


def test_long_decimals_keep_their_digits(cluster: InMemoryCluster) -> None:
    ones = "1" * 37
    put(cluster, "t", {"d": int(ones + "1"), "b": "x"}, {"d": int(ones + "2"), "b": "y"})
    job(
        cluster,
        "CREATE TABLE t (d DECIMAL(38, 0), b STRING) WITH ('topic' = 't');"
        "CREATE TABLE sink (n BIGINT, total STRING) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT COUNT(*), CAST(-d AS STRING) FROM t GROUP BY -d;"
        "INSERT INTO sink SELECT 9, CAST(MAX(d) AS STRING) FROM t;",
    )
    assert rows(cluster) == [(1, f"-{ones}1"), (1, f"-{ones}2"), (9, f"{ones}2")]


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_a_row_without_a_time_obeys_the_table(on_error: str, cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(6), {"a": 7, "b": "k0", "ts": "soon"}, {"a": 8, "b": "k0", "ts": None})
    letters = "" if on_error == "skip" else ", 'dead-letter-topic' = 'letters'"
    given = TIMED.replace("'topic' = 't'", f"'topic' = 't', 'on-error' = '{on_error}'{letters}")
    job(
        cluster,
        f"{given} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), b FROM t "
        "GROUP BY b, TUMBLE(ts, INTERVAL '1' MINUTE);",
    )
    assert rows(cluster) == [(3, "k0"), (3, "k1")]
    assert len(stored(cluster, "letters")) == (2 if on_error == "dead-letter" else 0)


DAYS = "(SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) WHERE CAST(b AS INT) >= 0)"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY a DESC) AS n "
         f"FROM {DAYS}) WHERE n = 1", [(3, "3")]),
        (f"SELECT l.a, r.b FROM {DAYS} AS l JOIN {DAYS} AS r ON l.a = r.a AND l.window_start = r.window_start "
         "AND l.window_end = r.window_end", [(1, "1"), (3, "3")]),
        (f"SELECT a, b FROM {DAYS}", [(1, "1"), (3, "3")]),
    ],
    ids=["top-n", "join", "rows"],
)  # fmt: skip
def test_a_row_that_is_bad_for_windows_and_another_statement_is_one_letter(
    query: str, found: list[Any], cluster: InMemoryCluster
) -> None:
    good = [{"a": n, "b": str(n), "ts": "2024-01-01 10:00:00"} for n in (1, 3)]
    put(cluster, "t", *good, {"a": 2, "b": "two", "ts": "2024-01-01 10:00:00"})
    given = TIMED.replace("'topic' = 't'", "'topic' = 't', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'")
    result = job(
        cluster,
        f"{given} {SINK} INSERT INTO sink SELECT CAST(b AS INT) * 10, b FROM t; INSERT INTO sink {query};",
    )
    assert rows(cluster) == sorted([*found, (10, "1"), (30, "3")])
    assert len(stored(cluster, "letters")) == 1
    (failed,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("rows_failed"))["counters"]
    assert failed.committed == 1


def test_a_query_of_with_sees_what_stands_before_it(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"})
    put(cluster, "u", {"a": 2, "b": "y"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} INSERT INTO sink WITH x AS (SELECT a, b FROM u), "
        "u AS (SELECT a * 10 AS a, b FROM t) SELECT a, b FROM x UNION ALL SELECT a, b FROM u;",
    )
    assert rows(cluster) == [(2, "y"), (10, "x")]


def test_tables_with_commas_are_joined_by_where(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 2, "b": "q"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT t.a, u.b FROM t, u WHERE t.a = u.a AND t.b <> 'x';",
    )
    assert rows(cluster) == [(2, "q")]


def test_columns_of_using_come_first(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"z": "z", "a": 1})
    put(cluster, "u", {"a": 1, "b": "b"})
    job(
        cluster,
        f"CREATE TABLE t (z STRING, a INT) WITH ('topic' = 't'); {table('u')} "
        "CREATE TABLE sink (a INT, z STRING, b STRING) WITH ('topic' = 'sink'); SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT * FROM t JOIN u USING (a);",
    )
    assert rows(cluster) == [(1, "z", "b")]


def test_keys_are_text_as_sql_writes_it(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "two words"})
    sink = "CREATE TABLE sink (d DATE, b STRING) WITH ('topic' = 'sink', 'keyColumns' = 'b, d');"
    job(cluster, f"{table(on_error='skip')} {sink} INSERT INTO sink SELECT DATE '2024-01-31', b FROM t;")
    assert [each.keys for each in stored(cluster, "sink")] == [("x", "2024-01-31")]


def test_a_primary_key_is_the_key_of_messages_and_orders_them(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "one two"}, {"a": 2, "b": "three"})
    sink = "CREATE TABLE sink (a INT, b STRING, PRIMARY KEY (b, a) NOT ENFORCED) WITH ('topic' = 'sink');"
    job(cluster, f"{table()} {sink} INSERT INTO sink SELECT MAX(a), b FROM t GROUP BY b;")
    found = {each.keys: each.sharding_key for each in stored(cluster, "sink")}
    assert found == {("one%20two_1",): "one%20two_1", ("three_2",): "three_2"}
