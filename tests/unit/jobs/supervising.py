"""A supervisor whose jobs are Python programs: the text of a job is the program, run by a real process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rmqio.jobs.process import Timing
from rmqio.jobs.state import JobFolder, StateFolder, Status
from rmqio.jobs.supervisor import Supervisor
from tests.helpers.waiting import until

_RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
exec(open(sys.argv[1]).read())
"""
_CHECK = """
import sys
from pathlib import Path
text = Path(sys.argv[1]).read_text()
if 'not valid' in text:
    sys.exit('rmqio sql: job.sql:1:1: this is not valid\\n  not valid\\n  ^^^')
def plan(text):
    return [each for each in text.splitlines() if not each.startswith('#')]
if sys.argv[2:] and plan(text) == plan(Path(sys.argv[2]).read_text()):
    sys.exit(3)
"""
_PATIENT = Timing(poll=0.02, tick=0.01, grace=1e6, hurry=1e6, linger=0.2)
FOREVER = "import time\nprint({!r}, flush=True)\nwhile True: time.sleep(0.1)\n"
"""One long sleep would not end if Ctrl-C came just before it: Python looks for signals before and after, not while."""


class Lab:
    """A folder of jobs and its supervisor, which moves on in `until`.

    Its clock moves with it, from look to look, and can be put forward: however slow a machine is, no process is late.
    """

    timing = _PATIENT

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.state = StateFolder(folder / ".rmqio")
        self.told: list[str] = []
        self.resumed: list[bool] = []
        self.supervisor = self._made()

    def write(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.sql"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def status(self, name: str) -> Status:
        return self.state.job(name).read_status() or Status(name, "unknown")

    def printed(self, name: str) -> str:
        path = self.state.job(name).log
        return path.read_text() if path.exists() else ""

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Lets it move until the condition holds."""

        def holds() -> bool:
            if is_so := condition():
                return is_so
            self._move()
            return False

        until(holds, what, details=lambda: (self.told, self.state.statuses()), pause_s=0)

    def is_running(self, name: str, line: str) -> bool:
        """Whether the job runs and has printed the line since it was started."""
        status = self.status(name)
        after = self.printed(name).rpartition(f"started, process {status.pid}\n")[2]
        return status.state == "running" and line in after.splitlines()

    def for_looks(self, count: int) -> None:
        """Lets it look at the folder a few times, and do what it then begins."""
        for _ in range(count):
            self._move()
        self.until(lambda: not any(each.is_checking for each in self.supervisor._jobs.values()), "the end of checks")

    def interrupt(self) -> None:
        """As SIGTERM does."""
        self.supervisor._interrupts += 1

    def end(self) -> None:
        if not self.supervisor._interrupts:
            self.interrupt()
        self.until(lambda: all(each.is_idle for each in self.supervisor._jobs.values()), "the end of all jobs")
        for job in self.supervisor._jobs.values():
            job.close()

    def kill(self) -> None:
        """As SIGKILL does: the jobs stay behind."""
        self.supervisor = self._made()

    def restart(self) -> None:
        self.end()
        self.supervisor = self._made()

    def _made(self) -> Supervisor:
        return Supervisor(
            self.folder,
            self.state,
            self._run,
            self._check,
            self.told.append,
            self.timing,
            lambda: self.now,
        )

    def _move(self) -> None:
        self.supervisor.step()
        self.supervisor._wait()
        self.now += self.timing.poll

    def _run(self, _: Path, folder: JobFolder, resumed_ms: int | None) -> list[str]:
        self.resumed.append(resumed_ms is not None)
        return [sys.executable, "-c", _RUN, str(folder.text)]

    def _check(self, _: Path, folder: JobFolder, is_running: bool) -> list[str]:
        return [sys.executable, "-c", _CHECK, str(folder.candidate), *([str(folder.text)] if is_running else [])]
