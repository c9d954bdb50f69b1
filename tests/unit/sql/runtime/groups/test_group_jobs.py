"""Jobs with groups and windows, on the Direct runner and a cluster in memory."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio.sql.errors import SqlError
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.unit.sql.job_support import SINK, TIMED, cluster, job, put, rows, table, timed

__all__ = ["cluster"]


def test_groups_without_a_window_and_distinct_end_with_the_input(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n % 3, "b": f"k{n % 2}"} for n in range(12)))
    job(
        cluster,
        f"{table()} {SINK} INSERT INTO sink SELECT CAST(SUM(a) AS INT), b FROM t GROUP BY b HAVING COUNT(*) > 1;",
    )
    assert rows(cluster) == [(6, "k0"), (6, "k1")]
    job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT DISTINCT a, 'd' FROM t;")
    assert rows(cluster)[:2] == [(0, "d"), (1, "d")]
    assert len(rows(cluster)) == 5


def test_a_join_can_be_grouped(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n, "b": f"k{n % 3}"} for n in range(9)))
    put(cluster, "u", {"a": 1, "b": "k1"}, {"a": 2, "b": "k2"}, {"a": 3, "b": "k2"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT CAST(SUM(t.a * u.a) AS INT), t.b FROM t JOIN u USING (b) GROUP BY t.b;",
    )
    assert rows(cluster) == [((1 + 4 + 7) * 1, "k1"), ((2 + 5 + 8) * 5, "k2")]


def test_groups_can_be_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(18))
    put(cluster, "u", {"a": 100, "b": "k1"})
    job(
        cluster,
        f"{TIMED} {table('u')} {SINK} INSERT INTO sink SELECT CAST(w.n + u.a AS INT), CAST(w.window_start AS STRING) "
        "FROM (SELECT b, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY b, window_start, window_end) AS w JOIN u ON w.b = u.b;",
    )
    assert rows(cluster) == [(103, f"2024-01-01 00:0{n}:00.000") for n in range(3)]


def test_three_topics_are_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 2, "b": "q"})
    put(cluster, "letters", {"a": 7, "b": "p"}, {"a": 8, "b": "q"})
    job(
        cluster,
        f"{table()} {table('u')} {table('letters')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT v.a, t.b || u.b FROM t JOIN u ON t.a = u.a JOIN letters AS v ON v.b = u.b;",
    )
    assert rows(cluster) == [(7, "xp"), (8, "yq")]


def test_windows_of_windows(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(36))
    job(
        cluster,
        f"{TIMED} {SINK} CREATE VIEW minutes AS SELECT b, window_time AS wt, SUM(a) AS s FROM TABLE(TUMBLE(TABLE t, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY b, window_start, window_end, window_time;"
        "INSERT INTO sink SELECT MAX(s), CAST(window_end AS STRING) FROM TABLE(TUMBLE(TABLE minutes, DESCRIPTOR(wt), "
        "INTERVAL '3' MINUTE)) GROUP BY window_start, window_end;",
    )
    keys = [(minute, odd) for minute in range(6) for odd in (0, 1)]
    sums = {key: sum(n for n in range(36) if (n // 6, n % 2) == key) for key in keys}
    wanted = [max(total for (minute, _), total in sums.items() if minute // 3 == part) for part in (0, 1)]
    assert rows(cluster) == [(wanted[0], "2024-01-01 00:03:00.000"), (wanted[1], "2024-01-01 00:06:00.000")]


def test_windows_and_rows_can_be_united(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(6))
    job(
        cluster,
        f"{TIMED} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), 'window' FROM t GROUP BY TUMBLE(ts, "
        "INTERVAL '1' MINUTE) UNION ALL SELECT a, b FROM t WHERE a = 5;",
    )
    assert rows(cluster) == [(5, "k1"), (6, "window")]


def test_after_a_join_no_watermark_follows_the_times() -> None:
    with pytest.raises(SqlError, match="no watermark follows ts"):
        Script().run(
            f"{TIMED} {table('u')} {SINK} INSERT INTO sink SELECT 1, t.b FROM t JOIN u ON t.b = u.b GROUP BY t.b, "
            "TUMBLE(ts, INTERVAL '1' MINUTE);"
        )


def test_sums_of_more_than_64_bits_on_the_way(cluster: InMemoryCluster) -> None:
    largest = (1 << 63) - 1
    put(cluster, "t", {"n": largest}, {"n": largest}, {"n": 1 - largest}, {"n": 1 - largest})
    job(
        cluster,
        "CREATE TABLE t (n BIGINT) WITH ('topic' = 't');"
        "CREATE TABLE sink (s BIGINT, a BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT SUM(n), AVG(n) FROM t;",
    )
    assert rows(cluster) == [(2, 0)]


def test_rows_exactly_the_gap_apart_are_one_session(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(3))  # ten seconds apart
    for gap in (10, 9):
        job(
            cluster,
            f"{TIMED} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), "
            f"CAST(SESSION_END(ts, INTERVAL '{gap}' SECOND) AS STRING) FROM t "
            f"GROUP BY SESSION(ts, INTERVAL '{gap}' SECOND);",
        )
    assert rows(cluster) == [
        (1, "2024-01-01 00:00:09.000"),
        (1, "2024-01-01 00:00:19.000"),
        (1, "2024-01-01 00:00:29.000"),
        (3, "2024-01-01 00:00:30.000"),
    ]


def test_an_endless_group_is_refused() -> None:
    script = Script()
    script.run(f"{table()} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), b FROM t GROUP BY b;")
    translation = Translation(beam.Pipeline(), Connection(name_server="127.0.0.1:1"))
    with pytest.raises(SqlError, match="sink has no PRIMARY KEY"):
        translation.add(script.sinks[0])


@pytest.mark.parametrize(
    ("key", "query", "reason"),
    [
        ("b", "SELECT a, b FROM (SELECT b, CAST(SUM(a) AS INT) AS a FROM t GROUP BY b) AS g", ""),
        ("b", "SELECT MAX(a), UPPER(b) FROM t GROUP BY UPPER(b)", ""),
        ("a", "SELECT CAST(COUNT(*) AS INT), b FROM t GROUP BY b", r"PRIMARY KEY of sink \(a\) is not what the rows"),
        ("b", "SELECT a, MAX(b) FROM t GROUP BY a", r"PRIMARY KEY of sink \(b\) is not what the rows"),
        ("b", "SELECT MAX(a), b FROM t GROUP BY b HAVING COUNT(*) > 1", ""),
        ("b", "SELECT DISTINCT a, b FROM t", "DISTINCT of rows without end"),
        (
            "b",
            "SELECT MAX(n), b FROM (SELECT MAX(a) AS n, b FROM t GROUP BY b) AS g GROUP BY b",
            "without a window, which change",
        ),
        ("b", "SELECT MAX(a), b FROM t GROUP BY b UNION ALL SELECT a, b FROM t", "cannot be joined, united or grouped"),
    ],
)
def test_rows_that_change_need_their_key(key: str, query: str, reason: str) -> None:
    script = Script()
    sink = f"CREATE TABLE sink (a INT, b STRING, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('topic' = 'sink');"
    script.run(f"{table()} {sink} INSERT INTO sink {query};")
    translation = Translation(beam.Pipeline(), Connection(client_factory=InMemoryClientFactory("none")))
    if not reason:
        translation.add(script.sinks[0])
        return
    with pytest.raises(SqlError, match=reason):
        translation.add(script.sinks[0])
