"""Dimension tables and tables of files give the same rows on all runners; a topic changes while it is a dimension."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")

from rmqio.cli.main import main
from rmqio.client.connection import Connection
from rmqio.model import Message, MessageQueue
from rmqio.wire import requests
from rmqio.wire.properties import encode_properties
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until_found
from tests.runners.sql.test_sql import ENDLESS, RUNNERS, Topics, command, rows_of, send, topics

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["topics"]

BOUNDED = """
CREATE TABLE orders (id INT, customer INT, proctime AS PROCTIME()) WITH ('topic' = '{{readings}}');
CREATE TABLE names (id INT, name STRING)
WITH ('connector' = 'filesystem', 'path' = '{folder}/names.csv', 'format' = 'csv');
CREATE TABLE levels (id INT, level STRING)
WITH ('connector' = 'jdbc', 'url' = 'sqlite:///{folder}/db', 'table-name' = 'levels');
CREATE TABLE towns (id INT PRIMARY KEY, town STRING) WITH ('topic' = '{{devices}}');
CREATE TABLE sink (id INT, name STRING, level STRING, town STRING) WITH ('topic' = '{{alarms}}');
CREATE TABLE out (name STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'csv');
INSERT INTO sink
SELECT o.id, n.name, l.level, t.town FROM orders AS o
JOIN names FOR SYSTEM_TIME AS OF o.proctime AS n ON o.customer = n.id
LEFT JOIN levels FOR SYSTEM_TIME AS OF PROCTIME() AS l ON l.id = n.id AND l.level <> 'tin'
LEFT JOIN towns FOR SYSTEM_TIME AS OF PROCTIME() AS t ON t.id = n.id;
INSERT INTO out
SELECT n.name, COUNT(*) FROM orders AS o JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON o.customer = n.id
GROUP BY n.name;
INSERT INTO sink SELECT 1000 + id, name, 'file', CAST(NULL AS STRING) FROM names;
"""

STREAM = """
CREATE TABLE orders (id INT, customer INT) WITH ('topic' = '{readings}', 'consumerGroup' = '{group}');
CREATE TABLE customers (id INT PRIMARY KEY, name STRING) WITH ('topic' = '{devices}');
CREATE TABLE sink (id INT, name STRING) WITH ('topic' = '{alarms}');
INSERT INTO sink
SELECT o.id, c.name FROM orders AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id;
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_streams_meet_files_databases_and_topics(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.csv").write_text("1,Ann\n2,Bob\n2,Bea\n3,Cy\n")
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("CREATE TABLE levels (id INT, level TEXT)")
        connection.executemany("INSERT INTO levels VALUES (?, ?)", [(1, "gold"), (2, "tin"), (3, "gold"), (3, "zinc")])
    connection.close()
    send(lab, topics.devices, [{"id": 1, "town": "Ulm"}, {"id": 2, "town": "Bonn"}])
    send(lab, topics.readings, [{"id": n, "customer": n % 5} for n in range(100)])
    flags = command(BOUNDED.format(folder=tmp_path), topics, runner, tmp_path)
    assert main([*flags, "--stop=latest"]) == 0, capsys.readouterr().err
    of_customer: dict[int, list[tuple[str, str | None, str | None]]] = {
        1: [("Ann", "gold", "Ulm")],
        2: [("Bob", None, "Bonn"), ("Bea", None, "Bonn")],
        3: [("Cy", "gold", None), ("Cy", "zinc", None)],
    }
    wanted = [(n, *each) for n in range(100) for each in of_customer.get(n % 5, [])]
    wanted += [(1000 + id, name, "file", None) for id, name in ((1, "Ann"), (2, "Bob"), (2, "Bea"), (3, "Cy"))]
    until_found(lambda: [tuple(row.values()) for row in rows_of(lab, topics.alarms)], wanted)
    assert sorted(tuple(row.values()) for row in rows_of(lab, topics.alarms)) == sorted(wanted)
    written = [line for path in (tmp_path / "out").glob("part-*.csv") for line in path.read_text().splitlines()]
    assert sorted(written) == ["Ann,20", "Bea,20", "Bob,20", "Cy,20"]


def delete(lab: Lab, queue: MessageQueue, key: str) -> None:
    """Sends a message without a body, which brokers take as the member of a batch."""
    properties = encode_properties(Message(b"-", keys=(key,)), message_id=f"{time.time_ns():032X}")
    head = struct.pack(">iiiii", 22 + len(properties), 0, 0, 0, 0) + struct.pack(">h", len(properties))
    connection = Connection(lab.broker.broker)
    try:
        sent = requests.send("raw", queue, head + properties, born_ms=int(time.time() * 1000), batch=True)
        requests.parse_send(connection.request(sent, 10_000), "send")
    finally:
        connection.close()


RESTARTED = pytest.param("SparkRunner --streaming", True, id="restarted", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("runner", "is_restarted"),
    [*(pytest.param(*each.values, False, id=each.id, marks=each.marks) for each in ENDLESS), RESTARTED],
)
def test_a_topic_changes_under_a_job(runner: str, is_restarted: bool, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """Rows meet the newest row of their key: after an update, after a tombstone, and after a restart."""
    queue = MessageQueue(topics.devices, lab.broker.name, 0)
    numbers = iter(range(10_000))

    def set_name(id: int, name: str) -> None:
        send_all(lab.broker.broker, queue, [Message(json.dumps({"id": id, "name": name}).encode())])

    def met(job: Job, customer: int, name: str | None) -> None:
        """Sends orders until one of them meets this name, and no later one another."""

        def found() -> list[dict[str, Any]]:
            return [row for row in rows_of(lab, topics.alarms) if row["id"] >= first]

        def is_met() -> bool:
            number = next(numbers)
            send(lab, topics.readings, [{"id": number, "customer": customer}])
            return any(row["name"] == name for row in found())

        first = next(numbers)
        job.wait_until(is_met, f"customer {customer} is {name}", details=found)

    set_name(1, "Ann")
    set_name(2, "Bob")
    flags = command(STREAM, topics, runner, tmp_path)
    with started(Job([sys.executable, "-m", "rmqio", *flags], tmp_path)) as job:
        met(job, 1, "Ann")
        set_name(1, "Anne")
        met(job, 1, "Anne")
        delete(lab, queue, "2")
        met(job, 2, None)
        assert job.interrupt() == 130
    if is_restarted:
        set_name(1, "Anna")
        with started(Job([sys.executable, "-m", "rmqio", *flags], tmp_path)) as job:
            met(job, 1, "Anna")
            assert job.interrupt() == 130
    names: dict[int, list[Any]] = {}
    for row in rows_of(lab, topics.alarms):
        names.setdefault(row["id"], []).append(row["name"])
    assert {name for found in names.values() for name in found} <= {"Ann", "Anne", "Anna", "Bob", None}
