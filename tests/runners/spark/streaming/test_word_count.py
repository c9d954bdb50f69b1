"""`word_count.py` on Spark and a real RocketMQ: totals continue over stops and restarts, and never decrease."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from pipelines.word_count import words
from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.programs import program
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most, missing

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_S = 240
"""For things that take seconds if nothing else runs."""
QUEUES = 3
EVERY_MS = 2_000


class Bench:
    """Topics, sentences, and the results."""

    def __init__(self, broker: LocalRocketMQ, folder: Path) -> None:
        name = uuid.uuid4().hex[:12]
        self.broker, self.folder = broker, folder
        self.source, self.sink, self.group = f"sentences-{name}", f"totals-{name}", f"group-{name}"
        broker.create_topic(self.source, queues=QUEUES)
        broker.create_topic(self.sink, queues=QUEUES)
        self.client = RemotingQueueClient(ClientOptions(broker.name_server))
        self.wanted: collections.Counter[str] = collections.Counter()
        self.sent = 0

    def send(self, *sentences: str) -> None:
        for sentence in sentences:
            self.wanted.update(words(sentence))
        self.send_bodies(*(sentence.encode() for sentence in sentences))

    def send_bodies(self, *bodies: bytes) -> None:
        """Sends bodies to all queues in turn."""
        for queue_id in range(QUEUES):
            messages = [Message(body) for body in bodies[(queue_id - self.sent) % QUEUES :: QUEUES]]
            send_all(self.broker.broker, MessageQueue(self.source, self.broker.name, queue_id), messages)
        self.sent += len(bodies)

    def command(self, *more: str) -> list[str]:
        topics = [f"--source_topic={self.source}", f"--sink_topic={self.sink}", f"--consumer_group={self.group}"]
        return [sys.executable, program("word_count"), f"--name_server={self.broker.name_server}", *topics, *more]

    def job(self) -> Job:
        options = ["--runner=SparkRunner", "--streaming", f"--every_ms={EVERY_MS}"]
        return Job(self.command(*options, f"--checkpoint_dir={self.folder / 'checkpoint'}"), self.folder)

    def committed(self) -> int:
        return sum(self.client.committed_offset(self.group, each) or 0 for each in self.client.queues(self.source))

    def totals(self) -> dict[str, list[int]]:
        """Returns the counts of each word in the order of its queue. All totals of a word are in one queue."""
        found: dict[str, list[int]] = collections.defaultdict(list)
        queues: dict[str, set[int]] = collections.defaultdict(set)
        for record in read_topic(self.client, self.sink):
            total = json.loads(record.body)
            word = total["word"]
            assert (record.keys, record.sharding_key, total.keys()) == ((word,), word, {"word", "count"})
            found[word].append(total["count"])
            queues[word].add(record.queue_id)
        assert {word: len(those) for word, those in queues.items() if len(those) > 1} == {}
        return found

    def newest(self) -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.totals().items()}

    def until_right(self, job: Job) -> None:
        """Waits until the last total of each word is the right one."""
        wanted = self.wanted.items()
        job.wait_until(
            lambda: self.newest() == self.wanted, "totals", details=lambda: missing(wanted, self.newest().items())
        )

    def check(self) -> None:
        """Asserts that no total is followed by a smaller one."""
        assert self.newest() == self.wanted
        fallen = {
            word: counts
            for word, counts in self.totals().items()
            if any(later < earlier for earlier, later in itertools.pairwise(counts))
        }
        assert fallen == {}


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    with contextlib.closing(made.client):
        yield made


def some(number: int) -> str:
    """Returns a sentence with common words, rare words, and a unique word."""
    return f"The number {number} isn't {number % 7}, the remainder is 余{number % 23}"


@pytest.mark.exhaustive
def test_totals_go_on_over_stops_and_restarts(bench: Bench) -> None:
    bench.send(*map(some, range(500)))
    with started(bench.job()) as job:
        bench.until_right(job)
        began, before = time.monotonic(), len(bench.totals()["the"])
        for number in range(500, 560):  # one after the other, so that several micro-batches contain the common words
            bench.send(some(number))
            time.sleep(0.1)
        bench.send_bodies(b"caf\xe9")
        bench.until_right(job)
        written, seconds = len(bench.totals()["the"]) - before, time.monotonic() - began
        assert 1 <= written <= seconds / (EVERY_MS / 1000) + 2, f"{written} totals of a word in {seconds:.1f} s"
        job.wait_until(
            lambda: bench.committed() == bench.sent, "all commits", progress=bench.committed, details=bench.committed
        )
        bench.check()
        assert job.end(signal.SIGINT) == 130, job.log.read_text()
    lines = job.log.read_text().splitlines()
    assert "word_count.py: interrupted" in lines
    assert sum("left out: 1 messages that are not UTF-8" in line for line in lines) == 1

    bench.send(*map(some, range(560, 700)))
    with started(bench.job()) as job:
        bench.until_right(job)
        assert job.end(signal.SIGTERM) == 130, job.log.read_text()
    bench.check()
    assert bench.committed() == bench.sent


@pytest.mark.exhaustive  # make test compares totals on all runners: test_pipelines_everywhere.py
@pytest.mark.parametrize("runner", ["DirectRunner", "SparkRunner", "SparkRunner --streaming"])
def test_a_run_that_ends_has_written_the_complete_total_of_each_word(bench: Bench, runner: str) -> None:
    bench.send(*map(some, range(300)))
    bench.send_bodies(b"\xff")
    command = bench.command("--stop=latest", *f"--runner={runner}".split())
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(PATIENCE_S), check=False)
    assert done.returncode == 0, done.stderr
    bench.check()
    written = sum(map(len, bench.totals().values()))
    assert written == len(bench.wanted) or "--streaming" in runner
    assert done.stdout == f"word_count.py: {bench.sent:,} sentences read, {written:,} totals written\n"
    assert bench.committed() == bench.sent
