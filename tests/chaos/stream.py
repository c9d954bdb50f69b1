"""On Spark with `--streaming`, and on Flink: one stream with windows, state and timers, killed and started again."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rmqio.client.client import RemotingQueueClient
from rmqio.local.config import Config
from rmqio.model import MessageFilter, MessageQueue, Record
from tests.chaos.audit import Audit, audit_topics
from tests.chaos.faults import Fault
from tests.chaos.stream_audit import (
    Stored,
    Sunk,
    audit_copied,
    audit_counts,
    audit_panes,
    audit_sunk,
    counts_of,
    is_counted,
    panes_of,
    wanted_keys,
    wanted_windows,
)
from tests.chaos.stream_pipeline import place_of
from tests.chaos.subject import SOURCE, Records, Setting
from tests.chaos.writers import EVENT_TIME, SENT_ID
from tests.helpers.servers.jobs import Job

_COPIES, _PANES, _COUNTS = "chaos-copies", "chaos-panes", "chaos-counts"
_GROUP: Final = "chaos-stream"
_SHORT: Final[Config] = {"slaveTimeout": 300, "slaveReadEnable": True}
_WEIGHT: Final = 5  # of the program among what can be killed: there are many servers, and one of it


class Stream:
    """One program. It is killed with all that it has started, and goes on from its checkpoint.

    Args:
      name: of the runner.
      flags: with which it runs.
      repeats: whether what it sends again must be the same.
      commits: where under the checkpoint's folder there is a new file when it has done something.
      has_workers: whether its Python workers can be killed, too.
    """

    waits_after_a_fault = False  # it starts amid whatever happens
    brokers: Mapping[str, Config] = {
        "a": {"brokerRole": "SYNC_MASTER", **_SHORT},
        "a/1": _SHORT,
        "b": _SHORT,
        "b/1": _SHORT,
    }
    sinks: Mapping[str, int] = {_COPIES: 2, _PANES: 2, _COUNTS: 2}
    starts_in_s = 240.0
    drains_in_s = 240.0

    def __init__(self, name: str, flags: Sequence[str], *, repeats: bool, commits: str, has_workers: bool) -> None:
        self.title = f"a stream on {name}"
        self._flags, self._repeats, self._commits, self._has_workers = flags, repeats, commits, has_workers
        self._job: Job | None = None
        self._lock = threading.Lock()
        self._lives = 0
        self._workers_killed = 0
        self._began_at = 0.0
        self._was_reading = False
        self._sunk: dict[str, list[Sunk]] = {}
        self._due: tuple[list[Stored], dict[MessageQueue, int]] | None = None

    def set_up(self, setting: Setting) -> None:
        self._setting = setting
        self._checkpoint = setting.folder / "checkpoint"
        self._tails = {topic: Tail(setting.client, topic) for topic in self.sinks}

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        topics = [f"--copies={_COPIES}", f"--panes={_PANES}", f"--counts={_COUNTS}", f"--group={_GROUP}"]
        program = [sys.executable, "-m", "tests.chaos.stream_pipeline", *self._setting.flags, *topics]
        with self._lock:
            self._began_at = time.time()
            self._lives += 1
            self._job = Job([*program, *self._flags, f"--checkpoint_dir={self._checkpoint}"], self._setting.folder)

    def kill(self) -> None:
        with self._lock:
            job, self._job = self._job, None
        if job is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                job.kill()

    def _kill_worker(self) -> bool:
        """If there is one by now."""
        job = self._job
        if job is None or not self.is_reading():
            return False
        try:
            job.kill_worker()
        except ProcessLookupError:  # between two tasks, or it has just ended
            return False
        self._workers_killed += 1
        return True

    def look(self) -> None:
        with self._lock:  # or it may be killed on purpose between the two
            job = self._job
            has_ended = job is not None and job.process.poll() is not None
        if job is not None and has_ended:
            text = job.log.read_text()[-6000:]
            raise AssertionError(f"{self.title} has ended by itself with {job.process.returncode}:\n{text}")

    def is_reading(self) -> bool:
        while True:
            try:
                return any(_changed_at(file) > self._began_at for file in self._checkpoint.glob(self._commits))
            except FileNotFoundError:  # a folder has gone while it was looked into: Flink keeps the newest ones only
                continue

    @property
    def opening(self) -> Sequence[Fault]:
        return [self._killing]

    @property
    def _killing(self) -> Fault:
        return Fault("kill", "program of the stream", self._kill_unless_it_starts, self._start_if_killed)

    def faults(self) -> Sequence[Fault]:
        found = [self._killing] * _WEIGHT
        return [*found, Fault("kill", "worker of the stream", self._kill_worker)] if self._has_workers else found

    def _kill_unless_it_starts(self) -> bool:
        """It may be killed while it starts, but not twice in a row: it would come to nothing."""
        is_reading = self.is_reading()
        if not (is_reading or self._was_reading):
            return False
        self._was_reading = is_reading
        self.kill()
        return True

    def _start_if_killed(self) -> None:
        if self._job is None:
            self.start()

    def end(self) -> None:
        """Ctrl-C."""
        job = self._job
        assert job is not None
        status = job.end(signal.SIGINT)
        assert status == 130, f"Ctrl-C ended {self.title} with {status}: {job.log.read_text()[-4000:]}"

    # ---- what it has done -------------------------------------------------------------------------------------------

    def progress(self) -> str:
        state = "reads" if self.is_reading() else "does not run" if self._job is None else "starts"
        return f"life {self._lives}: {state}"

    def _take(self) -> None:
        """Takes the messages that have come to the sinks since."""
        for topic, tail in self._tails.items():
            self._sunk.setdefault(topic, []).extend(tail.new())

    def missing(self, stored: Records) -> str | None:
        client = self._setting.client
        ends: dict[MessageQueue, int] = {}
        for record in stored:
            ends[record.queue] = max(record.queue_offset + 1, ends.get(record.queue, 0))
        behind = {queue: end - (client.committed_offset(_GROUP, queue) or 0) for queue, end in ends.items()}
        left = sum(behind.values())
        if left:
            return f"{left:,} messages that the group has not committed: {behind}"
        self._take()
        messages = stored_of(stored)
        copied = {each.id for each in self._sunk[_COPIES]}
        if lost := [each.place for each in messages if each.place not in copied]:
            return f"{len(lost):,} copies, first {lost[:5]}"
        panes = panes_of(self._sunk[_PANES])
        if open_ := [
            window
            for window, due in wanted_windows(messages).items()
            if not any(set(each) == due for versions in panes.get(window, {}).values() for each in versions)
        ]:
            return f"{len(open_):,} windows, first {open_[:5]}"
        counts = counts_of(self._sunk[_COUNTS])
        if keys := [key for key, due in wanted_keys(messages).items() if not is_counted(counts.get(key, ()), due)]:
            return f"the counts of {keys}"
        return None

    def audits(self, stored: Records) -> list[Audit]:
        self._take()
        copies, panes, counts = (self._sunk[topic] for topic in (_COPIES, _PANES, _COUNTS))
        messages = stored_of(stored)
        return [
            audit_sunk("copies", copies),
            audit_copied(copies, messages),
            audit_topics(self._setting.client, SOURCE, _COPIES, f"property:{SENT_ID}"),
            audit_sunk("panes", panes),
            audit_panes(panes, messages, repeats=self._repeats),
            audit_sunk("counts", counts),
            audit_counts(counts, messages, repeats=self._repeats),
        ]

    def figures(self) -> Mapping[str, str]:
        return {"lives of the program": f"{self._lives}", "workers killed": f"{self._workers_killed}"}


def spark() -> Stream:
    """Its driver is killed with its JVM."""
    flags = [
        "--runner=SparkRunner",
        "--streaming",
        "--spark_master_url=local[2,4]",
        "--spark_conf=spark.driver.memory=700m",
    ]
    return Stream("Spark", flags, repeats=True, commits="commits/[0-9]*", has_workers=True)


def flink() -> Stream:
    """With the Flink inside of the job server, which is killed with the program."""
    flags = ["--runner=FlinkRunner", "--streaming", "--parallelism=2", "--checkpointing_interval=1000"]
    return Stream("Flink", flags, repeats=False, commits="**/chk-*/_metadata", has_workers=False)


class Tail:
    """Reads a topic as it grows."""

    def __init__(self, client: RemotingQueueClient, topic: str) -> None:
        self._client, self._topic = client, topic
        self._positions: dict[MessageQueue, int] = {}

    def new(self) -> list[Sunk]:
        """Returns the messages that have come since the last time."""
        found: list[Sunk] = []
        for queue in self._client.queues(self._topic):
            position, end = self._positions.get(queue, 0), self._client.max_offset(queue)
            with contextlib.closing(
                self._client.open_reader(queue, position, message_filter=MessageFilter())
            ) as reader:
                while position < end:
                    fetched = reader.poll()
                    if fetched is None:
                        assert self._client.wait([reader], 30_000), f"{queue}: no answer at {position} of {end}"
                        continue
                    assert not fetched.corrupt, fetched.corrupt
                    found += [Sunk(queue, each.message_id, each.body) for each in fetched.records]
                    position = fetched.next_offset
            self._positions[queue] = position
        return found


def stored_of(records: Sequence[Record]) -> list[Stored]:
    """Returns what tells the source's messages from each other, and where they belong."""
    return [Stored(place_of(each), each.body.decode(), int(each.get_property(EVENT_TIME) or "")) for each in records]


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # it goes when there are newer ones
        return 0.0
