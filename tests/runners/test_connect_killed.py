"""An endless `rmqio copy` from a topic into a database, on a Spark and a Flink that are killed and start again."""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

import sqlalchemy

from rmqio.connect.sql.engine import Database
from rmqio.model import Message, MessageQueue
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.delivery import FLINK, SPARK_STREAMING, Mode
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.mariadb import mariadb_server
from tests.helpers.servers.postgresql import postgresql_server

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive, pytest.mark.timeout(900)]

KEYS, VERSIONS = 500, 6
SERVERS = {"mysql": mariadb_server, "postgresql": postgresql_server}


class Table:
    """A table with the newest version of each key."""

    def __init__(self, url: str) -> None:
        self._engine = Database(url).engine()
        self.run("CREATE TABLE latest (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, text VARCHAR(20))")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with self._engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement))
            return [tuple(row) for row in found] if found.returns_rows else []

    def versions(self) -> dict[int, int]:
        return dict(self.run("SELECT id, version FROM latest"))

    def close(self) -> None:
        self._engine.dispose()


@pytest.mark.parametrize("mode", [SPARK_STREAMING, FLINK], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", SERVERS)
def test_a_copy_that_is_killed_leaves_the_newest_row_of_each_key(
    kind: str, mode: Mode, lab: Lab, tmp_path: Path
) -> None:
    """A key's rows are in one queue, so their order is known. What is written again after the kill changes nothing."""
    source = f"changes-{uuid.uuid4().hex[:10]}"
    lab.broker.create_topic(source, queues=2)

    def send(*versions: int) -> None:
        for number in range(2):
            rows = [
                {"id": n, "version": each, "text": f"{n}/{each}"} for each in versions for n in range(number, KEYS, 2)
            ]
            queue = MessageQueue(source, lab.broker.name, number)
            send_all(lab.broker.broker, queue, [Message(json.dumps(row).encode()) for row in rows])

    with SERVERS[kind]() as server, closing(Table(server.url)) as table:
        command = [
            sys.executable, "-m", "rmqio", "copy", "--from", f"rocketmq:{source}?start=earliest", "--to",
            f"{server.url}#latest", "--follow", f"--name_server={lab.broker.name_server}", *mode.with_workers(2),
            f"--checkpoint_dir={tmp_path}/checkpoint",
        ]  # fmt: skip
        send(1, 2)
        with started(Job(command, tmp_path)) as job:
            job.wait_until(lambda: bool(table.versions()), "the first rows")
            send(3, 4)
            job.kill()
        killed_at = table.versions()
        assert 4 not in killed_at.values() or min(killed_at.values()) < 4, "it was killed after its last row"
        send(*range(5, VERSIONS + 1))
        with started(Job(command, tmp_path)) as job:
            job.wait_until(
                lambda: set(table.versions().values()) == {VERSIONS}, "the newest rows", details=table.versions
            )
            job.end(2)
        found = table.run("SELECT id, version, text FROM latest ORDER BY id")
    assert found == [(n, VERSIONS, f"{n}/{VERSIONS}") for n in range(KEYS)]
