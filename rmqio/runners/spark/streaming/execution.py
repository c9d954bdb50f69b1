"""Runs a pipeline on Structured Streaming for the runner's result, as `Execution` does for bounded pipelines."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from apache_beam.options.pipeline_options import PipelineOptions
from pyspark.sql import SparkSession

from rmqio.errors import LocalError
from rmqio.runners.checkpoints.lock import Exclusive
from rmqio.runners.checkpoints.options import CheckpointOptions
from rmqio.runners.spark.beam.private import metrics_pb2
from rmqio.runners.spark.log import LOGGER
from rmqio.runners.spark.model import TaskReport
from rmqio.runners.spark.options import StreamOptions
from rmqio.runners.spark.reporting.metrics import consolidate
from rmqio.runners.spark.reporting.reports import TaskKey
from rmqio.runners.spark.sessions.masters import is_local
from rmqio.runners.spark.sessions.session import partitions
from rmqio.runners.spark.streaming.checkpoint import Checkpoint, kept_in, refuse_others, shape_of
from rmqio.runners.spark.streaming.figures import ProgressLog
from rmqio.runners.spark.streaming.levels import Levels, endless_splittables
from rmqio.runners.spark.streaming.planning.planner import TriggerLimits
from rmqio.runners.spark.streaming.query import BatchReport, Query, QuerySettings, even_buckets
from rmqio.runners.spark.translation import PLANNED, WATERMARKS, Plan, Source, Watermarks, translate

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rmqio.runners.spark.beam.private import beam_runner_api_pb2
    from rmqio.runners.spark.bootstrap import Bootstrap
    from rmqio.runners.spark.worker.task import Warned

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
