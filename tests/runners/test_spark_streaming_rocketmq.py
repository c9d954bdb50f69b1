"""`windowed_orders.py` on Spark and a real RocketMQ, killed and stopped in the middle: every order in one total."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.raw_send import send_all

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUEUES = 4
COUNT = 40_000
WINDOW_MS = 10_000
Totals = dict[tuple[str, int], list[tuple[int, int]]]
"""Count and sum, of each copy, by key and start of the window."""


class Job:
    """The pipeline as a user starts it, in a process of its own."""

    def __init__(self, broker: LocalRocketMQ, source: str, sink: str, group: str, folder: Path, *more: str) -> None:
        self.log = folder / f"{uuid.uuid4().hex}.log"
        command = [
            *(sys.executable, "-m", "rmqio.pipelines.windowed_orders", "--runner=SparkRunner", "--streaming"),
            *(f"--name_server={broker.name_server}", f"--source_topic={source}", f"--sink_topic={sink}"),
            *(f"--consumer_group={group}", f"--checkpoint_dir={folder / 'checkpoint'}", "--start=earliest"),
            *("--idle_timeout_ms=2000", "--lateness_ms=1000", *more),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            text = self.log.read_text()[-4000:]
            assert self.process.poll() is None, f"it has ended with {self.process.returncode} before: {what}\n{text}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{text}"
            time.sleep(0.1)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


class Bench:
    """Topics, orders, and what became of them."""

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

    def send(self, count: int) -> None:
        """Orders of 50 keys, 2 ms apart, in turn to all queues."""
        messages: dict[int, list[Message]] = collections.defaultdict(list)
        for number in range(self.sent, self.sent + count):
            key, time_ms = f"k{number % 50}", self.begin_ms + 2 * number
            body = json.dumps({"key": key, "amount": number, "time_ms": time_ms}).encode()
            messages[number % QUEUES].append(Message(body))
            at = key, time_ms // WINDOW_MS * WINDOW_MS
            counted, total = self.wanted.get(at, (0, 0))
            self.wanted[at] = counted + 1, total + number
        for queue_id, some in messages.items():
            send_all(self.broker.broker, MessageQueue(self.source, self.broker.name, queue_id), some)
        self.sent += count

    def job(self, *more: str) -> Job:
        return Job(self.broker, self.source, self.sink, self.group, self.folder, *more)

    def committed(self) -> int:
        queues = self.client.queues(self.source)
        return sum(self.client.committed_offset(self.group, queue) or 0 for queue in queues)

    def totals(self) -> Totals:
        found: Totals = collections.defaultdict(list)
        for queue in self.client.queues(self.sink):
            reader = self.client.open_reader(queue, 0, message_filter=MessageFilter("*"))
            end = self.client.max_offset(queue)
            while reader.position < end:
                fetched = reader.poll()
                if fetched is None:
                    self.client.wait([reader], 1_000)
                    continue
                for record in fetched.records:
                    total = json.loads(record.body)
                    found[total["key"], total["start_ms"]].append((total["count"], total["sum"]))
            reader.close()
        return found

    def are_there(self) -> bool:
        return self.totals().keys() >= self.wanted.keys()

    def check(self) -> int:
        """Every order in exactly one total, no copy of a total that differs; returns how many copies too many."""
        found = self.totals()
        assert {at: set(copies) for at, copies in found.items()} == {at: {each} for at, each in self.wanted.items()}
        return sum(len(copies) - 1 for copies in found.values())


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    yield made
    made.client.close()


@contextmanager
def started(job: Job) -> Iterator[Job]:
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.kill()


def test_a_killed_driver_and_a_run_that_ends_early_lose_and_change_nothing(bench: Bench) -> None:
    bench.send(COUNT)
    with started(bench.job("--max_records_per_trigger=2000")) as job:
        job.wait_until(lambda: bench.committed() >= 0.2 * COUNT, "a fifth of the orders to be committed")
        job.kill()
    killed_at = bench.committed()
    assert 0.2 * COUNT <= killed_at <= 0.8 * COUNT, killed_at

    with started(bench.job("--available_now")) as job:
        assert job.process.wait(180) == 0, job.log.read_text()
    assert bench.committed() == COUNT
    lines = [line for line in job.log.read_text().splitlines() if line.strip()]
    assert lines[-1].startswith("windowed_orders.py: "), lines
    assert [line for line in lines if "TransformWithState" in line and "Starting" not in line] == []
    assert bench.totals().keys() < bench.wanted.keys(), "windows that are not over have no totals"

    bench.send(2_000)
    with started(bench.job()) as job:
        job.wait_until(bench.are_there, "all totals")
        job.wait_until(lambda: bench.committed() == bench.sent, "all offsets to be committed")
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()
