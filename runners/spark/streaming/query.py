"""A StreamingQuery that runs a pipeline: the line of levels, and what is done when a micro-batch has been committed."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from apache_beam.internal import pickler
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from rmqio.runners.spark.log import LOGGER
from rmqio.runners.spark.model import SCHEMA, TaskReport
from rmqio.runners.spark.streaming.channels import REPORT
from rmqio.runners.spark.streaming.checkpoint import Checkpoint, shape_of
from rmqio.runners.spark.streaming.levels import StreamPlan
from rmqio.runners.spark.streaming.model import MAX, LevelReport, LevelTask
from rmqio.runners.spark.streaming.operator import run_first
from rmqio.runners.spark.streaming.source import NAME, Limits, Planning, data_source, seen
from rmqio.runners.spark.streaming.stateful import LevelProcessor

_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOOK_S: Final = 0.05


class Query:
    """Runs until its sources have ended, until `stop`, or until it fails."""

    def __init__(
        self,
        session: SparkSession,
        plan: StreamPlan,
        checkpoint: Checkpoint,
        limits: Limits,
        trigger_s: float,
        until_now: bool,
        run: str,
        told: Callable[[BatchReport], None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._checkpoint = checkpoint
        self._trigger_s = trigger_s
        self._run = run
        self._until_now = until_now
        self._told = told
        self._folder = tempfile.mkdtemp(prefix="rmqio-query-")
        control = os.path.join(self._folder, "stop")
        self._control = control
        self._pending = os.path.join(self._folder, "pending")
        buckets = len(plan.levels[0].buckets)
        self._planning = Planning(tuple(plan.sources), max(2, buckets), limits, until_now, run, control, self._pending)
        self._waiting: list[BatchReport] = []  # micro-batches that are done and not known to be committed
        self._is_done = threading.Event()
        self.running: Any = None
        """Spark's query, once it runs."""

    def run(self) -> None:
        """Blocks. Raises what the query fails with."""
        try:
            self._start_and_attend()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start_and_attend(self) -> None:
        self._checkpoint.take(shape_of(self._plan.sources, self._plan.levels), len(self._plan.levels[0].buckets))
        conf = self._session.conf
        conf.set("spark.sql.streaming.stateStore.providerClass", _PROVIDER)
        self._session.dataSource.register(data_source(self._planning))
        frame = self._frame()
        writer = frame.writeStream.foreachBatch(self._batch).outputMode("append").queryName(f"beam {self._run[:8]}")
        query = writer.option("checkpointLocation", self._checkpoint.folder)
        query = query.trigger(processingTime=f"{int(self._trigger_s * 1000)} milliseconds")
        self.running = running = query.start()
        try:
            self._attend(running)
        finally:
            running.stop()

    def stop(self) -> None:
        """Ends the planning: the micro-batch that runs ends and is committed, then the query stops."""
        with contextlib.suppress(FileNotFoundError), open(self._control, "w"):
            pass

    def stop_at_once(self) -> None:
        """Leaves the micro-batch that runs undone; the next start runs it again."""
        self.stop()
        if self.running is not None:
            self.running.stop()

    def _frame(self) -> DataFrame:
        first, *later = self._plan.levels
        frame = self._session.readStream.format(NAME).load().mapInArrow(_first(first), SCHEMA)
        for level in later:
            frame = frame.groupBy("bucket").transformWithState(
                LevelProcessor(cloudpickle.dumps(level)), SCHEMA, "Append", "None"
            )
        return frame.where(f"channel = {REPORT}").select("value")

    def _batch(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        reports = [pickle.loads(bytes(row.value)) for row in frame.collect()]
        report = BatchReport(number, reports, time.monotonic() - began)
        self._waiting.append(report)
        with contextlib.suppress(FileNotFoundError):
            if report.is_pending:
                open(self._pending, "w").close()
            else:
                os.remove(self._pending)

    def _attend(self, running: Any) -> None:
        """Does what waits for Spark's commits, and stops the query when it is at its end."""
        while running.isActive:
            self._settle()
            if self._is_done.is_set():
                self.stop()
            if os.path.exists(seen(self._control)) and not self._waiting:
                break
            time.sleep(_LOOK_S)
        error = running.exception()
        self._settle()
        if error is not None:
            raise error

    def _settle(self) -> None:
        """Does what waits for Spark's commits: it has committed a micro-batch when it begins another one, too."""
        done: list[BatchReport] = []
        waiting = list(self._waiting)
        while waiting and (len(waiting) > 1 or self._checkpoint.is_committed(waiting[0].number)):
            done.append(waiting.pop(0))
        for report in done:
            for task in report.tasks:
                _finalize(task)
            self._told(report)
            if report.is_last(self._run, self._until_now):
                self._is_done.set()
        planned = next((report.planned for report in reversed(done) if report.planned is not None), None)
        if planned is not None:
            for source in self._plan.sources:
                source.planner.committed(planned["to"][str(source.number)])
        del self._waiting[: len(done)]


class BatchReport:
    """What one micro-batch has done."""

    def __init__(self, number: int, reports: list[LevelReport], seconds: float) -> None:
        self.number = number
        self.seconds = seconds
        self.levels = reports
        self.planned = next((each.sources for each in reports if each.sources is not None), None)

    @property
    def tasks(self) -> Iterator[TaskReport]:
        for report in self.levels:
            yield from report.tasks.values()

    @property
    def watermark(self) -> int:
        """The least of all levels, in microseconds."""
        return min((each.watermark for each in self.levels if each.level), default=MAX)

    @property
    def is_pending(self) -> bool:
        """Whether something waits for the clock alone."""
        return any(each.pending for each in self.levels)

    def is_last(self, run: str, until_now: bool) -> bool:
        """Whether it is the last of a run: its sources are done, and unless that is for now only, all is done.

        What an earlier run has planned and this one only repeats is not the last.
        """
        if self.planned is None or self.planned["run"] != run:
            return False
        sources = self.planned["sources"].values()
        if until_now:
            return all(each["done"] for each in sources)
        return all(each["ended"] for each in sources) and self.watermark >= MAX and not self.is_pending


def _first(task: LevelTask) -> Any:
    def level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_first(task, batches)

    return level


def _finalize(report: TaskReport) -> None:
    for pickled in report.finalizers:
        try:
            pickler.loads(pickled)()
        except Exception as error:  # noqa: BLE001  Beam's contract: a failing callback does not fail the pipeline
            LOGGER.warning("a bundle finalizer failed: %s: %s", type(error).__name__, error)


def even_buckets(session: SparkSession, count: int) -> list[int]:
    """Numbers that Spark's hash spreads over `count` partitions, one each: chosen, since it spreads 0..n unevenly."""
    jvm: Any = session._jvm
    hash_of = jvm.org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction
    integer = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < count:
        place = hash_of.hash(candidate, integer, 42) % count
        found.setdefault(place, candidate)
        candidate += 1
    return [found[place] for place in range(count)]
