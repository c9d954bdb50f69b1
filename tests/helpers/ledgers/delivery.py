"""Runs `copying` on each runner, stops it, continues it and kills a worker; and the ledger of what was copied.

"Savepoint" and "worker" have a meaning for each runner:

| runner | continues from | a worker is |
|---|---|---|
| Direct, Spark | the offsets of its consumer group: each run ends by itself | one of Spark's Python processes |
| Spark --streaming | --checkpoint_dir, after Ctrl-C | one of Spark's Python processes |
| Flink | the savepoint with which it was stopped | a process of `python -m rmqio.runners.flink workers` |

They mean the same on clusters.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue, Record
from rmqio.runners.errors import FlinkSilent
from rmqio.runners.flink.rest import FlinkRest
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Entry, Findings, Lab, check
from tests.helpers.servers.flink_cluster import Cluster as FlinkCluster
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.spark_cluster import END_WITH_THE_TESTS, below, command_of, parent_of
from tests.helpers.servers.spark_cluster import Cluster as SparkCluster
from tests.helpers.waiting import at_most, repeated

_REST: Final = re.compile(r"Flink's REST endpoint is (\S+)")


@dataclass(frozen=True)
class Mode:
    """A runner, and how it runs a pipeline."""

    name: str
    flags: tuple[str, ...]
    workers: str
    """The flag that sets the number of workers, which replaces {}."""
    endless: bool
    """Whether it runs unbounded pipelines, which must be stopped and can continue."""
    is_flink: bool = False
    address: str | None = None
    """The address of the cluster's REST interface, if the job does not log its own."""
    kill: Callable[[Job], object] | None = Job.kill_worker
    """Kills one of its workers. None: it has no worker that could be killed."""
    cancel_all: Callable[[], object] = lambda: None
    """Ends what a program that was killed leaves on a cluster."""

    def with_workers(self, count: int) -> list[str]:
        return [*self.flags, self.workers.format(count)]


_SPARK_WORKERS: Final = "--spark_master_url=local[{},4]"
DIRECT: Final = Mode("Direct", ("--runner=DirectRunner",), "--direct_num_workers={}", False)
SPARK: Final = Mode("Spark", ("--runner=SparkRunner",), _SPARK_WORKERS, False)
SPARK_STREAMING: Final = Mode("Spark --streaming", ("--runner=SparkRunner", "--streaming"), _SPARK_WORKERS, True)
_FLINK_FLAGS: Final = ("--runner=FlinkRunner", "--checkpointing_interval=500")
FLINK: Final = Mode("Flink", (*_FLINK_FLAGS, "-v"), "--parallelism={}", True, is_flink=True, kill=None)
MODES: Final = (DIRECT, SPARK, SPARK_STREAMING, FLINK)


def held_by(mode: Mode) -> int:
    """Returns how many of two queues are held at the same time: Flink may read both in one subtask, which waits."""
    return 1 if mode.is_flink else 2


class Copies:
    """A topic, the topic to which it is copied, and the results."""

    def __init__(self, broker: LocalRocketMQ, folder: Path, *counts: int) -> None:
        """Creates a source with a queue for each count, and that many messages in the queue."""
        self.lab, self.folder = Lab(broker), folder
        self.sources = self.lab.topic(*counts, body_size=100)
        self.sink, self.group = f"copies-{uuid.uuid4().hex[:12]}", f"group-{uuid.uuid4().hex[:12]}"
        broker.create_topic(self.sink, queues=4)
        self.outputs: list[str] = []
        """The output of each run."""

    @property
    def sent(self) -> int:
        return sum(map(len, self.lab.sent_to(*self.sources).values()))

    @property
    def copied(self) -> int:
        return sum(self.lab.client.max_offset(queue) for queue in self.lab.client.queues(self.sink))

    def send(self, count: int) -> None:
        """Sends `count` more messages to each queue."""
        for queue in self.sources:
            self.lab.send(queue, count, body_size=100)

    def incoming(self) -> AbstractContextManager[None]:
        """Keeps sending messages inside the context."""
        return repeated(lambda: self.send(10), 0.05)

    def command(self, *flags: str) -> list[str]:
        topics = [f"--source={self.sources[0].topic}", f"--sink={self.sink}", f"--group={self.group}"]
        program = [
            sys.executable,
            "-m",
            "tests.helpers.pipelines.copying",
            f"--name_server={self.lab.broker.name_server}",
        ]
        return [*program, *topics, *flags]

    def run(self, mode: Mode, workers: int) -> None:
        """Runs until everything that is there now is copied."""
        with started(Job(self.command(*mode.with_workers(workers), "--stop=latest"), self.folder)) as job:
            job.done()
            self.outputs.append(job.output.read_text())

    @contextmanager
    def running(self, mode: Mode, workers: int, *flags: str) -> Iterator[Job]:
        """Runs a job inside the context, unbounded if it can be. It continues where the previous job ended."""
        ends = ["--stop=latest"]
        # Without its checkpoint or savepoint, the job would start from the beginning and copy everything twice.
        goes_on = [f"--checkpoint_dir={self.folder / f'checkpoint-{self.sink}'}", "--start=earliest"]
        command = self.command(*mode.with_workers(workers), *(goes_on if mode.endless else ends), *flags)
        try:
            with started(Job(command, self.folder)) as job:
                yield job
        finally:
            mode.cancel_all()

    def entries(self) -> list[Entry]:
        """Returns what was copied, in the order of the sink. All copies of a queue are in one queue."""
        topic, broker, _ = self.sources[0]
        found = (json.loads(record.body) for record in read_topic(self.lab.client, self.sink))
        return [
            Entry(MessageQueue(topic, broker, each["queue"]), each["offset"], each["id"].encode()) for each in found
        ]

    def findings(self, due: dict[MessageQueue, int] | None = None) -> Findings:
        """Returns what is wrong. `due`: how many messages of each queue must be copied by now; None: all."""
        found = check(self.entries(), self.lab.sent_to(*self.sources))
        if due is None:
            return found
        return replace(found, lost=tuple(each for each in found.lost if each.offset < due[each.queue]))

    def due(self) -> dict[MessageQueue, int]:
        """Returns how many messages of each queue have been sent until now."""
        return {queue: len(sent) for queue, sent in self.lab.sent_to(*self.sources).items()}

    def pairs(self) -> list[tuple[Record, Record]]:
        """Returns each copy and its original."""
        originals = {
            (each.queue_id, each.queue_offset): each for each in read_topic(self.lab.client, self.sources[0].topic)
        }
        copies = list(read_topic(self.lab.client, self.sink))
        places = [json.loads(copy.body) for copy in copies]
        return [(copy, originals[at["queue"], at["offset"]]) for copy, at in zip(copies, places, strict=True)]

    def close(self) -> None:
        self.lab.close()


@dataclass(frozen=True)
class Round:
    """One of several runs."""

    workers: int
    findings: Findings
    """The faults at the end of this run among the messages that were sent before it began."""
    left: int
    """The number of messages that had been sent and not copied when it was stopped."""


def rounds(copies: Copies, mode: Mode, workers: Sequence[int]) -> list[Round]:
    """Runs jobs that continue from each other, with these numbers of workers. Stops each one while messages arrive."""
    found = []
    flags: tuple[str, ...] = ()
    for count in workers:
        due = copies.due()
        copies.send(200)
        if mode.endless:
            with copies.running(mode, count, *flags) as job:
                enough = sum(due.values()) + 100
                job.wait_until(
                    lambda enough=enough: copies.copied >= enough,  # type: ignore[misc]
                    "some of the new ones",
                    progress=lambda: copies.copied,
                    details=copies.findings,
                )
                with copies.incoming():
                    flags = stop(mode, job, copies.folder)
        else:
            copies.run(mode, count)
        found.append(Round(count, copies.findings(due), copies.sent - copies.copied))
    return found


def stop(mode: Mode, job: Job, folder: Path) -> tuple[str, ...]:
    """Stops a job as a user would. Returns the flags with which the next run continues."""
    if not mode.is_flink:
        assert job.interrupt() == 130, job.log.read_text()[-4000:]
        return ()
    logged = _REST.search(job.log.read_text())
    address = mode.address or (logged and logged[1])
    assert address
    rest = FlinkRest(address)
    (running,) = (each for each in rest.jobs() if not each.has_ended)
    before = set((folder / "savepoints").glob("*"))
    try:
        savepoint = rest.stop(running.id, (folder / "savepoints").as_uri())
    except FlinkSilent:
        if mode.address is not None:
            raise
        # An embedded Flink ends with its job, sometimes before its answer has been sent. The error names the folder.
        (made,) = set((folder / "savepoints").glob("*")) - before
        assert (made / "_metadata").exists()
        savepoint = made.as_uri()
    job.process.wait(at_most(60))
    return (f"--savepoint_path={savepoint}",)


@contextmanager
def pool() -> Iterator[tuple[list[str], Callable[[Job], object]]]:
    """Starts a pool of Python workers for Flink. Yields the flags that use it, and a function that kills one worker."""
    command = [*END_WITH_THE_TESTS, sys.executable, "-m", "rmqio.runners.flink", "workers", "--port=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(), lambda _: os.kill(max(below(process.pid)), signal.SIGKILL)
        finally:
            process.terminate()
        assert process.wait(at_most(30)) == 0


@contextmanager
def killable(mode: Mode) -> Iterator[Mode]:
    """Yields the same mode with workers that can be killed. The workers of an embedded Flink are inside the program."""
    if mode.kill is not None:
        yield mode
        return
    with pool() as (flags, kill):
        yield replace(mode, flags=(*mode.flags, *flags), kill=kill)


def flink_cluster(cluster: FlinkCluster, workers: Sequence[str], kill: Callable[[Job], object]) -> Mode:
    """Returns the mode of a Flink cluster. `workers` are the flags of a pool."""
    flags = (*_FLINK_FLAGS, f"--flink_master={cluster.address}", *workers)
    return Mode("Flink cluster", flags, "--parallelism={}", True, True, cluster.address, kill, cluster.cancel_all)


def spark_cluster(cluster: SparkCluster, *, streaming: bool) -> Mode:
    """Returns the mode of a Spark cluster. Its executors find the modules of the tests through PYTHONPATH."""
    settings = {
        "spark.driver.memory": "600m",
        "spark.executor.memory": "500m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": Path(__file__).parents[3],
    }
    confs = (f"--spark_conf={name}={value}" for name, value in settings.items())
    flags = ("--runner=SparkRunner", f"--spark_master_url={cluster.url}", *confs)

    def kill(_: Job) -> None:
        """Kills the last process that Spark's daemon has forked on one of the cluster's workers."""
        everything = set().union(*(below(each.pid) for each in cluster.workers))
        daemons = {each for each in everything if b"-m\0rmqio.runners.spark.sessions.daemon" in command_of(each)}
        os.kill(max(each for each in daemons if parent_of(each) in daemons), signal.SIGKILL)

    name, more = ("Spark cluster --streaming", ("--streaming",)) if streaming else ("Spark cluster", ())
    return Mode(name, flags + more, "--spark_conf=spark.cores.max={}", streaming, kill=kill)
