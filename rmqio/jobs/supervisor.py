"""The supervisor: follows a folder, obeys requests, and keeps its jobs running until it is told to end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rmqio.jobs.process import Log, Process, Timing
from rmqio.jobs.state import (
    CHECKING,
    DONE,
    DOWN,
    REFUSED,
    RESTARTING,
    RUNNING,
    STOPPED,
    STOPPING,
    UNCHANGED,
    Found,
    JobFolder,
    Lock,
    StateFolder,
    Status,
    Watch,
    overlooked,
    write,
    wrong_name,
)

# One job: its text, its process, and what to do when either changes or ends.

_WRONG_USAGE: Final = 2
ANOTHER_STATE: Final = ("holds the state of another", "Cannot map checkpoint")
"""How the runners refuse a checkpoint; it was left as it is."""

RunCommand = Callable[[Path, JobFolder, int | None], list[str]]
"""Returns a command line for a file, whose text is in the job's folder. The time at which the job was started first, in
Unix milliseconds, if it goes on; None: it begins."""
CheckCommand = Callable[[Path, JobFolder, bool], list[str]]
"""Returns a command line for a file, whose text is the candidate in the job's folder, and for whether the job runs."""


class Job:
    """A job by its name. `tick` moves it on; nothing here waits.

    Args:
      folder: its folder in the state folder.
      run: the command that runs `text`.
      check: the command that says whether `candidate` is valid, and whether it can go on from where `text` is.
      tell: takes lines for a person.
      clock: returns seconds.
    """

    def __init__(
        self,
        folder: JobFolder,
        run: RunCommand,
        check: CheckCommand,
        tell: Callable[[str], None],
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self.name = folder.name
        self._folder, self._run, self._check = folder, run, check
        self._tell, self._timing, self._clock = tell, timing, clock
        self._status = folder.read_status() or Status(self.name, since=time.time())
        self._written: Status | None = None
        self._log = Log(folder.log)
        self._file = Path()
        self._text = folder.read_text()
        self._seen: bytes | None = None
        self._pending: bytes | None = None  # to be checked
        self._checked: bytes | None = None  # being checked
        self._next: bytes | None = None  # runs next
        self._before: bytes | None = None  # runs again if the new text is refused when it starts
        self._process: Process | None = None
        self._checking: Process | None = None
        self._said = b""
        self._is_wanted = self._status.state not in (STOPPED, DONE)
        self._is_removed = self._is_leaving = False
        self._start_at: float | None = None
        self._started_at = 0.0
        self._failures = 0
        self._evicted_at: float | None = None
        self._rest: str | None = None  # the state to keep if what is offered is refused
        if self._is_wanted:
            self._status.state, self._status.pid = DOWN, None

    # ---- what is asked of it ----------------------------------------------------------------------------------------

    def offer(self, found: Found) -> None:
        """Takes what its file holds: at the start, and after each change."""
        self._file, self._is_removed = found.path, False
        if found.text is None:
            self._refuse(found.error)
            return
        self._seen = found.text
        if self._process is None and self._status.state in (STOPPED, DONE):
            self._rest = self._status.state
        self._is_wanted = found.text != self._text or self._rest is None
        if found.text != self._text:
            self._pending, self._next = found.text, None
            return
        self._drop_checks()
        self._status.refused = ""
        if self._is_wanted and self._process is None and self._start_at is None:
            self._start_at = self._clock()

    def remove(self) -> None:
        """Stops the job: its file is gone."""
        self._is_removed, self._seen = True, None
        self._give_up()

    def stop(self) -> None:
        """Stops the job until its file changes or `start` is called."""
        self._is_wanted = False
        self._give_up()
        if self._process is None:
            self._enter(STOPPED)

    def start(self) -> None:
        """Starts the job, also before its next restart, and checks again what was refused."""
        self._is_wanted, self._rest, self._failures = True, None, 0
        if self._seen is not None and self._seen not in (self._text, self._pending, self._checked, self._next):
            self._pending = self._seen
        elif self._process is None and self._text is not None:
            self._start_at = self._clock()

    def leave(self) -> None:
        """Stops the job together with the supervisor; a second call does so more urgently."""
        if self._is_leaving and self._process is not None:
            self._process.press()
        self._is_leaving = True
        self._give_up()

    # ---- how it moves on --------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no process of it runs."""
        return self._process is None and self._checking is None

    @property
    def is_gone(self) -> bool:
        """Whether it was removed and has ended."""
        return self._is_removed and self.is_idle

    @property
    def is_checking(self) -> bool:
        return self._checking is not None

    @property
    def outputs(self) -> list[int]:
        """The descriptors to wait for."""
        return [each.output for each in (self._process, self._checking) if each is not None and each.output is not None]

    def tick(self, *, may_check: bool) -> None:
        """Does what is due. `may_check`: a check can start now."""
        if self._checking is not None and (status := self._checking.tick()) is not None:
            self._checking = None
            self._has_checked(status)
        if self._process is not None and (status := self._process.tick()) is not None:
            was_asked, self._process = self._process.is_asked, None
            self._has_ended(status, was_asked)
        if self._pending is not None and self._checking is None and may_check and not self._is_over:
            self._begin_check()
        if self._start_at is not None and self._clock() >= self._start_at and self.is_idle and not self._is_over:
            self._begin()
        if self._written != self._status and not self.is_gone:
            self._folder.write_status(self._status)
            self._written = replace(self._status)

    def close(self) -> None:
        """Removes what only a listed job needs, if it is gone."""
        self._log.close()
        if self._is_removed:
            self._folder.forget()

    @property
    def _is_over(self) -> bool:
        return self._is_removed or self._is_leaving or not self._is_wanted

    def _begin_check(self) -> None:
        self._checked, self._pending = self._pending, None
        assert self._checked is not None
        write(self._folder.candidate, self._checked)
        self._said = b""
        command = self._check(self._file, self._folder, self._process is not None)
        self._checking = Process(command, self._say, self._timing, self._clock)
        if self._process is None and self._rest is None:
            self._start_at = None
            self._enter(CHECKING)

    def _say(self, data: bytes) -> None:
        self._said += data

    def _has_checked(self, status: int) -> None:
        checked, self._checked = self._checked, None
        if self._is_over or self._pending is not None or checked is None:  # or it has changed again
            return
        if status == UNCHANGED and self._process is not None:
            self._status.refused = ""
            self._text = checked
            write(self._folder.text, checked)
            self._note("the new text has the same plan: the job goes on")
            return
        if status in (0, UNCHANGED):
            self._status.refused = ""
            self._next = checked
            self._start_at = self._clock()
            if self._process is not None:
                self._tell(f"{self.name}: is upgraded")
                self._end_process()
            return
        said = self._said.decode(errors="replace").strip()
        self._refuse(said or f"the check ended with status {status}")

    def _refuse(self, reason: str) -> None:
        """The newest text does not run. The old one does."""
        reason = reason.removeprefix("rmqio sql: ")
        goes_on = ""
        if self._process is not None:
            goes_on = "\nthe job continues with its old text"
        elif self._rest is not None:
            self._is_wanted = False
            goes_on = f"\nthe job stays {self._rest}"
        elif self._text is not None and self._is_wanted:
            goes_on = "\nthe job runs with its old text"
            self._start_at = self._start_at or self._clock()
        else:
            self._enter(REFUSED)
        self._status.refused = reason
        self._note(f"refused: {reason}{goes_on}")

    def _begin(self) -> None:
        lock = self._free_lock()
        if lock is None:
            return
        with contextlib.closing(lock):
            if self._next is not None:
                if self._text is not None:
                    self._before, self._failures = self._text, 0
                    self._status.restarts, self._status.error = 0, ""
                self._text, self._next = self._next, None
                write(self._folder.text, self._text)
            if self._text is None:
                self._start_at = None
                return
            self._start_at = self._rest = None
            self._log.begin()
            command = self._run(self._file, self._folder, round(self._status.began * 1000) or None)
            self._status.began = self._status.began or time.time()
            self._started_at = self._clock()
            try:
                self._process = Process(command, self._log.write, self._timing, self._clock, [lock.descriptor])
            except OSError as error:
                self._start_again(f"it does not start: {error}")
                return
            lock.write(self._process.pid)
        self._enter(RUNNING, self._process.pid)
        self._note(f"started, process {self._process.pid}")

    def _free_lock(self) -> Lock | None:
        """Returns the lock of the job's processes. A process that another supervisor has left is ended first."""
        lock = Lock.take(self._folder.lock)
        if lock is not None:
            self._evicted_at = None
            return lock
        owner = Lock.owner(self._folder.lock)
        if owner is None:
            return None
        now = self._clock()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._evicted_at is None:
                self._evicted_at = now
                self._note(f"process {owner} was left behind by an earlier supervisor, and is stopped first")
                os.kill(owner, signal.SIGINT)
            elif now - self._evicted_at > self._timing.grace:
                os.killpg(owner, signal.SIGKILL)
        return None

    def _has_ended(self, status: int, was_asked: bool) -> None:
        """The process has ended: because it was asked to, or by itself."""
        how = f"ended with status {status}" if status >= 0 else f"ended by signal {-status}"
        if was_asked and (status or self._next is not None or self._is_removed):
            self._note(how)
            if self._is_removed:
                return
            self._enter(STOPPED if not self._is_wanted else DOWN)
            if not self._is_over and self._start_at is None:
                self._start_at = self._clock()
            return
        if status == 0:
            self._before = None
            self._is_wanted = False
            self._status.began = 0.0
            self._enter(DONE)
            self._note("done")
            return
        reason = self._log.error() or how
        if self._before is not None and self._is_refused(status):
            self._status.error = reason
            self._text, self._before = self._before, None
            write(self._folder.text, self._text)
            self._refuse(reason)
            return
        if self._has_another_state():  # left by a file that was removed; to try again does not help
            self._status.refused = reason.removeprefix("rmqio sql: ")
            self._enter(REFUSED)
            self._note(f"refused: {self._status.refused}")
            return
        self._start_again(reason if reason == how else f"{how}: {reason}")

    def _start_again(self, reason: str) -> None:
        """After a failure, and a delay that doubles each time."""
        if self._clock() - self._started_at >= self._timing.steady:
            self._failures, self._before = 0, None
        self._failures += 1
        self._status.restarts += 1
        self._status.error = reason
        delay = self._timing.delay(self._failures)
        self._start_at = self._clock() + delay
        self._enter(RESTARTING)
        self._note(f"{reason}\nit starts again in {delay:g} s")

    def _is_refused(self, status: int) -> bool:
        """Whether the new text can never go on from the checkpoint, or not start at all."""
        return status == _WRONG_USAGE or self._has_another_state()

    def _has_another_state(self) -> bool:
        return any(each in self._log.tail for each in ANOTHER_STATE)

    def _give_up(self) -> None:
        """Drops what is not begun, and asks what runs to end."""
        self._drop_checks()
        self._start_at = None
        self._end_process()

    def _drop_checks(self) -> None:
        self._pending = self._next = self._checked = None
        if self._checking is not None:
            self._checking.ask()

    def _end_process(self) -> None:
        if self._process is not None and not self._process.is_asked:
            self._process.ask()
            self._enter(STOPPING, self._process.pid)

    def _enter(self, state: str, pid: int | None = None) -> None:
        if (self._status.state, self._status.pid) != (state, pid):
            self._status.state, self._status.pid, self._status.since = state, pid, time.time()

    def _note(self, text: str) -> None:
        self._log.note(text)
        self._tell(f"{self.name}: {text}")


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
