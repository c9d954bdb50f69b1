"""Joins in jobs on the Direct runner: what comes after them, several of them, and rows of windows."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.unit.sql.endings import run_endless
from tests.unit.sql.job_support import SINK, cluster, job, put, rows, stored, table

__all__ = ["cluster"]  # a fixture
WINDOWED = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '{}' MINUTE))"
NOON = dt.datetime(2024, 5, 5, 12)


def timed(name: str, **options: str) -> str:
    more = "".join(f", '{key.replace('_', '-')}' = '{value}'" for key, value in options.items())
    return (
        f"CREATE TABLE {name} (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        f"WITH ('topic' = '{name}'{more});"
    )


def at(a: int | None, b: str | None, seconds: float) -> dict[str, Any]:
    return {"a": a, "b": b, "ts": str(NOON + dt.timedelta(seconds=seconds))}


def test_an_interval_join_can_be_grouped_by_windows_of_either_time(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *(at(n, f"k{n % 2}", n * 10) for n in range(60)))
    put(cluster, "u", *(at(n, f"k{n % 2}", n * 10 + 65) for n in range(60)))
    view = (
        "CREATE VIEW pairs AS SELECT t.a AS a, t.ts AS first, u.ts AS second FROM t JOIN u ON t.b = u.b AND "
        "u.ts BETWEEN t.ts AND t.ts + INTERVAL '2' MINUTE;"
    )
    sink = "CREATE TABLE sink (n BIGINT, b STRING) WITH ('topic' = 'sink');"
    seconds = [(n * 10, m * 10 + 65) for n in range(60) for m in range(60) if n % 2 == m % 2]
    pairs = [pair for pair in seconds if 0 <= pair[1] - pair[0] <= 120]
    wanted = []
    for place, column in enumerate(("first", "second")):
        job(
            cluster,
            f"{timed('t')} {timed('u')} {sink} {view} INSERT INTO sink SELECT COUNT(*), CAST(window_start AS STRING) "
            f"FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR({column}), INTERVAL '1' MINUTE)) "
            "GROUP BY window_start, window_end;",
        )
        minutes = [pair[place] // 60 for pair in pairs]
        wanted += [(minutes.count(each), f"{NOON + dt.timedelta(minutes=each)}.000") for each in dict.fromkeys(minutes)]
    assert rows(cluster) == sorted(wanted)


def test_rows_without_a_partner_are_grouped_in_their_window(cluster: InMemoryCluster) -> None:
    put(cluster, "t", at(1, "x", 1), at(2, "y", 2), at(3, None, 61), at(4, "z", 118))
    put(cluster, "u", at(10, "x", 3), at(20, "y", 50), at(30, None, 61))
    job(
        cluster,
        f"{timed('t')} {timed('u')} {SINK} INSERT INTO sink SELECT CAST(SUM(a) * 100 + COUNT(other) AS INT), "
        "CAST(window_end AS STRING) FROM TABLE(TUMBLE(TABLE (SELECT t.a AS a, u.a AS other, t.ts AS ts FROM t LEFT "
        "JOIN u ON t.b = u.b AND u.ts BETWEEN t.ts AND t.ts + INTERVAL '10' SECOND), DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
    )
    assert rows(cluster) == [(301, "2024-05-05 12:01:00.000"), (700, "2024-05-05 12:02:00.000")]


def test_three_inputs_are_joined_in_intervals(cluster: InMemoryCluster) -> None:
    cluster.create_topic("w", 2)
    put(cluster, "t", *(at(n, f"k{n % 3}", n) for n in range(30)))
    put(cluster, "u", *(at(n, f"k{n % 3}", n + 100) for n in range(30)))
    put(cluster, "w", *(at(n, f"k{n % 3}", n + 200) for n in range(30)))
    job(
        cluster,
        f"{timed('t')} {timed('u')} {timed('w')} {SINK} INSERT INTO sink SELECT t.a * 10000 + u.a * 100 + w.a, t.b "
        "FROM t JOIN u ON t.b = u.b AND u.ts BETWEEN t.ts + INTERVAL '90' SECOND AND t.ts + INTERVAL '99' SECOND "
        "JOIN w ON w.b = u.b AND w.ts BETWEEN u.ts + INTERVAL '95' SECOND AND u.ts + INTERVAL '100' SECOND;",
    )
    found = [(n, m, o) for n in range(30) for m in range(30) for o in range(30) if n % 3 == m % 3 == o % 3]
    kept = [(n, m, o) for n, m, o in found if 90 <= m + 100 - n <= 99 and 95 <= o + 100 - m <= 100]
    assert rows(cluster) == sorted((n * 10000 + m * 100 + o, f"k{n % 3}") for n, m, o in kept)
    assert len(kept) > 50


def test_rows_of_windows_and_their_join_can_be_grouped(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *(at(n, f"k{n % 2}", n * 10) for n in range(12)), at(99, None, 5))
    put(cluster, "u", *(at(n, f"k{n % 2}", n * 10 + 5) for n in range(6)))
    windows = {each: f"TABLE(TUMBLE(TABLE {each}, DESCRIPTOR(ts), INTERVAL '1' MINUTE))" for each in "tu"}
    job(
        cluster,
        f"{timed('t')} {timed('u')} {SINK} CREATE VIEW both_sides AS SELECT a.a AS a, b.a AS c, a.window_time AS wt "
        f"FROM (SELECT * FROM {windows['t']}) a LEFT JOIN (SELECT * FROM {windows['u']}) b ON a.b = b.b AND "
        "a.window_start = b.window_start AND a.window_end = b.window_end;"
        f"INSERT INTO sink SELECT a, CAST(window_end AS STRING) FROM {windows['t']} WHERE a = 7;"
        "INSERT INTO sink SELECT CAST(COUNT(*) * 100 + COUNT(c) AS INT), CAST(window_end AS STRING) FROM "
        "TABLE(TUMBLE(TABLE both_sides, DESCRIPTOR(wt), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
    )
    assert rows(cluster) == [
        (7, "2024-05-05 12:02:00.000"),
        (600, "2024-05-05 12:02:00.000"),
        (6 * 3 * 100 + 100 + 6 * 3, "2024-05-05 12:01:00.000"),
    ]


def test_rows_of_windows_are_grouped_by_them_and_by_larger_ones(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *(at(n, f"k{n % 2}", n * 10) for n in range(12)))
    hop = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE))"
    text = (
        f"{timed('t')} {SINK} CREATE VIEW sums AS SELECT SUM(a) AS total, window_end AS we, window_time AS wt FROM "
        f"(SELECT a, window_start, window_end, window_time FROM {hop} WHERE a <> 0) w "
        "GROUP BY window_start, window_end, window_time;"
        "INSERT INTO sink SELECT total, CAST(we AS STRING) FROM sums;"
        "INSERT INTO sink SELECT CAST(COUNT(*) AS INT), 'larger' FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(wt), "
        "INTERVAL '1' DAY)) GROUP BY window_start, window_end;"
    )
    job(cluster, text)
    ends = {30 * n: sum(a for a in range(12) if 30 * n - 60 <= a * 10 < 30 * n) for n in range(1, 6)}
    sums = [(total, f"{NOON + dt.timedelta(seconds=end)}.000") for end, total in ends.items()]
    assert rows(cluster) == sorted([*sums, (5, "larger")])
    script = Script()
    script.run(text)
    Translation(beam.Pipeline(), Connection(client_factory=InMemoryClientFactory("none"))).add(script.sinks[0])
    assert "final at the watermark" in explain(script.sinks)


def test_outer_joins_of_inputs_that_end(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 1, "b": "q"}, {"a": 7, "b": "r"}, {"b": "s"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} INSERT INTO sink SELECT a, t.b || '-' || u.b FROM t FULL JOIN u USING (a);"
        "INSERT INTO sink SELECT a * 100, u.b FROM t RIGHT JOIN u USING (a) WHERE t.b IS NULL;",
    )
    found = sorted((tuple(json.loads(each.body).values()) for each in stored(cluster, "sink")), key=repr)
    wanted = [(1, "x-p"), (1, "x-q"), (2, None), (3, None), (7, None), (None, None), (700, "r"), (None, "s")]
    assert found == sorted(wanted, key=repr)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT t.a, u.b FROM t JOIN u ON t.a = u.a AND t.b < u.b", [(1, "p"), (1, "q")]),
        ("SELECT t.a, u.b FROM t, u WHERE t.a = u.a AND t.b < u.b", [(1, "p"), (1, "q")]),
        ("SELECT x, y FROM (VALUES (1), (2)) AS l (x) JOIN (VALUES (2, 'two'), (3, 'three')) AS r (z, y) ON x = z",
         [(2, "two")]),
        ("SELECT CAST(COUNT(*) AS INT), t.b FROM t JOIN u USING (a) GROUP BY t.b", [(2, "a")]),
    ],
)  # fmt: skip
def test_an_inner_join_of_inputs_that_end_needs_no_bound(
    query: str, wanted: list[tuple[Any, ...]], cluster: InMemoryCluster
) -> None:
    put(cluster, "t", {"a": 1, "b": "a"}, {"a": 2, "b": "x"}, {"a": None, "b": "x"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 1, "b": "q"}, {"a": None, "b": "y"})
    job(cluster, f"{table()} {table('u')} {SINK} INSERT INTO sink {query};")
    assert rows(cluster) == wanted


DAYS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))"
RANKED = "SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {}) AS n FROM {}) WHERE n = 1"


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT t.a, u.b FROM t LEFT JOIN u ON t.b = u.b AND t.ts = u.ts", id="join"),
        pytest.param(f"SELECT MAX(a), b FROM {DAYS} GROUP BY b, window_start, window_end", id="window"),
        pytest.param("SELECT LAST_VALUE(a), b FROM t GROUP BY b", id="last value"),
        pytest.param("SELECT CAST(COUNT(*) OVER (PARTITION BY b ORDER BY ts) AS INT), b FROM t", id="over"),
        pytest.param(RANKED.format("b ORDER BY ts", "t"), id="first row"),
        pytest.param(RANKED.format("window_start, window_end ORDER BY a DESC", DAYS), id="first row of a window"),
    ],
)
def test_a_row_without_a_time_obeys_the_table(query: str, cluster: InMemoryCluster) -> None:
    put(cluster, "t", at(1, "x", 1), {"a": 2, "b": "x", "ts": None})
    put(cluster, "u", at(5, "x", 1))
    letters = timed("t", on_error="dead-letter", dead_letter_topic="letters")
    job(cluster, f"{letters} {timed('u')} {SINK} INSERT INTO sink {query};")
    assert rows(cluster) == [(1, "x")]
    (letter,) = stored(cluster, "letters")
    reason = "ts: the column ts is NOT NULL" if "COUNT" in query else "the time of the row is NULL"
    assert letter.properties["RMQIO_ERROR_REASON"].startswith(reason)


def test_an_outer_join_without_a_bound_needs_inputs_that_end() -> None:
    script = Script()
    script.run(f"{table()} {table('u')} {SINK} INSERT INTO sink SELECT t.a, u.b FROM t LEFT JOIN u ON t.a = u.a;")
    translation = Translation(beam.Pipeline(), Connection(client_factory=InMemoryClientFactory("none")))
    with pytest.raises(SqlError, match=r"^LEFT JOIN of rows that do not end: .* Bound the times .* --stop latest"):
        translation.add(script.sinks[0])


def shown(query: str) -> str:
    script = Script()
    script.run(f"{timed('t')} {timed('u')} EXPLAIN {query}")
    return explain(script.explained)


def test_explain_shows_the_bound() -> None:
    assert shown(
        "SELECT t.a, u.a FROM t LEFT JOIN u ON t.b = u.b AND u.ts >= t.ts AND u.ts < t.ts + INTERVAL '5' MINUTE "
        "AND u.a > t.a"
    ).split("      ├─")[0] == (
        "Select\n"
        "│   t.a AS a, u.a AS a\n"
        "└─ Left interval join on t.b = u.b, append-only\n"
        "   │   where u.a > t.a\n"
        "   │   shuffles both sides by t.b\n"
        "   │   u.ts is from 0 s after to less than 5 min after t.ts\n"
        "   │   keeps rows for up to 7 min 30 s of event time, in pieces of 2 min 30 s\n"
        "   │   emits a row without a partner when its piece is dropped\n"
        "   ├─ Read t (topic t, json), append-only\n"
        "   │      decodes a, b, ts (3 of 3 columns)\n"
        "   └─ Read u (topic u, json), append-only\n"
        "          decodes a, b, ts (3 of 3 columns)"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT t.a FROM t JOIN u ON t.b = u.b",
            "this join keeps every row forever: say how long a row waits for its partners, with SET "
            "'table.exec.state.ttl' = '1 h' before it, or bound its times: AND a.time BETWEEN b.time - INTERVAL '5' "
            "MINUTE AND b.time, both with WATERMARK FOR. --stop latest, or 'endTime' of its tables, gives it an end",
        ),
        (
            "SELECT t.a FROM t JOIN u ON t.b = u.b AND t.ts > u.ts",
            "this join keeps every row forever: say how long a row waits for its partners, with SET "
            "'table.exec.state.ttl' = '1 h' before it, or bound its times: AND a.time BETWEEN b.time - INTERVAL '5' "
            "MINUTE AND b.time, both with WATERMARK FOR (u.ts and t.ts have one bound only: how long before is not "
            "said). --stop latest, or 'endTime' of its tables, gives it an end",
        ),
        (
            "SELECT t.a FROM t LEFT JOIN u ON t.ts BETWEEN u.ts AND u.ts + INTERVAL '1' HOUR",
            "a LEFT JOIN needs an equality between a column of each side: bounds of times are not enough",
        ),
        (
            f"SELECT x.a FROM {WINDOWED.format('t', 1)} x JOIN {WINDOWED.format('u', 1)} y ON x.b = y.b AND "
            "x.window_start = y.window_start",
            "a window join needs both window_start = window_start and window_end = window_end: there is window_start "
            "only",
        ),
        (
            f"SELECT x.a FROM {WINDOWED.format('t', 1)} x LEFT JOIN {WINDOWED.format('u', 2)} y ON x.b = y.b AND "
            "x.window_start = y.window_start AND x.window_end = y.window_end",
            "a window join needs both window_start = window_start and window_end = window_end: of equal windows, but "
            "these two differ",
        ),
        (
            "SELECT t.a FROM t LEFT JOIN u ON t.b = u.b AND t.ts > u.ts AND t.ts < u.ts",
            "no two rows fulfil the conditions on their times: the bounds exclude each other",
        ),
    ],
)
def test_joins_that_are_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        run_endless(f"{timed('t')} {timed('u')} EXPLAIN {query}")
    assert caught.value.message == message
    assert caught.value.line == 1


def test_ids_of_rows_are_those_of_another_run_and_all_differ(cluster: InMemoryCluster) -> None:
    put(cluster, "t", at(1, "x", 45), at(2, "y", 200), at(3, None, 45))
    put(cluster, "u", at(10, "x", 46), at(20, "x", 47))
    text = (
        f"{timed('t')} {timed('u')} {SINK} INSERT INTO sink SELECT a, CAST(window_end AS STRING) FROM TABLE(HOP(TABLE "
        "t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE));"
        "INSERT INTO sink SELECT t.a, 'join' FROM t LEFT JOIN u ON t.b = u.b AND t.ts BETWEEN u.ts - INTERVAL '5' "
        "SECOND AND u.ts;"
    )
    found = []
    for _ in range(2):
        job(cluster, text)
        found.append({each.message_id for each in stored(cluster, "sink")})
    assert len(found[0]) == 2 * 3 + 4
    assert found[0] == found[1]


def test_groups_of_windows_that_overlap_come_once_to_what_follows(cluster: InMemoryCluster) -> None:
    """A row of a HOP window is in that window only, though its time is in others, too."""
    put(cluster, "t", *(at(n, f"k{n % 2}", n * 5) for n in range(20)))
    groups = (
        "(SELECT b, COUNT(*) AS n, window_start AS s, window_end AS e FROM "
        "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)) "
        "GROUP BY b, window_start, window_end)"
    )
    job(
        cluster,
        f"{timed('t')} {SINK} INSERT INTO sink SELECT CAST(l.n * 100 + r.n AS INT), l.b FROM {groups} AS l "
        f"JOIN {groups} AS r ON l.s = r.s AND l.e = r.e AND l.b = r.b;"
        f"INSERT INTO sink SELECT CAST(SUM(n) AS INT), CAST(s AS STRING) FROM {groups} AS g GROUP BY s, e;",
    )
    windows = {start: [n for n in range(20) if start <= n * 5 < start + 30] for start in range(-20, 100, 10)}
    wanted: list[tuple[int, str]] = []
    for start, members in windows.items():
        counts = [sum(n % 2 == key for n in members) for key in range(2)]
        wanted += [(count * 101, f"k{key}") for key, count in enumerate(counts)]
        wanted.append((len(members), f"{NOON + dt.timedelta(seconds=start)}.000"))
    assert rows(cluster) == sorted(wanted)
