"""A progress line for a running pipeline: the transforms of the current job, and how many of its tasks have ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY_S: Final = 0.5
_WIDTH: Final = 100


class Progress:
    """Rewrites one line on a terminal from its own thread. Writes nothing if stderr is not a terminal."""

    def __init__(self, tasks: Callable[[], tuple[int, int]], out: TextIO | None = None) -> None:
        """Args: `tasks`: returns how many tasks of the current job have ended, and how many there are."""
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
        """Starts a job with these transforms."""
        self._what = what

    def line(self) -> str:
        """Returns the line for the current state."""
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


def tasks_of(context: SparkContext, tag: str) -> tuple[int, int]:
    """Returns how many tasks of a tag's running jobs have ended, and how many Spark has planned so far."""
    tracker = context.statusTracker()
    done = total = 0
    # PySpark's tracker only knows job groups, which belong to the user. Spark's own tracker also knows tags
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info and info.status == "RUNNING" else []:
            found = tracker.getStageInfo(stage)
            if found:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total
