"""Sub-queries, OVER, ORDER BY and set operations of `rmqio sql` give the same rows on all runners."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.cli.main import main
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until_found
from tests.runners.sql.test_sql import ENDLESS, MIDNIGHT, RUNNERS, Topics, command, rows_of, send, topics

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

__all__ = ["topics"]  # a fixture

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

QUERIES = {
    "in": "SELECT n, b FROM t WHERE a IN (SELECT a FROM u)",
    "not in": "SELECT n, b FROM t WHERE a NOT IN (SELECT a FROM u WHERE u.b = t.b)",
    "exists": "SELECT n, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.n < t.n)",
    "value": "SELECT n + (SELECT COUNT(*) FROM u WHERE u.b = t.b) * 1000 + (SELECT MAX(a) FROM u) * 10000, b FROM t",
    "except all": "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM u",
    "union": "SELECT a, b FROM t UNION SELECT a, b FROM u",
    "over": "SELECT SUM(n) OVER (PARTITION BY b ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT "
    "ROW) * 100 + COUNT(*) OVER (PARTITION BY b ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW), b FROM t",
    "ranks": "SELECT RANK() OVER (PARTITION BY b ORDER BY a DESC NULLS LAST) * 100 + "
    "COALESCE(LEAD(n) OVER (PARTITION BY a ORDER BY n DESC), 0), b FROM t",
    "sets": "SELECT COUNT(*) * 10 + GROUPING(b), b FROM t GROUP BY ROLLUP (b)",
    "total": "SELECT COUNT(*), MAX(b) FROM t WHERE n < 0",
    "cross": "SELECT t.n * 100 + v.n, t.b FROM t CROSS JOIN (SELECT MAX(n) AS n FROM u) AS v",
    "order": "SELECT n, b FROM t ORDER BY a DESC NULLS LAST, b NULLS FIRST, n DESC LIMIT 40 OFFSET 2",
}
TABLES = """
CREATE TABLE t (n BIGINT, a BIGINT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = '{readings}');
CREATE TABLE u (n BIGINT, a BIGINT, b STRING) WITH ('topic' = '{devices}');
CREATE TABLE sink (kind STRING, x BIGINT, y STRING) WITH ('topic' = '{alarms}');
"""


def wrapped(kind: str, query: str) -> str:
    return f"INSERT INTO sink SELECT '{kind}', n, b FROM ({query}) AS q (n, b)" if kind != "order" else (
        "INSERT INTO sink " + query.replace("SELECT n, b", "SELECT 'order', n, b", 1)
    )  # fmt: skip


def small_tables() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows with NULLs, whose times are out of order by far: the input ends, and none is late."""
    random = Random(20)

    def row(n: int) -> dict[str, Any]:
        return {"n": n, "a": random.choice([None, 1, 2, 3, 4]), "b": random.choice([None, "x", "y", "z"])}

    times = random.sample(range(600), 60)
    return [{**row(n), "ts": str(MIDNIGHT + dt.timedelta(seconds=times[n]))} for n in range(60)], [
        {**row(n), "a": random.choice([1, 2, 5] if n % 7 else [None])} for n in range(20)
    ]


def by_duckdb(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> dict[str, list[Any]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (n BIGINT, a BIGINT, b STRING, ts TIMESTAMP)")
    connection.execute("CREATE TABLE u (n BIGINT, a BIGINT, b STRING)")
    for name, rows in (("t", left), ("u", right)):
        for row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {name} VALUES ({marks})", list(row.values()))
    return {kind: connection.execute(query).fetchall() for kind, query in QUERIES.items()}


@pytest.mark.parametrize("runner", RUNNERS)
def test_queries_of_inputs_that_end(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = small_tables()
    send(lab, topics.readings, left)
    send(lab, topics.devices, right)
    script = TABLES + ";\n".join(wrapped(*each) for each in QUERIES.items()) + ";"
    assert main([*command(script, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    wanted = by_duckdb(left, right)
    all_rows = [(kind, *row) for kind, rows in wanted.items() for row in rows]
    until_found(lambda: [tuple(row.values()) for row in rows_of(lab, topics.alarms)], all_rows)
    records = list(read_topic(lab.client, topics.alarms))
    rows = [tuple(json.loads(each.body).values()) for each in records]
    for kind, expected in wanted.items():
        assert Counter(row[1:] for row in rows if row[0] == kind) == Counter(expected), kind
    ordered = sorted(
        (each.queue.queue_id, each.queue_offset, row[1:])
        for each, row in zip(records, rows, strict=True)
        if row[0] == "order"
    )
    assert len({queue for queue, _, _ in ordered}) == 1
    assert [row for _, _, row in ordered] == wanted["order"]


STREAM = """
CREATE TABLE t (n BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('topic' = '{readings}');
CREATE TABLE u (k STRING) WITH ('topic' = '{devices}');
CREATE TABLE sink (kind STRING, n BIGINT, x BIGINT, y STRING) WITH ('topic' = '{alarms}');
SET 'table.exec.state.ttl' = '1 h';
SET 'table.exec.source.idle-timeout' = '10 min'; -- or an idle queue would follow the clock
INSERT INTO sink SELECT 'over', n, SUM(n) OVER w, CAST(LAG(n) OVER w AS STRING) FROM t;
INSERT INTO sink SELECT 'in', n, 0, k FROM t WHERE k IN (SELECT k FROM u) AND n < 1000;
CREATE VIEW counts AS SELECT window_start, window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end;
INSERT INTO sink
SELECT 'union', n, 0, CAST(window_start AS STRING) FROM (SELECT * FROM counts UNION SELECT * FROM counts);
""".replace("OVER w", "OVER (PARTITION BY k ORDER BY ts)")
LAST = 1000
"""The number of rows that only move the watermark."""


def stream_rows(first: int, count: int) -> list[dict[str, Any]]:
    """Rows of three keys, a second apart, out of order by up to four seconds; then one per queue, a minute later."""
    random = Random(first)
    times = [MIDNIGHT + dt.timedelta(seconds=n) for n in range(first, first + count)]
    rows: list[dict[str, Any]] = [{"n": first + i, "k": f"k{i % 3}", "ts": str(at)} for i, at in enumerate(times)]
    rows.sort(key=lambda row: (row["n"] - first + random.randrange(4), row["n"]))
    end = times[-1] + dt.timedelta(seconds=30)
    return [*rows, *({"n": LAST, "k": "last", "ts": str(end)} for _ in range(2))]


def stream_wanted(rows: list[dict[str, Any]], partners: set[str]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    counts: Counter[int] = Counter()
    for key in ("k0", "k1", "k2"):
        total, before = 0, None
        for row in sorted((row for row in rows if row["k"] == key), key=lambda row: row["ts"]):
            total += row["n"]
            found["over", row["n"], total, before] += 1
            before = str(row["n"])
    for row in rows:
        seconds = int((dt.datetime.fromisoformat(row["ts"]) - MIDNIGHT).total_seconds())
        counts[seconds // 20] += 1
        if row["k"] in partners:
            found["in", row["n"], 0, row["k"]] += 1
    newest = max(row["ts"] for row in rows)
    for window, count in counts.items():
        start = MIDNIGHT + dt.timedelta(seconds=20 * window)
        if start + dt.timedelta(seconds=25) <= dt.datetime.fromisoformat(newest):
            found["union", count, 0, f"{start}.000"] += 1
    return found


@pytest.mark.parametrize("runner", ENDLESS)
def test_streams_and_a_restart(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Rows of OVER come in order of time, those of IN when their partner comes, those of a UNION once per window."""

    def found() -> Counter[tuple[Any, ...]]:
        rows = Counter(
            tuple(row.values()) for row in (json.loads(r.body) for r in read_topic(lab.client, topics.alarms))
        )
        return Counter({row: count for row, count in rows.items() if row[1] != LAST})

    flags = [sys.executable, "-m", "rmqio", *command(STREAM, topics, runner, tmp_path)]
    first, second = stream_rows(0, 60), stream_rows(120, 60)
    send(lab, topics.readings, first)
    with started(Job(flags, tmp_path)) as job:
        job.wait_until(lambda: found() == stream_wanted(first, set()), "the first rows")
        send(lab, topics.devices, [{"k": "k1"}, {"k": "k1"}, {"k": None}])
        job.wait_until(lambda: found() == stream_wanted(first, {"k1"}), "rows with a partner")
        if "Spark" not in runner:
            send(lab, topics.readings, second)
            job.wait_until(lambda: found() == stream_wanted([*first, *second], {"k1"}), "all rows")
        assert job.interrupt() == 130
    if "Spark" not in runner:
        return
    send(lab, topics.readings, second)
    with started(Job(flags, tmp_path)) as job:
        wanted = stream_wanted([*first, *second], {"k1"})
        job.wait_until(lambda: set(found()) == set(wanted), "all rows, with what was kept")
        assert job.interrupt() == 130
