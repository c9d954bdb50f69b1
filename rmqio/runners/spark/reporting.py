"""Reports of a run: from tasks to the driver, as metrics, progress, and bundles to finalize."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final, TextIO

from apache_beam import coders
from pyspark.accumulators import AccumulatorParam

from rmqio.runners.spark.beam.private import (
    BoundedTrieData,
    is_bounded_trie,
    is_string_set,
    metrics_pb2,
    pickler_loads,
    to_key,
)
from rmqio.runners.spark.beam.private import consolidate as beam_consolidate
from rmqio.runners.spark.errors import LOGGER
from rmqio.runners.spark.model import TaskReport

if TYPE_CHECKING:
    from pyspark import SparkContext


# Combines the metrics of many bundles and tasks.

_STRINGS: Final = coders.IterableCoder(coders.StrUtf8Coder())


def consolidate(infos: Iterable[metrics_pb2.MonitoringInfo]) -> list[metrics_pb2.MonitoringInfo]:
    """Returns one MonitoringInfo for each metric and step.

    Beam's own consolidation does not combine string sets and bounded tries, so the last one would win.
    """
    found: dict[Hashable, metrics_pb2.MonitoringInfo] = {}
    for info in beam_consolidate(infos):
        key = to_key(info)
        known = found.get(key)
        found[key] = info if known is None else _joined(known, info)
    return list(found.values())


def _joined(known: metrics_pb2.MonitoringInfo, info: metrics_pb2.MonitoringInfo) -> metrics_pb2.MonitoringInfo:
    if is_string_set(info):
        strings = set(_STRINGS.decode(known.payload)) | set(_STRINGS.decode(info.payload))
        payload = _STRINGS.encode(sorted(strings))
    elif is_bounded_trie(info):
        tries = [BoundedTrieData.from_proto(metrics_pb2.BoundedTrie.FromString(each.payload)) for each in (known, info)]
        payload = tries[0].combine(tries[1]).to_proto().SerializeToString()
    else:
        return info
    return metrics_pb2.MonitoringInfo(urn=info.urn, type=info.type, labels=dict(info.labels), payload=payload)


# Sends task reports to the driver through an accumulator, which Spark updates once for each successful task.

TaskKey = tuple[int, int, int]  # stage, round, partition


class ReportsParam(AccumulatorParam[dict[TaskKey, TaskReport]]):
    """Collects reports by task. A task that Spark runs again, because its output was lost, replaces its report."""

    def zero(self, value: dict[TaskKey, TaskReport]) -> dict[TaskKey, TaskReport]:
        return {}

    def addInPlace(
        self, value1: dict[TaskKey, TaskReport], value2: dict[TaskKey, TaskReport]
    ) -> dict[TaskKey, TaskReport]:
        value1.update(value2)
        return value1


# Runs bundle finalizers. Workers send them with their reports, and the driver runs them after Spark's commit.


def finalize(report: TaskReport) -> None:
    """Runs the callbacks of one task's bundles. Only logs errors, since in Beam a failed callback fails no pipeline."""
    for pickled in report.finalizers:
        try:
            pickler_loads(pickled)()
        except Exception as error:  # noqa: BLE001
            LOGGER.warning("a bundle finalizer failed: %s: %s", type(error).__name__, error)


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
