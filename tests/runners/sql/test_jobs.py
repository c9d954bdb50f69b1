"""`rmqio sql --jobs` on a real broker: a stream is upgraded from its checkpoint, and what does not fit is refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.jobs.state import StateFolder, Status
from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

COUNTS = """
CREATE TABLE orders (customer STRING, amount BIGINT) WITH ('topic' = '{orders}', 'consumerGroup' = '{group}');
CREATE TABLE spent (customer STRING NOT NULL, n BIGINT, note STRING, PRIMARY KEY (customer) NOT ENFORCED)
WITH ('topic' = '{spent}');
INSERT INTO spent SELECT COALESCE(customer, '?'), COUNT(*), '{note}' FROM orders GROUP BY {key};
"""


def test_a_stream_is_upgraded_from_its_checkpoint_and_what_does_not_fit_is_refused(lab: Lab, tmp_path: Path) -> None:
    names = [f"sql-jobs-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("orders", "spent", "group")]
    for name in names[:2]:
        lab.broker.create_topic(name, queues=2)
    orders, spent, group = names
    folder = tmp_path / "jobs"
    (folder / "g").mkdir(parents=True)
    state = StateFolder(folder / ".rmqio")

    def write(note: str, key: str = "COALESCE(customer, '?')") -> None:
        text = COUNTS.format(orders=orders, spent=spent, group=group, note=note, key=key)
        (folder / "g" / "counts.sql").write_text(text)

    def send(count: int) -> None:
        for number in range(2):
            bodies = [Message(json.dumps({"customer": f"c{n % 3}", "amount": n}).encode()) for n in range(count)]
            send_all(lab.broker.broker, MessageQueue(orders, lab.broker.name, number), bodies)

    def newest() -> dict[str, Any]:
        rows = [json.loads(each.body) for each in read_topic(lab.client, spent)]
        return {row["customer"]: (row["n"], row["note"]) for row in rows}

    def status() -> Status:
        return state.job("g/counts").read_status() or Status("g/counts", "unknown")

    def wanted(count: int, note: str) -> dict[str, Any]:
        return {f"c{each}": (count, note) for each in range(3)}

    flags = ["--runner=SparkRunner", "--streaming", f"--name_server={lab.broker.name_server}", "--start=earliest"]
    write("first")
    send(30)
    command = [sys.executable, "-m", "rmqio", "sql", f"--jobs={folder}", *flags]
    with started(Job(command, tmp_path)) as job:
        try:
            job.wait_until(lambda: newest() == wanted(20, "first"), "the first counts", details=newest)
            first = status().pid
            write("other", "COALESCE(customer, '?'), amount")
            job.wait_until(lambda: bool(status().refused), "the refusal")
            assert "it cannot continue from its checkpoint: INSERT INTO spent: group: keys was" in status().refused
            assert (status().state, status().pid) == ("running", first)
            write("second")
            job.wait_until(lambda: status().pid not in (None, first), "the upgrade")
            send(30)
            job.wait_until(lambda: newest() == wanted(40, "second"), "counts that go on", details=newest)
            assert (status().restarts, status().refused, status().error) == (0, "", "")
            assert job.end(signal.SIGTERM) == 0
        finally:
            log = state.job("g/counts").log
            print(log.read_text()[-4000:] if log.exists() else "no log")
            if (pid := status().pid) is not None and job.process.poll() is None:
                os.killpg(pid, signal.SIGKILL)  # its session is its own
    assert status().state == "down"
