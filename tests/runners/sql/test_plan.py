"""The planner of SQL, on each runner: shared decoding, filters of the broker, ids, and a changed query."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.cli.main import main
from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until_found
from tests.runners.sql.test_sql import RUNNERS, Topics, command, rows_of, topics

__all__ = ["topics"]
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

SHARED = """
CREATE TABLE readings (
  id BIGINT, data STRING, ts TIMESTAMP(3), tags STRING METADATA, at TIMESTAMP_LTZ(3) METADATA FROM 'store_timestamp'
  VIRTUAL, p MAP<STRING, STRING> METADATA FROM 'properties', WATERMARK FOR ts AS ts
) WITH ('topic' = '{readings}', 'consumerGroup' = '{group}', 'filter.push-down' = 'sql92', 'on-error' = 'dead-letter',
  'dead-letter-topic' = '{devices}');
CREATE TABLE found (kind STRING, a BIGINT, b STRING) WITH ('topic' = '{alarms}');
SET 'table.local-time-zone' = 'Asia/Shanghai';
BEGIN STATEMENT SET;
INSERT INTO found SELECT 'plain', CAST(data AS BIGINT), UPPER(data) FROM readings
WHERE tags IN ('red', 'blue') AND at > TIMESTAMP '2020-01-01 00:00:00';
INSERT INTO found SELECT 'property', id, CAST(at > TIMESTAMP '2020-01-01 08:00:00' AS STRING) FROM readings
WHERE p['k'] = 'v' AND UPPER(data) <> 'X' AND tags = 'red';
INSERT INTO found SELECT 'window', COUNT(*), CAST(TUMBLE_START(ts, INTERVAL '1' MINUTE) AS STRING) FROM readings
WHERE tags = 'blue' GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);
INSERT INTO found SELECT 'pair', a.id + b.id, a.data FROM
  (SELECT id, data FROM readings WHERE tags = 'red') AS a JOIN (SELECT id, data FROM readings WHERE tags = 'blue') AS b
  ON a.data = b.data;
END;
"""


def data_of(number: int) -> str:
    return "x" if number % 10 == 9 else str(number % 4)


def messages(count: int) -> list[Message]:
    """Messages of three tags, some with a property, some with data that is not a number."""
    return [
        Message(
            json.dumps({"id": n, "data": data_of(n), "ts": f"2024-01-01 00:0{n // 20}:00"}).encode(),
            tags=("red", "blue", "green")[n % 3],
            properties={"k": "v"} if n % 2 else {},
        )
        for n in range(count)
    ]  # fmt: skip


def wanted(count: int) -> list[dict[str, Any]]:
    rows = [(n, data_of(n), n % 3) for n in range(count)]
    found: list[tuple[str, int, str]] = [("plain", int(data), data) for n, data, tag in rows if tag < 2 and data != "x"]
    found += [("property", n, "TRUE") for n, data, tag in rows if n % 2 and data != "x" and tag == 0]
    minutes = [n // 20 for n, _, tag in rows if tag == 1]
    found += [("window", minutes.count(m), f"2024-01-01 00:0{m}:00.000") for m in sorted(set(minutes))]
    found += [
        ("pair", one[0] + other[0], one[1])
        for one in rows for other in rows if (one[2], other[2]) == (0, 1) and one[1] == other[1]
    ]  # fmt: skip
    dicts = [dict(zip(("kind", "a", "b"), each, strict=True)) for each in found]
    return sorted(dicts, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.mark.parametrize("runner", RUNNERS)
def test_statements_share_a_read_that_the_broker_filters(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, groups and pairs of one decoding; a bad row is one letter; no two rows have the same id."""
    sent = messages(60)
    for number in range(2):
        send_all(lab.broker.broker, MessageQueue(topics.readings, lab.broker.name, number), sent[number::2])
    script = f"SET 'table.exec.state.ttl' = '1 h'; {SHARED}"
    assert main([*command(script, topics, runner, tmp_path), "--stop=latest"]) == 0, capsys.readouterr().err
    rows = wanted(60)
    until_found(lambda: rows_of(lab, topics.alarms), rows)
    assert rows_of(lab, topics.alarms) == rows
    ids = [record.message_id for record in read_topic(lab.client, topics.alarms)]
    assert len(set(ids)) == len(ids)
    letters = list(read_topic(lab.client, topics.devices))
    assert len(letters) == sum(n % 10 == 9 and n % 3 < 2 for n in range(60)), "the broker has not sent the green ones"


GROUPS = """
CREATE TABLE t (a BIGINT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = '{readings}');
CREATE TABLE x (n BIGINT, b STRING) WITH ('topic' = '{alarms}');
"""
COUNTS = "INSERT INTO x SELECT COUNT(*), b FROM t GROUP BY b, TUMBLE(ts, INTERVAL '1' MINUTE);"
SUMS = "INSERT INTO x SELECT SUM(a), 'sum' FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);"
"""Two statements that write one table: after a restart, each must find its own state."""


@pytest.mark.exhaustive  # test_jobs refuses one, too
def test_a_changed_query_is_refused_and_a_comment_is_none(topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Statements in another order are no change either: state is found by what a statement is."""

    def send(*numbers: int) -> None:
        rows = [{"a": n, "b": f"k{n % 2}", "ts": f"2024-01-01 00:{n // 10:02}:00"} for n in numbers]
        bodies = [Message(json.dumps(each).encode()) for each in rows]
        for queue in range(2):
            send_all(lab.broker.broker, MessageQueue(topics.readings, lab.broker.name, queue), bodies)

    def job(script: str) -> Job:
        flags = command(script, topics, "SparkRunner --streaming", tmp_path)
        return Job([sys.executable, "-m", "rmqio", *flags], tmp_path)

    def windows() -> int:
        return len(rows_of(lab, topics.alarms))

    send(*range(15))
    with started(job(GROUPS + COUNTS + SUMS)) as first:
        first.wait_until(lambda: windows() == 3, "the first minute")
        assert first.interrupt() == 130
    changed = GROUPS + COUNTS.replace("'1' MINUTE", "'2' MINUTE") + SUMS
    assert main(command(changed, topics, "SparkRunner --streaming", tmp_path)) == 2
    same = COUNTS.replace("b FROM t", "UPPER(b) AS c FROM t")
    with started(job(f"-- the same\n{GROUPS}{SUMS}{same}")) as second:
        send(*range(15, 25))
        second.wait_until(lambda: windows() == 6, "the second minute, from the state of both runs")
        assert second.interrupt() == 130
    counts = sorted((row["n"], row["b"]) for row in rows_of(lab, topics.alarms))
    assert counts == [(10, "K0"), (10, "K1"), (10, "k0"), (10, "k1"), (90, "sum"), (290, "sum")]
