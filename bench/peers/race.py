"""One run of a job: from the start of its process until the sink is complete, and with a SIGKILL half way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench.common.processes import resident_mb
from bench.common.tally import BenchError
from rmqio.client.factory import RemotingClientFactory
from rmqio.interfaces import QueueClient
from rmqio.model import Record
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic

_POLL_S: Final = 0.05
_STUCK_S: Final = 40.0
"""A job from which nothing has come for so long is done, too: RocketMQ Streams loses messages."""
_QUIET_S: Final = 12.0
"""A job that was killed and started again is done when so long nothing has come: what is lost never comes."""


class Outcome(NamedTuple):
    """The times and the memory of a run."""

    first_s: float
    """Until the first message was in the sink."""
    whole_s: float
    memory_mb: int
    """The most that its processes had, in samples."""


class Sink:
    """The topic that a job writes."""

    def __init__(self, name_server: str, topic: str) -> None:
        self.topic = topic
        self._client: QueueClient = RemotingClientFactory(ClientOptions(name_server)).queue_client()
        self._queues = self._client.queues(topic)

    def count(self) -> int:
        """How many messages are there."""
        return sum(self._client.max_offset(queue) for queue in self._queues)

    def records(self) -> list[Record]:
        """All messages."""
        return [*read_topic(self._client, self.topic)]

    def close(self) -> None:
        """Closes the client."""
        self._client.close()


class Job:
    """A program with all that it starts, in a session of its own."""

    def __init__(self, command: Sequence[str], log: Path, folder: Path | None = None) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, cwd=folder)

    def check(self) -> None:
        """Raises `BenchError` if it has ended."""
        if self._process.poll() is not None:
            raise BenchError(f"the job has ended with {self._process.returncode}:\n{self.log.read_text()[-2000:]}")

    def has_ended(self) -> bool:
        """Whether it has ended well. Raises `BenchError` if it has failed."""
        if self._process.poll():
            self.check()
        return self._process.poll() is not None

    def memory_mb(self) -> int:
        """The resident memory of the program and of all that it has started, also in sessions of their own."""
        return int(resident_mb(self._process.pid))

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def run(start: Callable[[], Job], sink: Sink, count: int, *, timeout_s: float) -> Outcome:
    """Runs a job until the sink has `count` messages, or nothing comes any more, and kills it."""
    began, first, most = time.monotonic(), 0.0, 0
    last, since = 0, began
    job = start()
    try:
        while (there := sink.count()) < count:
            job.check()
            now = time.monotonic()
            if there != last:
                last, since = there, now
                first = first or now - began
            most = max(most, job.memory_mb())
            if there and now - since > _STUCK_S:
                break  # it has lost the rest, as the ledger will say
            if now - began > timeout_s:
                raise BenchError(f"{there:,} of {count:,} after {timeout_s:.0f} s:\n{job.log.read_text()[-1000:]}")
            time.sleep(_POLL_S)
        else:
            since = time.monotonic()
        return Outcome(first, since - began, most)
    finally:
        job.kill()


def run_bounded(start: Callable[[], Job], sink: Sink, count: int, *, timeout_s: float) -> Outcome:
    """Runs a job until it ends. Its last message counts as its end, as with a stream."""
    began, first, most, there, last_s = time.monotonic(), 0.0, 0, 0, 0.0
    job = start()
    try:
        while True:
            ended = job.has_ended()
            now_s = time.monotonic() - began
            if (found := sink.count()) != there:
                there, last_s, first = found, now_s, first or now_s
            if ended:
                return Outcome(first, last_s, most)
            most = max(most, job.memory_mb())
            if now_s > timeout_s:
                raise BenchError(f"{there:,} of {count:,} after {timeout_s:.0f} s:\n{job.log.read_text()[-1000:]}")
            time.sleep(_POLL_S)
    finally:
        job.kill()


def run_killed(start: Callable[[], Job], sink: Sink, count: int, *, timeout_s: float) -> Outcome:
    """Kills the job when half of the messages are in the sink, starts it again, and lets it run until nothing comes."""
    began = time.monotonic()
    before = run(start, sink, count // 2, timeout_s=timeout_s)
    killed_at = sink.count()
    if killed_at >= count:
        raise BenchError(f"{killed_at:,} of {count:,} were there when it was killed: give more --messages")
    job, last, since, most = start(), killed_at, time.monotonic(), before.memory_mb
    try:
        while time.monotonic() - since < _QUIET_S or last == killed_at:
            job.check()
            if (there := sink.count()) != last:
                last, since = there, time.monotonic()
            most = max(most, job.memory_mb())
            if time.monotonic() - began > timeout_s:
                raise BenchError(f"{last:,} of {count:,} after {timeout_s:.0f} s:\n{job.log.read_text()[-1000:]}")
            time.sleep(_POLL_S)
        return Outcome(before.first_s, since - began, most)
    finally:
        job.kill()
