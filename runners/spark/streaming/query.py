"""A StreamingQuery that runs a pipeline: the line of levels, and what is done when a micro-batch has been committed."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from rmqio.runners.spark.beam.private import pickler
from rmqio.runners.spark.log import LOGGER
from rmqio.runners.spark.model import ROW_DDL, TaskReport
from rmqio.runners.spark.streaming.channels import REPORT
from rmqio.runners.spark.streaming.checkpoint import Checkpoint, shape_of
from rmqio.runners.spark.streaming.figures import OBSERVED, Figures, observed, planned_lag, planned_rows
from rmqio.runners.spark.streaming.kept import CutKeeper, TaskCuts
from rmqio.runners.spark.streaming.levels import StreamPlan
from rmqio.runners.spark.streaming.model import MAX, LevelReport, LevelTask
from rmqio.runners.spark.streaming.operator import run_first
from rmqio.runners.spark.streaming.source import (
    NAME,
    Cuts,
    Limits,
    Planning,
    StreamSource,
    data_source,
    seen,
    shortened,
)
from rmqio.runners.spark.streaming.stateful import LevelProcessor

_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CALLBACKS: Final = "py4j.clientserver"
"""Logs what Python functions fail with that Spark calls."""
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
        drains: bool,
        run: str,
        told: Callable[[BatchReport], None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._checkpoint = checkpoint
        self._trigger_s = trigger_s
        self._run = run
        self._until_now = until_now
        self._drains = drains
        self._told = told
        self._folder = tempfile.mkdtemp(prefix="rmqio-query-")
        control = os.path.join(self._folder, "stop")
        self._control = control
        self._pending = os.path.join(self._folder, "pending")
        self._drain = os.path.join(self._folder, "drain")
        cuts = os.path.join(self._folder, "cuts")
        self._cuts = CutKeeper(checkpoint, cuts)
        self._position: Mapping[str, Any] = {}
        """By source number: how far has been read what Spark has committed."""
        buckets = len(plan.levels[0].buckets)
        self._planning = Planning(
            tuple(plan.sources), max(2, buckets), limits, until_now, run, control, self._drain, self._pending,
            cuts,
        )  # fmt: skip
        self._waiting: list[BatchReport] = []  # micro-batches that are done and not known to be committed
        self._is_done = threading.Event()
        self._failure: Exception | None = None
        self.running: Any = None
        """Spark's query, once it runs."""

    def run(self) -> None:
        """Blocks. Raises what the query fails with."""
        logger = logging.getLogger(_CALLBACKS)
        logger.addFilter(self._is_news)
        try:
            self._start_and_attend()
        finally:
            self._cuts.close()
            logger.removeFilter(self._is_news)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start_and_attend(self) -> None:
        self._checkpoint.take(shape_of(self._plan.sources, self._plan.levels), len(self._plan.levels[0].buckets))
        self._cuts.open()
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
        """The micro-batch that runs ends and is committed, then the query stops.

        One that drains first ends all sources where they have been read to: what waits for the watermark fires.
        """
        _touch(self._drain if self._drains else self._control)

    def stop_at_once(self) -> None:
        """Leaves the micro-batch that runs undone; the next start runs it again."""
        _touch(self._control)
        if self.running is not None:
            self.running.stop()

    def _frame(self) -> DataFrame:
        first, *later = self._plan.levels
        told = self._session.sparkContext.accumulator(self._cuts, TaskCuts())
        frame = self._session.readStream.format(NAME).load().mapInArrow(_first(first, told), ROW_DDL)
        for level in later:
            frame = frame.groupBy("bucket").transformWithState(
                LevelProcessor(cloudpickle.dumps(level)), ROW_DDL, "Append", "None"
            )
        reports = frame.where(f"channel = {REPORT}")
        return reports.observe(OBSERVED, *observed()).select("value")

    def _batch(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        try:
            reports = [pickle.loads(bytes(row.value)) for row in frame.collect()]
        except Exception as error:
            self._failure = error
            raise
        report = BatchReport(number, reports, time.monotonic() - began)
        if report.cuts is not None:
            self._cuts.keep(report.cuts)
        self._waiting.append(report)
        if report.is_pending:
            _touch(self._pending)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._pending)

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Not of what is logged when `_batch` fails with it: `run` raises it."""
        return record.exc_info is None or record.exc_info[1] is not self._failure

    def _attend(self, running: Any) -> None:
        """Does what waits for Spark's commits, and stops the query when it is at its end."""
        while running.isActive:
            self._settle()
            if self._is_done.is_set():
                _touch(self._control)
            if not self._waiting and (os.path.exists(seen(self._control)) or self._is_between(running)):
                break
            time.sleep(_LOOK_S)
        error = running.exception()
        self._settle()
        if error is not None:
            raise error
        self._commit(last=True)

    def _is_between(self, running: Any) -> bool:
        """Whether the query waits for its next trigger, which would only see that it is to stop."""
        return self._trigger_s > 0 and os.path.exists(self._control) and not running.status["isTriggerActive"]

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
            if report.is_drained and report.has_ended:
                self._checkpoint.close()
            if report.has_ended and report.is_of(self._run):
                self._is_done.set()
            elif self._until_now and report.is_done and report.is_of(self._run):
                self.stop() if self._drains else self._is_done.set()
        last = next((report for report in reversed(done) if report.planned is not None), None)
        if last is not None:
            self._position = last.read_to(self._plan.sources)
            self._commit()
        del self._waiting[: len(done)]

    def _commit(self, last: bool = False) -> None:
        for source in self._plan.sources:
            source.planner.committed(self._position.get(str(source.number)), last)


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

    def is_of(self, run: str) -> bool:
        """Whether this run has planned it: what an earlier one has planned and this one repeats is not its last."""
        return self.planned is not None and bool(self.planned["run"] == run)

    @property
    def is_done(self) -> bool:
        """Whether its sources have been read to where this run ends."""
        return self.planned is not None and all(each["done"] for each in self.planned["sources"].values())

    @property
    def cuts(self) -> Cuts | None:
        """What it did not read of what was planned; None where nothing was planned."""
        if self.planned is None:
            return None
        parts: dict[str, dict[str, int]] = {}
        for report in self.levels:
            for source, found in report.cuts.items():
                parts.setdefault(str(source), {}).update(found)
        return Cuts(self.planned["number"], parts)

    def read_to(self, sources: Sequence[StreamSource]) -> Mapping[str, Any]:
        """By source number: the position that it has come to; nothing was planned: none."""
        cuts = self.cuts
        return {} if cuts is None or self.planned is None else shortened(sources, self.planned["to"], cuts)

    @property
    def is_drained(self) -> bool:
        """Whether its sources were made to end."""
        return self.planned is not None and bool(self.planned["drained"])

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to come, to fire or to wait for."""
        if self.planned is None:
            return False
        ended = all(each["ended"] for each in self.planned["sources"].values())
        return ended and self.watermark >= MAX and not self.is_pending

    @property
    def figures(self) -> Figures:
        """For people."""
        known = any(each.level for each in self.levels)
        rows, lag = planned_rows(self.planned), planned_lag(self.planned)
        return Figures(self.number, rows, self.seconds, self.watermark if known else None, lag)


def _touch(path: str) -> None:
    with contextlib.suppress(FileNotFoundError), open(path, "w"):  # the folder goes when the query has ended
        pass


def _first(task: LevelTask, told: Any) -> Any:
    def level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_first(task, batches, told.add)

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
