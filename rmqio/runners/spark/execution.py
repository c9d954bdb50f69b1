"""Runs a plan on Spark. Stages become lazy DataFrames. Jobs run where Beam needs a result before it can continue."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession

from rmqio.repeats import Ending
from rmqio.runners.spark.bootstrap import checked
from rmqio.runners.spark.model import RESIDUAL_CHANNEL, ROW_DDL, Form, Input, Output, StageTask, TaskReport
from rmqio.runners.spark.reporting import ReportsParam, TaskKey, finalize
from rmqio.runners.spark.translation import Plan, Stage, Writes, stage_input, stage_task
from rmqio.runners.spark.worker.state import SideInputData
from rmqio.runners.spark.worker.task import run_stage
from rmqio.runners.spark.worker.writing import payload

if TYPE_CHECKING:
    from pyspark import Accumulator, Broadcast

    from rmqio.runners.spark.bootstrap import Bootstrap

_ORDER: Final = {
    Form.PLAIN: ("value",),
    Form.DEALT: ("value",),
    Form.GROUPED: ("key", "value"),
    Form.KEYED: ("key", "value"),
}


class Execution:
    """Runs one plan. `run` returns when the whole plan is done. `reports` grow as stages end."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        buckets: int,
        options: Mapping[str, object],
        side_input_limit: int,
        bootstrap: Bootstrap | None = None,
        reads_among: Callable[[Iterable[Any]], Iterable[str]] = lambda leaves: (),
    ) -> None:
        """Args: `reads_among`: the ids of the reads whose work with finalizers is among some leaves."""
        self._reads_among = reads_among
        self._session = session
        self._context = session.sparkContext
        self._plan = plan
        self._buckets = buckets
        self._options = options
        self._side_input_limit = side_input_limit
        self._bootstrap = bootstrap
        self._progress: Callable[[str], None] = _silent
        self._accumulator = self._context.accumulator({}, ReportsParam())
        self._frames: dict[int, DataFrame] = {}  # by id() of the stage
        self._reads: dict[int, tuple[Input, list[tuple[Stage, Output]]]] = {}
        self._side_reads: dict[str, list[tuple[Stage, Output]]] = {}
        self._broadcasts: dict[str, Broadcast[SideInputData]] = {}
        self._held: list[DataFrame] = []  # kept until the end
        self._settled: dict[tuple[int, int], dict[TaskKey, TaskReport]] = {}  # by stage and turn
        self._pending: list[str] = []  # names of stages that the next job runs
        self.running = ""
        """The transforms of the latest job."""

    @property
    def reports(self) -> dict[TaskKey, TaskReport]:
        """The reports of the finished tasks, one for each partition of a stage.

        If an executor is lost, its kept rows are computed again inside another job, where partitions have other
        numbers. A stage whose rows are kept is therefore done: its later reports are not counted.
        """
        found = {key: report for key, report in self._accumulator.value.items() if key[:2] not in self._settled}
        for settled in list(self._settled.values()):
            found |= settled
        return found

    def run(self, progress: Callable[[str], None]) -> None:
        """Runs the whole plan and returns when it is done. Calls `progress` with the transforms of each job."""
        self._progress = progress
        stages = [node for node in self._plan.nodes if isinstance(node, Stage)]
        self._connect(stages)
        followed = [leaf for stage in stages if stage.readers for leaf in stage.transforms]
        with Ending() as ending:
            ending.awaited_by(self._reads_among(followed))
            self._run(stages)
            ending.come()

    def _run(self, stages: Sequence[Stage]) -> None:
        leaves: list[DataFrame] = []
        try:
            for number, stage in enumerate(stages):
                frame = self._stage(stage, number)
                self._frames[id(stage)] = frame
                if stage.readers > 1 and not stage.finalizes:
                    self._hold(frame, (number, 0), self._side_of(stage))
                if stage.readers == 0 and not stage.finalizes:
                    leaves.append(frame)
            if leaves:
                self._compute(_union(leaves))
        finally:
            for frame in self._held:
                frame.unpersist()
            for broadcast in self._broadcasts.values():
                broadcast.destroy()

    def _connect(self, stages: Iterable[Stage]) -> None:
        """Determines what each stage writes from what its readers read."""
        writes = Writes(self._plan, self._buckets)
        for stage in stages:
            read, pcollection, form = stage_input(self._plan, stage)
            sources = [] if pcollection is None else writes.need(pcollection, form)
            self._reads[id(stage)] = (read, sources)
            for _, _, side, _ in stage.side_inputs:
                if side not in self._side_reads:
                    self._side_reads[side] = writes.need(side, Form.PLAIN)

    def _stage(self, stage: Stage, number: int) -> DataFrame:
        read, sources = self._reads[id(stage)]
        side_names = {(transform_id, tag): side for transform_id, tag, side, _ in stage.side_inputs}
        for side in side_names.values():
            self._broadcast(side, stage.name)
        task = stage_task(self._plan, stage, number, read, payload, side_names, self._options)
        task = dataclasses.replace(task, bootstrap=self._bootstrap)
        broadcasts = {side: self._broadcasts[side] for side in side_names.values()}
        source = self._session.range(1, numPartitions=1) if read.impulse else self._rows(sources, read.form)
        if stage.finalizes:
            return self._rounds(task, broadcasts, source)
        return self._mapped(task, broadcasts, source, 0)

    def _mapped(
        self, task: StageTask, broadcasts: Mapping[str, Broadcast[SideInputData]], source: DataFrame, turn: int
    ) -> DataFrame:
        self._pending.append(task.name)
        return source.mapInArrow(_function(task, broadcasts, self._accumulator, turn), ROW_DDL)

    def _rounds(
        self, task: StageTask, broadcasts: Mapping[str, Broadcast[SideInputData]], source: DataFrame
    ) -> DataFrame:
        """Runs a stage with bundle finalizers: keeps its output, runs the finalizers, then processes its residuals."""
        rounds: list[DataFrame] = []
        turn = 0
        while True:
            frame = self._mapped(task, broadcasts, source, turn)
            self._hold(frame, (task.stage_id, turn))
            rounds.append(frame)
            reports = [report for key, report in self.reports.items() if key[:2] == (task.stage_id, turn)]
            for report in reports:
                finalize(report)
            residuals = [report for report in reports if report.residuals]
            if not residuals:
                break
            delay_s = min(report.delay_s for report in residuals)
            if delay_s > 0:
                time.sleep(delay_s)
            source = frame.where(f"channel = {RESIDUAL_CHANNEL}").repartition(self._buckets)
            turn += 1
        return _union(rounds)

    def _rows(self, sources: list[tuple[Stage, Output]], form: Form) -> DataFrame:
        """Returns the rows of a PCollection, in the partitions and in the order that its reader needs."""
        frames = [self._written(*source) for source in sources if source[1].form is Form.PLAIN]
        shuffled = [self._written(*source) for source in sources if source[1].form is not Form.PLAIN]
        if shuffled:
            frame = _union(shuffled).repartitionById(self._buckets, "bucket")
            # A shuffle returns rows in any order. They are sorted by all of their bytes, so that a task that Spark runs
            # again reads and writes the same rows: some of its first output may already have been read.
            frames.append(frame.sortWithinPartitions(*_ORDER[form]))
        return _union(frames) if frames else self._session.createDataFrame([], ROW_DDL)

    def _written(self, stage: Stage, output: Output) -> DataFrame:
        frame = self._frames[id(stage)]
        return frame.where(f"channel = {output.channel}") if len(stage.writes) > 1 or stage.finalizes else frame

    def _broadcast(self, side: str, name: str) -> None:
        """Computes a side input and broadcasts it to the executors. `name` is the name of its reader."""
        if side in self._broadcasts:
            return
        frames = [self._written(*source).select("value") for source in self._side_reads[side]]
        self._describe(f"side input of {name}")
        values = _union(frames).toArrow().column("value") if frames else pa.chunked_array([], pa.binary())
        size = values.nbytes
        if size > self._side_input_limit:
            raise ValueError(
                f"{name}: a side input has {size / 2**20:.0f} MiB; --spark_side_input_limit_mb allows "
                f"{self._side_input_limit >> 20} MiB, because every worker gets a copy. Join with CoGroupByKey "
                "instead, or raise the limit"
            )
        self._broadcasts[side] = self._context.broadcast(SideInputData(values.to_pylist()))

    def _side_of(self, stage: Stage) -> tuple[str, str] | None:
        """Returns a side input that only this stage writes, and the name of its reader."""
        for reader in self._plan.nodes:
            for _, _, side, _ in reader.side_inputs if isinstance(reader, Stage) else ():
                if [id(writer) for writer, _ in self._side_reads[side]] == [id(stage)]:
                    return side, reader.name
        return None

    def _hold(self, frame: DataFrame, turn: tuple[int, int], side: tuple[str, str] | None = None) -> None:
        """Computes the rows of one turn of a stage, once for all readers.

        Computes them immediately: otherwise several readers in one job could each compute them, on different executors.
        A side input needs its own job anyway, so that job computes the rows.
        """
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._held.append(frame)
        if side is None:
            self._compute(frame)
        else:
            self._broadcast(*side)
        self._settled[turn] = {key: report for key, report in self._accumulator.value.items() if key[:2] == turn}

    def _compute(self, frame: DataFrame) -> None:
        self._describe()
        frame.write.format("noop").mode("overwrite").save()

    def _describe(self, purpose: str = "") -> None:
        """Names the next job after the stages that it runs, in Spark's UI and in the progress line."""
        name = " > ".join(dict.fromkeys(self._pending))
        self._pending.clear()
        name = f"{name} ({purpose})" if name and purpose else name or purpose
        self.running = name
        self._progress(name)
        self._context.setJobDescription(name)


def _function(
    task: StageTask,
    broadcasts: Mapping[str, Broadcast[SideInputData]],
    accumulator: Accumulator[dict[TaskKey, TaskReport]],
    turn: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(
        broadcasts: Mapping[str, Broadcast[SideInputData]], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        key = (task.stage_id, turn, context.partitionId() if context else 0)
        return run_stage(task, broadcasts, lambda report: accumulator.add({key: report}), batches)

    stage.__name__ = task.name  # Spark's UI shows this as the name of the plan's node
    return checked(stage, broadcasts)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return functools.reduce(DataFrame.union, frames)


def _silent(what: str) -> None:
    pass
