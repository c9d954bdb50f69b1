"""A StreamingQuery that runs a pipeline: the chain of levels, and the actions after a micro-batch was committed."""

from __future__ import annotations

import logging
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from rmqio.runners.spark.model import ROW_DDL, TaskReport
from rmqio.runners.spark.reporting.finalizing import finalize
from rmqio.runners.spark.streaming.channels import REPORT
from rmqio.runners.spark.streaming.checkpoint import Checkpoint, shape_of
from rmqio.runners.spark.streaming.figures import OBSERVED, Figures, observed
from rmqio.runners.spark.streaming.kept import CutKeeper, TaskCuts
from rmqio.runners.spark.streaming.levels import StreamPlan
from rmqio.runners.spark.streaming.micro_batch import Cuts, Parts, Positions
from rmqio.runners.spark.streaming.model import MAX, LevelReport, LevelTask
from rmqio.runners.spark.streaming.planning.planner import TriggerLimits
from rmqio.runners.spark.streaming.planning.signals import QuerySignals
from rmqio.runners.spark.streaming.planning.source import NAME, Planning, StreamSource, data_source, shortened
from rmqio.runners.spark.streaming.worker.operator import run_first
from rmqio.runners.spark.streaming.worker.stateful import LevelProcessor
from rmqio.runners.spark.worker.same_versions import checked, versions_check

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql.streaming.query import StreamingQuery

_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CALLBACKS: Final = "py4j.clientserver"
"""The logger for the errors of Python functions that Spark calls."""
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The settings of a query."""

    run: str
    """The name of this run of the query, which is stored in everything that the run plans."""
    limits: TriggerLimits
    trigger_s: float
    """The least time from the start of one micro-batch to the start of the next."""
    until_now: bool
    """Whether the query ends at the point where its sources end when it starts."""
    drains: bool
    """Whether a stop ends the sources, so that all windows close."""


class _BatchFailed(Exception):
    """For Spark, in the place of the error."""


class Query:
    """Runs until its sources have ended, until `stop`, or until it fails."""

    def __init__(
        self,
        session: SparkSession,
        plan: StreamPlan,
        checkpoint: Checkpoint,
        settings: QuerySettings,
        on_report: Callable[[BatchReport], None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._checkpoint = checkpoint
        self._settings = settings
        self._on_report = on_report
        self._folder = tempfile.mkdtemp(prefix="rmqio-query-")
        self._signals = signals = QuerySignals(self._folder)
        self._cuts = CutKeeper(checkpoint, signals.cuts)
        self._position: Positions = {}
        """How far the micro-batches that Spark has committed have read."""
        parallelism = max(2, len(plan.levels[0].buckets))
        self._planning = Planning(
            sources=tuple(plan.sources),
            parallelism=parallelism,
            limits=settings.limits,
            until_now=settings.until_now,
            run=settings.run,
            signals=signals,
        )
        self._waiting: list[BatchReport] = []  # micro-batches that are done, but not known to be committed
        self._is_done = threading.Event()
        self._failure: Exception | None = None
        """Why a micro-batch has failed."""
        self.running: StreamingQuery | None = None
        """Spark's query; None before it runs."""

    def run(self) -> None:
        """Blocks until the query has ended. Raises the error that made it fail."""
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
        writer = (
            frame.writeStream.foreachBatch(self._batch).outputMode("append").queryName(f"beam {self._settings.run[:8]}")
        )
        query = writer.option("checkpointLocation", self._checkpoint.folder)
        query = query.trigger(processingTime=f"{int(self._settings.trigger_s * 1000)} milliseconds")
        self.running = running = query.start()
        try:
            self._attend(running)
        finally:
            running.stop()

    def stop(self) -> None:
        """Lets the running micro-batch finish and commit, and then stops the query.

        A query that drains first ends all sources at the point to which they have been read, so that everything that
        waits for the watermark fires.
        """
        if self._settings.drains:
            self._signals.drain()
        else:
            self._signals.stop()

    def stop_at_once(self) -> None:
        """Abandons the running micro-batch. The next start runs it again."""
        self._signals.stop()
        if self.running is not None:
            self.running.stop()

    def _frame(self) -> DataFrame:
        first, *later = self._plan.levels
        cuts = self._session.sparkContext.accumulator(self._cuts, TaskCuts())
        frame = self._session.readStream.format(NAME).load().mapInArrow(_first(first, cuts), ROW_DDL)
        for level in later:
            frame = frame.groupBy("bucket").transformWithState(
                LevelProcessor(cloudpickle.dumps(level), versions_check()), ROW_DDL, "Append", "None"
            )
        reports = frame.where(f"channel = {REPORT}")
        return reports.observe(OBSERVED, *observed()).select("value")

    def _batch(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        try:
            reports = [pickle.loads(bytes(row.value)) for row in frame.collect()]
        except Exception as error:  # noqa: BLE001  `_attend` raises it
            self._failure = error
            # Spark matches the text with (.|\r\n|\r|\n)*, which overflows the stack of its thread if it is long.
            raise _BatchFailed from None
        report = BatchReport(number, reports, time.monotonic() - began)
        if report.cuts is not None:
            self._cuts.keep(report.cuts)
        self._waiting.append(report)
        self._signals.note_pending(report.is_pending)

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Returns False for a log record about an error of `_batch`, because `run` raises that error."""
        return record.exc_info is None or not isinstance(record.exc_info[1], _BatchFailed)

    def _attend(self, running: StreamingQuery) -> None:
        """Does the work that waits for Spark's commits, and stops the query when it is at its end."""
        while running.isActive:
            self._settle()
            if self._is_done.is_set():
                self._signals.stop()
            if not self._waiting and (self._signals.is_at_end() or self._is_between(running)):
                break
            time.sleep(_LOOK_S)
        error = running.exception()
        self._settle()
        if error is not None:
            raise self._failure or error
        self._commit(last=True)

    def _is_between(self, running: StreamingQuery) -> bool:
        """Returns whether a stopped query waits for its next trigger, which would only find that it has to stop."""
        is_idle = self._settings.trigger_s > 0 and not running.status["isTriggerActive"]
        return is_idle and self._signals.is_stopped()

    def _settle(self) -> None:
        """Does the work that waits for Spark's commits. A micro-batch is also committed if another one has begun."""
        done: list[BatchReport] = []
        waiting = list(self._waiting)
        while waiting and (len(waiting) > 1 or self._checkpoint.is_committed(waiting[0].number)):
            done.append(waiting.pop(0))
        for report in done:
            for task in report.tasks:
                finalize(task)
            self._on_report(report)
            if report.is_drained and report.has_ended:
                self._checkpoint.close()
            if report.has_ended and report.is_of(self._settings.run):
                self._is_done.set()
            elif self._settings.until_now and report.is_done and report.is_of(self._settings.run):
                self.stop() if self._settings.drains else self._is_done.set()
        last = next((report for report in reversed(done) if report.planned is not None), None)
        if last is not None:
            self._position = last.read_to(self._plan.sources)
            self._commit()
        del self._waiting[: len(done)]

    def _commit(self, last: bool = False) -> None:
        for source in self._plan.sources:
            source.planner.committed(self._position.get(str(source.number)), last)


class BatchReport:
    """The result of one micro-batch."""

    def __init__(self, number: int, reports: list[LevelReport], seconds: float) -> None:
        self.number = number
        self.seconds = seconds
        self.levels = reports
        self.planned = next((each.planned for each in reports if each.planned is not None), None)

    @property
    def tasks(self) -> Iterator[TaskReport]:
        for report in self.levels:
            yield from report.tasks.values()

    @property
    def watermark(self) -> int:
        """The least watermark of all levels, in microseconds."""
        return min((each.watermark for each in self.levels if each.level), default=MAX)

    @property
    def is_pending(self) -> bool:
        """Whether anything waits for the clock alone."""
        return any(each.pending for each in self.levels)

    def is_of(self, run: str) -> bool:
        """Returns whether the run has planned it. A micro-batch that a run only repeats is not the last of that run."""
        return self.planned is not None and self.planned.run == run

    @property
    def is_done(self) -> bool:
        """Whether all sources have been read to the point where this run ends."""
        return self.planned is not None and self.planned.is_done

    @property
    def cuts(self) -> Cuts | None:
        """The parts that it did not read to their planned end; None if nothing was planned."""
        if self.planned is None:
            return None
        parts: dict[str, dict[str, int]] = {}
        for report in self.levels:
            for source, found in report.cuts.items():
                parts.setdefault(str(source), {}).update(found)
        return Cuts(self.planned.number, parts)

    def read_to(self, sources: Sequence[StreamSource]) -> Positions:
        """Returns the positions to which it has read; empty if nothing was planned."""
        cuts = self.cuts
        return {} if cuts is None or self.planned is None else shortened(sources, self.planned.to, cuts)

    @property
    def is_drained(self) -> bool:
        """Whether its sources were made to end."""
        return self.planned is not None and self.planned.is_drained

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to read, to fire or to wait for."""
        if self.planned is None or not self.planned.has_ended:
            return False
        return self.watermark >= MAX and not self.is_pending

    @property
    def figures(self) -> Figures:
        """The figures to show to users."""
        known = any(each.level for each in self.levels)
        rows, lag = (0, {}) if self.planned is None else (self.planned.rows, self.planned.lag)
        return Figures(self.number, rows, self.seconds, self.watermark if known else None, lag)


def _first(
    task: LevelTask, cuts: Accumulator[CutKeeper | list[tuple[int, Parts]]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_first(task, batches, cuts.add)

    return checked(level)


def even_buckets(session: SparkSession, count: int) -> list[int]:
    """Returns numbers that Spark's hash spreads over `count` partitions, one in each. It would spread 0..n unevenly."""
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
