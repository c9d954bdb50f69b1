"""Programs that are started as users start them, and can be waited for, interrupted and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.helpers.waiting import at_most, runs, told, until

_HEEDING: Final = ("env", "--default-signal=INT")
"""Before a command: it reacts to interrupts, also if the tests run in the background, where they are ignored."""


class Job:
    """A program in its own session, with all processes that it starts. Its output goes to files in `folder`.

    Args:
      cwd: where it runs; None: where the tests do.
    """

    def __init__(self, command: Sequence[str], folder: Path, cwd: Path | None = None) -> None:
        name = uuid.uuid4().hex
        self.log, self.output = folder / f"{name}.log", folder / f"{name}.output"
        with self.log.open("wb") as log, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*_HEEDING, *command], stdout=output, stderr=log, cwd=cwd, start_new_session=True
            )

    def wait_until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        progress: Callable[[], object] = lambda: None,
        details: Callable[[], object] = lambda: "",
        still_s: float = 240,
    ) -> None:
        """Waits for a condition. Fails if the program ends first. What it starts, e.g. a JVM, takes minutes at most."""
        until(
            condition,
            what,
            progress=progress,
            alive=[runs(self.process, lambda: f"before: {what}; {told(details)}\n{self._tail()}")],
            details=lambda: f"{told(details)}\n{self._tail()}",
            still_s=still_s,
        )

    def done(self, still_s: float = 240) -> None:
        """Waits until the program has ended well. That something else has ended it says nothing."""
        until(lambda: self.process.poll() is not None, "its end", details=self._tail, still_s=still_s)
        if self.process.returncode:
            runs(self.process, self._tail)()

    def _tail(self) -> str:
        return self.log.read_text()[-4000:]

    def interrupt(self) -> int:
        return self.end(signal.SIGINT)

    def end(self, number: int) -> int:
        """Sends a signal and returns the exit status. A program needs seconds to end, and minutes on a busy machine."""
        self.process.send_signal(number)
        return self.process.wait(at_most(180))

    def kill(self) -> None:
        """Kills the program and all processes that it has started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(at_most(30))

    def kill_worker(self) -> int:
        """Kills one of Spark's Python workers and returns its process id. Raises `ProcessLookupError` if none runs."""
        names: dict[int, str] = {}
        parents: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                after_name = (folder / "stat").read_text().rpartition(") ")[2].split()
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended in the meantime
            if int(after_name[3]) == self.process.pid:  # the session
                names[int(folder.name)], parents[int(folder.name)] = name, int(after_name[1])
        is_daemon = {pid: "-m rmqio.runners.spark.sessions.daemon" in name for pid, name in names.items()}
        workers = [pid for pid in names if is_daemon[pid] and is_daemon.get(parents[pid])]
        if not workers:
            raise ProcessLookupError("no Python worker of Spark is running")
        os.kill(max(workers), signal.SIGKILL)
        return max(workers)


@contextmanager
def started(job: Job) -> Iterator[Job]:
    """Yields the job and leaves no process behind. No exception that nobody expected made a row bad."""
    try:
        yield job
    finally:
        if job.process.poll() is None:
            job.kill()
    assert "internal error: " not in (log := job.log.read_text(errors="replace")), log[-4000:]
