"""`rmqio sql` joins streams by time in the same way on all runners: in intervals, in windows, and what comes after."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.cli.main import main
from rmqio.model import Message, MessageQueue
from rmqio.runners.capabilities import Mode
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import missing, until_found
from tests.runners.sql.test_sql import ENDLESS, MIDNIGHT, RUNNERS, Topics, command, rows_of, send, topics

__all__ = ["topics"]  # a fixture
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

TABLES = """
CREATE TABLE orders (id INT, customer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('topic' = '{devices}'{options});
CREATE TABLE payments (id INT, customer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('topic' = '{readings}'{options});
CREATE TABLE paid (kind STRING, one INT, other INT) WITH ('topic' = '{alarms}');
CREATE VIEW within AS
SELECT o.id AS one, p.id AS other, o.ts AS ts FROM orders AS o LEFT JOIN payments AS p
ON o.customer = p.customer AND p.ts BETWEEN o.ts - INTERVAL '2' SECOND AND o.ts + INTERVAL '8' SECOND;
"""
KEPT = """
SET 'execution.checkpointing.interval' = '500 ms';
CREATE TABLE events (id INT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('topic' = '{readings}', 'consumerGroup' = '{group}');
CREATE TABLE names (k STRING, name STRING) WITH ('topic' = '{devices}', 'consumerGroup' = '{group}');
CREATE TABLE sizes (size INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/sizes.json');
CREATE TABLE found (kind STRING, k STRING, n BIGINT) WITH ('topic' = '{alarms}');
INSERT INTO found SELECT 'window', k, COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end;
SET 'table.exec.state.ttl' = '8 s';
INSERT INTO found SELECT 'cross', e.k, e.id * s.size FROM events AS e CROSS JOIN sizes AS s;
INSERT INTO found SELECT 'short', e.k, e.id FROM events AS e JOIN names AS n ON e.k = n.k;
SET 'table.exec.state.ttl' = '1 h';
INSERT INTO found SELECT 'long', e.k, e.id FROM events AS e JOIN names AS n ON e.k = n.k;
"""
"""A job with a window that ends only when its queues are idle, and joins with two times to live."""
NEVER_IDLE = "SET 'table.exec.source.idle-timeout' = '1 h';"
JOINS = (
    TABLES.replace("{options}", "")
    + """
INSERT INTO paid SELECT 'left', one, other FROM within;
INSERT INTO paid SELECT 'full', o.id, p.id FROM orders AS o FULL JOIN payments AS p
ON o.customer = p.customer AND o.ts = p.ts + INTERVAL '0.5' SECOND AND o.id > p.id;
INSERT INTO paid SELECT 'window', o.id, p.id
FROM (SELECT * FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))) AS o
RIGHT JOIN (SELECT * FROM TABLE(HOP(TABLE payments, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))) AS p
ON o.customer = p.customer AND o.window_start = p.window_start AND o.window_end = p.window_end;
INSERT INTO paid SELECT 'group', CAST(COUNT(*) AS INT), CAST(COUNT(other) AS INT)
FROM TABLE(TUMBLE(TABLE within, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end;
INSERT INTO paid SELECT 'ends', o.id, p.id FROM orders AS o RIGHT JOIN payments AS p
ON o.customer = p.customer AND o.id = p.id;
INSERT INTO paid SELECT 'inner', o.id, p.id FROM orders AS o JOIN payments AS p
ON o.customer = p.customer AND o.id > p.id + 80;
"""
)
STREAM = (
    TABLES.replace("{options}", ", 'consumerGroup' = '{group}'")
    + "INSERT INTO paid SELECT 'left', one, other FROM within;"
)


def events(count: int, seed: int, start: int = 0) -> list[dict[str, Any]]:
    """Events of five customers, or of none, about one a second, out of order by up to four seconds."""
    random = Random(seed)
    return [
        {
            "id": n,
            "customer": random.choice([None, *(f"c{n}" for n in range(5))]),
            "ts": str(MIDNIGHT + dt.timedelta(milliseconds=(n * 2 + random.randrange(8)) * 500)),
        }
        for n in range(start, start + count)
    ]


def seconds(row: dict[str, Any]) -> float:
    return (dt.datetime.fromisoformat(row["ts"]) - MIDNIGHT).total_seconds()


def joined(kind: str, left: list[Any], right: list[Any], matches: Any, outer: str = "") -> list[tuple[Any, ...]]:
    found = [
        (o["id"], p["id"]) for o in left for p in right if o["customer"] == p["customer"] is not None and matches(o, p)
    ]
    alone = [(o["id"], None) for o in left if "l" in outer and o["id"] not in {one for one, _ in found}]
    alone += [(None, p["id"]) for p in right if "r" in outer and p["id"] not in {other for _, other in found}]
    return [(kind, *each) for each in found + alone]


def within(orders: list[Any], payments: list[Any]) -> list[tuple[Any, ...]]:
    return joined("left", orders, payments, lambda o, p: -2 <= seconds(p) - seconds(o) <= 8, "l")


def wanted_of(orders: list[Any], payments: list[Any]) -> list[tuple[Any, ...]]:
    found = within(orders, payments)
    found += joined("full", orders, payments, lambda o, p: seconds(o) == seconds(p) + 0.5 and o["id"] > p["id"], "lr")
    found += joined("ends", orders, payments, lambda o, p: o["id"] == p["id"], "r")
    found += joined("inner", orders, payments, lambda o, p: o["id"] > p["id"] + 80)
    starts = range(-10, 1000, 5)
    for start in starts:
        left, right = ([each for each in side if start <= seconds(each) < start + 10] for side in (orders, payments))
        found += joined("window", left, right, lambda o, p: True, "r")
    times = {each["id"]: seconds(each) // 30 for each in orders}
    for window in sorted(set(times.values())):
        pairs = [other for _, one, other in within(orders, payments) if times[one] == window]
        found.append(("group", len(pairs), sum(each is not None for each in pairs)))
    return sorted(found, key=repr)


def paid(lab: Lab, topics: Topics) -> list[tuple[Any, ...]]:
    return sorted(((row["kind"], row["one"], row["other"]) for row in rows_of(lab, topics.alarms)), key=repr)


@pytest.mark.parametrize("runner", RUNNERS)
def test_joins_by_time_are_exact(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows out of order, keys that are NULL, two queues each: six statements share the reads of both topics."""
    orders, payments = events(120, 1), events(100, 2)
    send(lab, topics.devices, orders)
    send(lab, topics.readings, payments)
    assert main([*command(JOINS, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    wanted = wanted_of(orders, payments)
    assert {kind for kind, _, _ in wanted} == {"left", "full", "ends", "inner", "window", "group"}
    until_found(lambda: paid(lab, topics), wanted)
    assert paid(lab, topics) == wanted


@pytest.mark.exhaustive
@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_a_stream_joins_by_time_across_a_restart(topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Pairs come at once, rows without a partner when the watermark has passed; the state survives a restart."""
    flags = [sys.executable, "-m", "rmqio", *command(STREAM, topics, "SparkRunner --streaming", tmp_path)]
    orders, payments = events(120, 3), events(120, 4)
    send(lab, topics.devices, orders[:60])
    send(lab, topics.readings, payments[:40])

    def until_paid(job: Job, wanted: set[tuple[Any, ...]]) -> None:
        def left() -> set[tuple[Any, ...]]:
            return wanted - {*paid(lab, topics)}

        job.wait_until(lambda: not left(), "pairs", details=left)

    def certain(until: float, some: list[Any], others: list[Any]) -> set[tuple[Any, ...]]:
        times = {each["id"]: seconds(each) for each in orders}
        return {each for each in within(some, others) if each[2] is not None or times[each[1]] < until}

    with started(Job(flags, tmp_path)) as job:
        first = certain(10, orders[:60], payments[:40])
        until_paid(job, first)
        assert job.interrupt() == 130
    send(lab, topics.devices, orders[60:])
    send(lab, topics.readings, payments[40:])
    with started(Job(flags, tmp_path)) as job:
        both = certain(90, orders, payments)
        until_paid(job, both)
        assert set(paid(lab, topics)) <= set(within(orders, payments)), "no row is there that has a partner"
        assert job.interrupt() == 130


@pytest.mark.parametrize("runner", ENDLESS)
def test_a_killed_job_keeps_windows_and_joins_and_idle_queues_end_them(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path
) -> None:
    """One of two queues never has a message. What came before the kill is in windows and in pairs after it, once.

    A row that is kept for eight seconds has no partner after the restart, one that is kept for an hour has, and one of
    a file, in a cross join, too.
    """
    (tmp_path / "sizes.json").write_text('{"size": 10}\n{"size": 100}\n')
    script = KEPT.replace("{folder}", str(tmp_path))

    def job(script: str) -> Job:
        flags = command(script, topics, runner, tmp_path)
        if "Flink" in runner:
            flags.append(f"--checkpoint_dir={tmp_path / 'checkpoint'}")
        return Job([sys.executable, "-m", "rmqio", *flags], tmp_path)

    def send_events(*events: tuple[int, str]) -> None:
        rows = [{"id": n, "k": key, "ts": str(MIDNIGHT + dt.timedelta(seconds=n))} for n, key in events]
        bodies = [Message(json.dumps(each).encode()) for each in rows]
        send_all(lab.broker.broker, MessageQueue(topics.readings, lab.broker.name, 0), bodies)

    def found() -> Counter[tuple[str, str, int]]:
        return Counter((row["kind"], row["k"], row["n"]) for row in rows_of(lab, topics.alarms))

    def committed(topic: str) -> int:
        return lab.client.committed_offset(topics.group, MessageQueue(topic, lab.broker.name, 0)) or 0

    def is_kept() -> bool:
        """Returns whether a checkpoint has everything: what is read again would be kept anew."""
        return (committed(topics.readings), committed(topics.devices)) == (3, 1)

    send(lab, topics.devices, [{"k": "both", "name": "before"}])
    send_events((1, "both"), (2, "later"), (3, "both"))
    before = {("short", "both", 1), ("short", "both", 3), ("long", "both", 1), ("long", "both", 3)}
    before |= {("cross", key, n * size) for n, key in ((1, "both"), (2, "later"), (3, "both")) for size in (10, 100)}
    with started(job(NEVER_IDLE + script)) as running:
        running.wait_until(lambda: found().keys() >= before and is_kept(), "pairs, and a checkpoint", details=found)
        running.kill()
    assert found().keys() == before, "no window has ended yet"
    killed = time.monotonic()
    send_events((4, "both"), (5, "new"), (6, "later"))
    send(lab, topics.devices, [{"k": "new", "name": "after"}, {"k": "later", "name": "after"}])
    time.sleep(max(0.0, killed + 8.5 - time.monotonic()))
    with started(job(script)) as running:
        windows = {("window", "both", 3), ("window", "later", 2), ("window", "new", 1)}
        after = {("long", "both", 4), ("long", "later", 2), ("short", "new", 5), ("long", "new", 5)}
        after |= {("short", "later", 6), ("long", "later", 6)}
        after |= {("cross", key, n * size) for n, key in ((4, "both"), (5, "new"), (6, "later")) for size in (10, 100)}
        wanted = windows | before | after
        running.wait_until(lambda: found().keys() >= wanted, "all of them", details=lambda: missing(wanted, found()))
        assert running.interrupt() == 130
    assert found().keys() == wanted
    assert {each: count for each, count in found().items() if each[0] == "window" and count > 1} == {}
