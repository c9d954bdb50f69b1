"""`rmqio copy` from a topic to a database, with a dead letter, on all runners; files of a Spark that was killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

from rmqio.runners.capabilities import Mode
from tests.helpers.client.raw_send import stored
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.pipelines.killed_files import check_killed_and_started_again
from tests.helpers.waiting import at_most
from tests.runners.sql.test_sql import BOUNDED, Topics, send, topics

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]
__all__ = ["topics"]


@pytest.mark.parametrize("runner", BOUNDED)
def test_all_runners_write_each_row_once_and_the_dead_letter(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path
) -> None:
    rows = [{"id": n, "name": f"n{n}"} for n in range(500)]
    send(lab, topics.readings, [*rows, {"id": 900, "nmae": "x"}])
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    command = [
        sys.executable, "-m", "rmqio", "copy", "--from", f"rocketmq:{topics.readings}", "--to", f"sqlite:///{path}#users",
        "--name_server", topics.name_server, "--dead_letter_topic", topics.alarms, *f"--runner={runner}".split(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(400), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = connection.execute("SELECT id, name FROM users ORDER BY id").fetchall()
    connection.close()
    assert found == [(row["id"], row["name"]) for row in rows]
    letters = [b'{"id": 900, "nmae": "x"}']
    assert [each.body for each in stored(lab.client, topics.alarms, letters)] == letters


@pytest.mark.spark
@pytest.mark.shows(Mode.SPARK)
def test_a_spark_that_is_killed_and_started_again_leaves_each_row_in_one_file(tmp_path: Path) -> None:
    """On the Direct runner: tests/unit/connect/files/test_residues.py."""
    check_killed_and_started_again("SparkRunner --spark_master_url=local[2]", tmp_path)
