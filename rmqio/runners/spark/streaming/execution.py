"""Runs a pipeline on Structured Streaming: the chain of levels, the actions after a commit, the runner's execution."""

from __future__ import annotations

import logging
import pickle
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from rmqio.errors import LocalError
from rmqio.runners.checkpoints import CheckpointOptions, Exclusive
from rmqio.runners.spark.beam.private import metrics_pb2
from rmqio.runners.spark.bootstrap import checked, versions_check
from rmqio.runners.spark.errors import LOGGER
from rmqio.runners.spark.model import ROW_DDL, TaskReport
from rmqio.runners.spark.options import StreamOptions
from rmqio.runners.spark.reporting import TaskKey, consolidate, finalize
from rmqio.runners.spark.sessions.session import is_local, partitions
from rmqio.runners.spark.streaming.checkpoint import Checkpoint, CutKeeper, TaskCuts, kept_in, refuse_others, shape_of
from rmqio.runners.spark.streaming.levels import Levels, StreamPlan, endless_splittables
from rmqio.runners.spark.streaming.micro_batch import REPORT, Cuts, Parts, Positions
from rmqio.runners.spark.streaming.model import MAX, OBSERVED, Figures, LevelReport, LevelTask, ProgressLog, observed
from rmqio.runners.spark.streaming.source import (
    NAME,
    Planning,
    QuerySignals,
    StreamSource,
    TriggerLimits,
    data_source,
    shortened,
)
from rmqio.runners.spark.streaming.stateful import LevelProcessor
from rmqio.runners.spark.streaming.worker import run_first
from rmqio.runners.spark.translation import PLANNED, WATERMARKS, Plan, Source, Watermarks, translate

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql.streaming.query import StreamingQuery

    from rmqio.runners.spark.beam.private import beam_runner_api_pb2
    from rmqio.runners.spark.bootstrap import Bootstrap
    from rmqio.runners.spark.worker.task import Warned

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


# Runs a pipeline on Structured Streaming for the runner's result, as `Execution` does for bounded pipelines.

_MOST_WARNINGS: Final = 1_000
_LATE_EVERY_S: Final = 60.0
NODES: Final = {PLANNED: Source, WATERMARKS: Watermarks}


class StreamExecution:
    """Runs one pipeline until its sources have ended or it is stopped. `reports` grow with each micro-batch."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        options: PipelineOptions,
        values: Mapping[str, object],
        bootstrap: Bootstrap,
    ) -> None:
        stream = options.view_as(StreamOptions)
        checkpoint_dir = options.view_as(CheckpointOptions).checkpoint_dir
        _check(stream)
        if stream.drain:
            _check_drain(plan)
        self._temporary = None if checkpoint_dir else tempfile.mkdtemp(prefix="rmqio-checkpoint-")
        if self._temporary:
            LOGGER.warning(
                "no --checkpoint_dir: a restart starts from scratch. This run's checkpoint is %s", self._temporary
            )
        checkpoint = Checkpoint(session, checkpoint_dir or str(self._temporary))
        self._exclusive = Exclusive(checkpoint.folder)
        try:
            self._query = self._planned(session, plan, stream, checkpoint, values, bootstrap)
        except BaseException:
            self._exclusive.close()
            raise
        self._progress_log = ProgressLog() if stream.progress else None
        self._lock = threading.Lock()
        self._metrics: dict[int, list[metrics_pb2.MonitoringInfo]] = {}
        self._warnings: list[Warned] = []
        self._late = 0
        self._told_late_at = float("-inf")
        self.running = ""

    def _planned(
        self,
        session: SparkSession,
        plan: Plan,
        stream: StreamOptions,
        checkpoint: Checkpoint,
        values: Mapping[str, object],
        bootstrap: Bootstrap,
    ) -> Query:
        buckets = _buckets(checkpoint, stream.spark_buckets) or partitions(session)
        session.conf.set("spark.sql.shuffle.partitions", str(buckets))
        run = uuid.uuid4().hex
        levels = Levels(plan, run, even_buckets(session, buckets), values, bootstrap).make()
        may_cut = is_local(session.sparkContext.master)  # no machine is lost without the driver
        limits = TriggerLimits(stream.max_records_per_trigger or None, stream.max_bytes_per_trigger or None, may_cut)
        settings = QuerySettings(run, limits, stream.trigger_interval_ms / 1000, stream.available_now, stream.drain)
        return Query(session, levels, checkpoint, settings, self._take)

    def run(self, progress: Callable[[str], None]) -> None:
        """Blocks until the query has ended."""
        try:
            self._query.run()
        finally:
            self._exclusive.close()
            self._tell_late()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)  # kept after a failure, for debugging

    def stop(self) -> None:
        """Ends the planning. The running micro-batch is finished and committed."""
        self._query.stop()

    def stop_at_once(self) -> None:
        """Abandons the running micro-batch. The next start runs it again."""
        self._query.stop_at_once()

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; None before it runs."""
        return self._query.running

    @property
    def reports(self) -> dict[TaskKey, TaskReport]:
        """Everything that committed micro-batches have reported, by stage."""
        with self._lock:
            found = {
                (stage, 0, 0): TaskReport(0, metrics=[info.SerializeToString() for info in infos])
                for stage, infos in self._metrics.items()
            }
            if self._warnings:
                found[-1, 0, 0] = TaskReport(0, warnings=self._warnings)
            return found

    def _take(self, batch: BatchReport) -> None:
        if self._progress_log is not None and self._progress_log.is_worth(batch.figures, time.monotonic()):
            print(batch.figures.line(time.time()), file=sys.stderr, flush=True)
        with self._lock:
            for level in batch.levels:
                for stage, report in level.tasks.items():
                    infos = [metrics_pb2.MonitoringInfo.FromString(info) for info in report.metrics]
                    self._metrics[stage] = consolidate([*self._metrics.get(stage, []), *infos])
                    if len(self._warnings) < _MOST_WARNINGS:
                        self._warnings += [each for each in report.warnings if each not in self._warnings]
        self._late += sum(level.late for level in batch.levels)
        if time.monotonic() - self._told_late_at > _LATE_EVERY_S:
            self._tell_late()

    def _tell_late(self) -> None:
        if self._late:
            self._told_late_at = time.monotonic()
            LOGGER.warning("%d elements arrived too late for their windows and were dropped", self._late)
            self._late = 0


def _check(stream: StreamOptions) -> None:
    for name, least in (
        ("trigger_interval_ms", 0),
        ("max_records_per_trigger", 0),
        ("max_bytes_per_trigger", 0),
        ("spark_buckets", 1),
    ):
        value = getattr(stream, name)
        if value is not None and value < least:
            raise LocalError(f"--{name}={value}: it must be at least {least}")


def _buckets(checkpoint: Checkpoint, asked: int | None) -> int | None:
    """Returns the number of buckets from the checkpoint or the option; None if neither has it.

    Raises `LocalError` if the two differ.
    """
    kept = checkpoint.buckets()
    if kept and asked and kept != asked:
        raise LocalError(
            f"--spark_buckets={asked}: the state in {checkpoint.folder} is divided into {kept} buckets, and cannot be "
            "divided again. Omit --spark_buckets, or start from the beginning with another --checkpoint_dir"
        )
    return kept or asked


def refuse_local(folder: Path | None, plan: Plan) -> None:
    """Raises `LocalError`, before Spark starts, if a folder of this machine holds the state of another pipeline."""
    if folder is not None and (kept := kept_in(folder)) is not None:
        found, is_drained = kept
        made = Levels(plan, "", (0,), {}, None).make()
        refuse_others(f"file:{folder}", found, shape_of(made.sources, made.levels), is_drained=is_drained)


def _check_drain(plan: Plan) -> None:
    for name in endless_splittables(plan):
        raise NotImplementedError(
            f"{name} is a splittable DoFn without an end of its own. The runner does not plan its reads, so --drain "
            "cannot end it. Run the pipeline without --drain"
        )


def stream_plan(proto: beam_runner_api_pb2.Pipeline, is_drain: bool) -> Plan:
    """Returns the plan of a pipeline for streaming."""
    return translate(proto, is_drain, NODES)
