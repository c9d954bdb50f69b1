"""Tables with `'sink.delivery-guarantee' = 'exactly-once'`: the job is killed between its sends and its commit."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most
from tests.runners.sql.test_sql import FLAGS, MIDNIGHT, Topics, command, send, topics

__all__ = ["topics"]  # a fixture

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

SCRIPT = """
CREATE TABLE t (n BIGINT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('topic' = '{readings}');
CREATE TABLE copies (kind STRING, k STRING, n BIGINT) WITH (
  'topic' = '{alarms}', 'sink.delivery-guarantee' = 'exactly-once', 'producerGroup' = '{group}-copies'
);
CREATE TABLE counts (kind STRING, k STRING, n BIGINT, s TIMESTAMP(3)) WITH (
  'topic' = '{alarms}', 'sink.delivery-guarantee' = 'exactly-once', 'producerGroup' = '{group}-counts'
);
INSERT INTO copies SELECT 'copy', k, n FROM t WHERE MOD(n, 10) <> 0;
INSERT INTO counts SELECT 'count', k, COUNT(*), window_start
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;
"""
COUNT, BATCH = 4_000, 1_000


def some_rows() -> list[dict[str, Any]]:
    times = [MIDNIGHT + dt.timedelta(milliseconds=100 * n) for n in range(COUNT)]
    return [{"n": n, "k": f"k{n % 3}", "ts": str(at)} for n, at in enumerate(times)]


def wanted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    windows = Counter((row["k"], row["n"] // 100) for row in rows)
    found: Counter[tuple[Any, ...]] = Counter(("copy", row["k"], row["n"]) for row in rows if row["n"] % 10)
    for (key, window), count in windows.items():
        found["count", key, count, f"{MIDNIGHT + dt.timedelta(seconds=10 * window)}"] += 1
    return found


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_nothing_is_lost_or_there_twice_after_a_kill(topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Rows and windows of a topic, in two tables of another one. The third micro-batch is sent and not committed."""

    def found() -> Counter[tuple[Any, ...]]:
        return Counter(tuple(json.loads(each.body).values()) for each in read_topic(lab.client, topics.alarms))

    rows = some_rows()
    send(lab, topics.readings, rows)
    options = command(SCRIPT, topics, FLAGS[Mode.SPARK_STREAMING], tmp_path)
    options += ["--stop=latest", f"--max_records_per_trigger={BATCH}"]
    killed = [sys.executable, "-m", "tests.helpers.pipelines.killed_before_commit", "2", *options]
    with started(Job(killed, tmp_path)) as job:
        assert job.process.wait(at_most(240)) == -9, job.log.read_text()[-4000:]
    before = found()
    assert {kind for kind, *_ in before} == {"copy", "count"}, "a part of both was sent"
    assert len(before) < len(wanted(rows))
    with started(Job([sys.executable, "-m", "rmqio", *options], tmp_path)) as job:
        job.done()
    assert found() == wanted(rows)
