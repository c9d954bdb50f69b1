"""A line that says what a running pipeline does: the transforms of the current job, and how many tasks have ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

_EVERY_S: Final = 0.5
_WIDTH: Final = 100


class Progress:
    """Rewrites one line on a terminal, from a thread of its own; silent where stderr is no terminal."""

    def __init__(self, tasks: Callable[[], tuple[int, int]], out: TextIO | None = None) -> None:
        """Args: what tells the number of ended and of all tasks of the current job."""
        self._tasks = tasks
        self._out = out or sys.stderr
        self._what = ""
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._out.isatty():
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._out.write("\r\x1b[K")
            self._out.flush()

    def __call__(self, what: str) -> None:
        """A job with these transforms begins."""
        self._what = what

    def line(self) -> str:
        """The line as it would be written now."""
        done, tasks = self._tasks()
        head = f"[{time.monotonic() - self._began:4.0f} s] "
        tail = f": {done} of {tasks} tasks" if tasks else ""
        room = _WIDTH - len(head) - len(tail)
        what = self._what if len(self._what) <= room else self._what[: room - 3] + "..."
        return head + what + tail

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            if self._what:
                self._out.write("\r" + self.line() + "\x1b[K")
                self._out.flush()


def tasks_of(context: Any, tag: str) -> tuple[int, int]:
    """Ended tasks and all tasks of the jobs that run under a tag, as far as Spark has planned them."""
    tracker = context.statusTracker()
    done = total = 0
    # PySpark's tracker knows groups of jobs, which are the user's; Spark's own knows tags, too
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info and info.status == "RUNNING" else []:
            found = tracker.getStageInfo(stage)
            if found:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total
