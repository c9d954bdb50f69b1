"""The supervisor: follows a folder, obeys requests, and keeps its jobs running until it is told to end."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rmqio.sql.jobs.job import CheckCommand, Job, RunCommand
from rmqio.sql.jobs.state import StateFolder
from rmqio.sql.jobs.timing import Timing
from rmqio.sql.jobs.watch import Watch, overlooked, wrong_name

_MOST_CHECKS: Final = 2
"""At a time: each is a Python that starts."""
_OVERLOOKED_EVERY: Final = 60
"""Looks: folders below those of jobs can be many."""


class Supervisor:
    """Runs the files of a folder.

    Args:
      folder: holds the files.
      state: the state folder.
      run, check: the commands of a job, see `Job`.
      tell: takes lines for a person.
    """

    def __init__(
        self,
        folder: Path,
        state: StateFolder,
        run: RunCommand,
        check: CheckCommand,
        tell: Callable[[str], None],
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._run, self._check, self._tell = state, run, check, tell
        self._timing, self._clock = timing or Timing(), clock
        self._folder, self._watch = folder, Watch(folder)
        self._jobs: dict[str, Job] = {}
        self._look_at = clock()
        self._interrupts = 0
        self._obeyed = 0
        self._trouble = ""
        self._troubles: dict[str, str] = {}
        self._looks = 0
        self._overlooked: set[Path] = set()

    def run(self) -> None:
        """Blocks until SIGTERM or SIGINT, and until all jobs have ended. Raises `LocalError` if another one runs."""

        def interrupt(*_: Any) -> None:
            self._interrupts += 1

        with self._state.supervised():
            self._forget_removed()
            before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                while not self._interrupts or not all(each.is_idle for each in self._jobs.values()):
                    self.step()
                    self._wait()
                self._tell("all jobs are stopped")
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                for job in self._jobs.values():
                    self._tick(job, may_check=False)
                    job.close()

    def step(self) -> None:
        """Does what is due."""
        if self._interrupts > self._obeyed:
            self._obeyed = self._interrupts
            self._tell("all jobs are being stopped" + ("" if self._obeyed == 1 else " at once"))
            for name in sorted(self._jobs, reverse=True):
                self._jobs[name].leave()
        if not self._interrupts:
            if self._clock() >= self._look_at:
                self._look_at = self._clock() + self._timing.poll
                self._look()
            if self._looks > 1:  # the jobs are known
                self._obey()
        checks = sum(each.is_checking for each in self._jobs.values())
        for name, job in list(self._jobs.items()):
            had = job.is_checking
            self._tick(job, may_check=checks < _MOST_CHECKS)
            checks += job.is_checking - had
            if job.is_gone:
                job.close()
                del self._jobs[name]
                self._tell(f"{name}: removed")

    def _look(self) -> None:
        try:
            changes = self._watch.look()
            if self._looks % _OVERLOOKED_EVERY == 0:
                self._tell_overlooked()
        except OSError as error:  # jobs are not removed because a disk is away
            if self._trouble != str(error):
                self._trouble = str(error)
                self._tell(f"cannot list {self._folder}: {error.strerror}; the jobs go on")
            return
        self._trouble = ""
        self._looks += 1
        for name in changes.removed:
            if name in self._jobs:
                self._jobs[name].remove()
        for name, found in changes.offered.items():
            if wrong := wrong_name(name):
                self._tell(f"{found.path}: {wrong}")
                continue
            if name not in self._jobs:
                self._jobs[name] = Job(
                    self._state.job(name), self._run, self._check, self._tell, self._timing, self._clock
                )
            self._jobs[name].offer(found)

    def _tell_overlooked(self) -> None:
        found = overlooked(self._folder, self._state.path)
        for path, reason in found.items():
            if path not in self._overlooked:
                self._tell(f"{path}: {reason}")
        self._overlooked = set(found)

    def _tick(self, job: Job, *, may_check: bool) -> None:
        """A full disk ends neither the job nor the supervisor."""
        trouble = ""
        try:
            job.tick(may_check=may_check)
        except OSError as error:
            trouble = str(error)
        if trouble and trouble != self._troubles.get(job.name):
            self._tell(f"{job.name}: {trouble}")
        self._troubles[job.name] = trouble

    def _obey(self) -> None:
        for action, name in self._state.requests():
            job = self._jobs.get(name)
            if job is None or action not in ("stop", "start"):
                self._tell(f"there is no job {name} to {action}")
                continue
            job.stop() if action == "stop" else job.start()
            self._tick(job, may_check=False)  # its status says so before the request is gone

    def _forget_removed(self) -> None:
        """Forgets jobs whose files were removed while no supervisor ran."""
        for status in self._state.statuses():
            path = self._folder / f"{status.name}.sql"
            if not path.exists():
                self._state.job(status.name).forget()

    def _wait(self) -> None:
        """Until something is printed, or for a short time."""
        poll = select.poll()
        for job in self._jobs.values():
            for each in job.outputs:
                poll.register(each, select.POLLIN)
        poll.poll(self._timing.tick * 1000)
