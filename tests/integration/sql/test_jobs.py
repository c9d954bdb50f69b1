"""`rmqio sql --jobs` on a runner without checkpoints: an upgrade goes on from its group, or is refused."""

from __future__ import annotations

import signal
import sys
import uuid
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.jobs.state import StateFolder, Status
from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

COPY = """
CREATE TABLE r (v STRING) WITH ('topic' = '{source}', {group} 'format' = 'raw', 'scan.startup.mode' = '{start}');
CREATE TABLE s (v STRING) WITH ('topic' = '{sink}', 'format' = 'raw');
INSERT INTO s SELECT {value} FROM r;
"""


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_job_writes_nothing_twice_when_its_text_changes(start: str, lab: Lab, tmp_path: Path) -> None:
    source, sink, group = (f"sql-jobs-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("source", "sink", "group"))
    for name in (source, sink):
        lab.broker.create_topic(name, queues=2)
    folder = tmp_path / "jobs"
    folder.mkdir()
    state = StateFolder(folder / ".rmqio")

    def write(value: str, comment: str = "", group_option: str = f"'consumerGroup' = '{group}',") -> None:
        text = COPY.format(source=source, sink=sink, group=group_option, value=value, start=start)
        (folder / "copy.sql").write_text(text + comment)

    def send(queue: int, *bodies: str) -> None:
        send_all(lab.broker.broker, MessageQueue(source, lab.broker.name, queue), [Message(b.encode()) for b in bodies])

    def written() -> list[str]:
        return sorted(each.body.decode() for each in read_topic(lab.client, sink))

    def status() -> Status:
        return state.job("copy").read_status() or Status("copy", "unknown")

    def committed() -> list[int | None]:
        return lab.committed(group, MessageQueue(source, lab.broker.name, 0))

    if start == "earliest":
        send(0, "a", "b")
    write("v")
    command = [sys.executable, "-m", "rmqio", "sql", f"--jobs={folder}", f"--name_server={lab.broker.name_server}"]
    with started(Job(command, tmp_path)) as job:
        if start == "latest":  # where it begins is known when it has read something
            sent = 0
            job.wait_until(lambda: status().state == "running", "its start")

            def is_read() -> bool:
                nonlocal sent
                send(0, f"w{sent}")
                sent += 1
                return bool(written())

            job.wait_until(is_read, "a row of the newest messages", progress=written)
        job.wait_until(lambda: len(written()) > 1 or start == "latest", "the first rows", details=written)
        ended = 2 if start == "earliest" else sent
        job.wait_until(lambda: committed() == [ended], "the commit")
        before, first = written(), status().pid
        write("v", "-- a comment\n")
        job.wait_until(lambda: state.job("copy").text.read_text().endswith("-- a comment\n"), "the same plan")
        assert (status().pid, status().state) == (first, "running")
        write("v", group_option="")
        job.wait_until(lambda: bool(status().refused), "the refusal")
        assert "the table r has no 'consumerGroup', whose offsets say how far it was read" in status().refused
        assert (status().pid, status().state) == (first, "running")
        write("UPPER(v)")
        job.wait_until(lambda: status().state == "stopping" or status().pid != first, "the end of the old one")
        send(1, "x", "y")  # into a queue that the group has no offset for
        send(0, "z")
        job.wait_until(lambda: {"Z", "X", "Y"} <= set(map(str.upper, written())), "the rows of now", details=written)
        assert sorted(map(str.upper, written())) == sorted([*map(str.upper, before), "X", "Y", "Z"])
        assert job.end(signal.SIGTERM) == 0
