"""Starts `windowed_orders.py` as a user does, with its orders and a ledger of the totals that must result."""

from __future__ import annotations

import collections
import json
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.programs import program
from tests.helpers.servers.jobs import Job
from tests.helpers.waiting import missing

QUEUES = 4
WINDOW_MS = 10_000
Totals = dict[tuple[str, int], list[tuple[int, int]]]
"""The count and sum of each copy, by key and start of the window."""


class Bench:
    """Topics, orders, and the results."""

    def __init__(self, broker: LocalRocketMQ, folder: Path) -> None:
        name = uuid.uuid4().hex[:12]
        self.broker, self.folder = broker, folder
        self.source, self.sink, self.group = f"orders-{name}", f"totals-{name}", f"group-{name}"
        broker.create_topic(self.source, queues=QUEUES)
        broker.create_topic(self.sink, queues=2)
        self.client = RemotingQueueClient(ClientOptions(broker.name_server))
        self.begin_ms = (int(time.time()) - 3600) // 10 * 10 * 1000
        self.wanted: dict[tuple[str, int], tuple[int, int]] = {}
        self.sent = 0

    def send(self, count: int, queues: int = QUEUES) -> None:
        """Sends orders of 50 keys, 2 ms apart, to all queues in turn."""
        messages: dict[int, list[Message]] = collections.defaultdict(list)
        for number in range(self.sent, self.sent + count):
            key, time_ms = f"k{number % 50}", self.begin_ms + 2 * number
            body = json.dumps({"key": key, "amount": number, "time_ms": time_ms}).encode()
            messages[number % queues].append(Message(body))
            at = key, time_ms // WINDOW_MS * WINDOW_MS
            counted, total = self.wanted.get(at, (0, 0))
            self.wanted[at] = counted + 1, total + number
        for queue_id, some in messages.items():
            send_all(self.broker.broker, MessageQueue(self.source, self.broker.name, queue_id), some)
        self.sent += count

    def job(
        self,
        *more: str,
        program: Sequence[str] = (program("windowed_orders"),),
        runner: str = "SparkRunner",
    ) -> Job:
        """Starts a job that continues where the previous one ended."""
        topics = [f"--source_topic={self.source}", f"--sink_topic={self.sink}", f"--consumer_group={self.group}"]
        command = [sys.executable, *program, f"--runner={runner}", "--streaming", *topics]
        command += [f"--name_server={self.broker.name_server}", f"--checkpoint_dir={self.folder / 'checkpoint'}"]
        command += ["--start=earliest", "--idle_timeout_ms=2000", "--lateness_ms=1000"]
        command += ["--offset_commit_interval_ms=0", *more]  # the tests read its progress from the group's offsets
        return Job(command, self.folder)

    def committed(self) -> int:
        """Returns how many orders have been read according to the group's offsets."""
        return sum(self.group_offsets().values())

    def until_committed(self, job: Job, count: float | None = None) -> None:
        """Waits until so many orders have been read according to the group's offsets; None: all."""
        least = self.sent if count is None else count
        job.wait_until(
            lambda: self.committed() >= least,
            f"{least:,.0f} to be committed",
            progress=self.committed,
            details=self.group_offsets,
        )

    def group_offsets(self) -> dict[int, int]:
        """Returns the group's offsets by queue."""
        queues = self.client.queues(self.source)
        return {queue.queue_id: self.client.committed_offset(self.group, queue) or 0 for queue in queues}

    def checkpoint_offsets(self) -> dict[int, int]:
        """Returns the offsets by queue of the micro-batches that Spark has committed."""
        folder = self.folder / "checkpoint"
        batch = max((int(each.name) for each in (folder / "commits").glob("[0-9]*")), default=None)
        if batch is None:
            return {}
        position = json.loads((folder / "offsets" / str(batch)).read_text().splitlines()[-1])
        (read,) = position["to"].values()
        return {int(name.rpartition("/")[2]): each["at"] for name, each in read["queues"].items()}

    def totals(self) -> Totals:
        found: Totals = collections.defaultdict(list)
        for record in read_topic(self.client, self.sink):
            total = json.loads(record.body)
            found[total["key"], total["start_ms"]].append((total["count"], total["sum"]))
        return found

    def until_there(self, job: Job) -> None:
        """Waits until each total has been sent at least once."""
        job.wait_until(
            self.are_there,
            "all totals",
            progress=self.committed,
            details=lambda: missing(self.wanted, self.totals()),
            still_s=300,
        )

    def are_there(self) -> bool:
        return self.totals().keys() >= self.wanted.keys()

    def check(self) -> int:
        """Asserts that every order is in exactly one total and copies agree. Returns the number of surplus copies."""
        found = self.totals()
        assert {at: set(copies) for at, copies in found.items()} == {at: {each} for at, each in self.wanted.items()}
        return sum(len(copies) - 1 for copies in found.values())
