"""Runs a pipeline through the Spark runner's translation and worker code in this process, without Spark.

Shuffles are sorted lists. This is for tests of what a worker does. What Spark does is tested on Spark.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.internal import pickler
from apache_beam.transforms import environments

from rmqio.runners.spark.beam.private import metrics_pb2
from rmqio.runners.spark.model import RESIDUAL_CHANNEL, Form, Output, TaskReport
from rmqio.runners.spark.reporting import consolidate
from rmqio.runners.spark.translation import Plan, Stage, Writes, stage_input, stage_task, translate
from rmqio.runners.spark.worker.rows import ROW_SCHEMA
from rmqio.runners.spark.worker.state import SideInputData
from rmqio.runners.spark.worker.task import run_stage
from rmqio.runners.spark.worker.writing import payload

Row = tuple[int, int, bytes | None, bytes]


class _Value:
    def __init__(self, value: Any) -> None:
        self.value = value


def plan_of(pipeline: beam.Pipeline, is_drain: bool = False) -> Plan:
    """Returns the plan of a pipeline that has been built but not run."""
    environment = environments.EmbeddedPythonEnvironment(capabilities=environments.python_sdk_capabilities())
    proto = pipeline.to_runner_api(default_environment=environment)
    return translate(copy.deepcopy(proto), is_drain)


def batches(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Yields rows as Spark would pass them, a few at a time."""
    for at in range(0, len(rows), 7):
        columns = zip(*rows[at : at + 7], strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, ROW_SCHEMA, strict=True)], schema=ROW_SCHEMA
        )


class LocalRun:
    """Runs a plan. `reports` are those of all tasks, and `rows` are what each stage wrote."""

    def __init__(self, pipeline: beam.Pipeline, buckets: int = 3) -> None:
        self.plan = plan_of(pipeline)
        self.buckets = buckets
        self.reports: list[TaskReport] = []
        self.rows: dict[int, list[Row]] = {}
        stages = [node for node in self.plan.nodes if isinstance(node, Stage)]
        writes = Writes(self.plan, buckets)
        reads: dict[int, Any] = {}
        sides: dict[str, list[tuple[Stage, Output]]] = {}
        for stage in stages:
            read, pcollection, form = stage_input(self.plan, stage)
            reads[id(stage)] = (read, [] if pcollection is None else writes.need(pcollection, form))
            for _, _, side, _ in stage.side_inputs:
                if side not in sides:
                    sides[side] = list(writes.need(side, Form.PLAIN))
        for number, stage in enumerate(stages):
            read, sources = reads[id(stage)]
            names = {(transform, tag): side for transform, tag, side, _ in stage.side_inputs}
            broadcasts = {
                side: _Value(SideInputData([row[3] for row in self._of(sides[side])])) for side in names.values()
            }
            task = pickler.loads(pickler.dumps(stage_task(self.plan, stage, number, read, payload, names, {})))
            written: list[Row] = []
            parts: list[list[Row]] = (
                [[(0, 0, None, b"impulse")]] if read.impulse else self._partitions(sources, read.form)
            )
            while parts:
                residuals: list[Row] = []
                reports: list[TaskReport] = []
                for part in parts:
                    for batch in run_stage(task, broadcasts, reports.append, batches(part)):
                        for row in zip(*batch.to_pydict().values(), strict=True):
                            (residuals if row[0] == RESIDUAL_CHANNEL else written).append(row)
                for report in reports:
                    for callback in report.finalizers:
                        pickler.loads(callback)()
                self.reports += reports
                parts = [residuals] if residuals else []
            self.rows[id(stage)] = written

    def _of(self, sources: list[tuple[Stage, Output]]) -> list[Row]:
        return [row for stage, output in sources for row in self.rows[id(stage)] if row[0] == output.channel]

    def _partitions(self, sources: list[tuple[Stage, Output]], form: Form) -> list[list[Row]]:
        rows = self._of(sources)
        parts: list[list[Row]] = [[] for _ in range(self.buckets)]
        for row in rows:
            parts[row[1]].append(row)
        if form in (Form.GROUPED, Form.KEYED):
            for part in parts:
                part.sort(key=lambda row: (row[2] or b"", row[3]))
        return parts


def collect(pipeline: beam.Pipeline, pcollection: Any) -> list[Any]:
    """Runs the plan. Returns a PCollection as (value, timestamp micros, window), sorted by their text."""
    _ = pcollection | "collect" >> beam.ParDo(_Collect())
    _FOUND.clear()
    LocalRun(pipeline)
    return sorted(_FOUND, key=repr)


def collect_in_process(pipeline: beam.Pipeline, pcollection: Any) -> list[Any]:
    """Returns the same from Beam's in-process runner."""
    _ = pcollection | "collect" >> beam.ParDo(_Collect())
    _FOUND.clear()
    pipeline.run().wait_until_finish()
    return sorted(_FOUND, key=repr)


_FOUND: list[Any] = []


class _Collect(beam.DoFn):
    def process(
        self, element: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> None:
        from tests.helpers.spark import spark_plan  # the module itself, not a pickled copy of it

        spark_plan._FOUND.append((element, timestamp.micros, str(window)))


def outcome(build: Callable[[Any], Any], elements: int) -> tuple[list[Any], dict[Any, Any]]:
    """Returns the output and Beam's counts: the elements of each PCollection, and the user counters of each step."""
    pipeline = beam.Pipeline()
    found = build(pipeline | beam.Impulse() | beam.FlatMap(lambda _: range(elements)))
    _ = found | "collect" >> beam.ParDo(_Collect())
    _FOUND.clear()
    run = LocalRun(pipeline)
    infos = [metrics_pb2.MonitoringInfo.FromString(each) for report in run.reports for each in report.metrics]
    counted = {
        (info.urn, *sorted(info.labels.items())): info.payload
        for info in consolidate(infos)
        if info.urn in ("beam:metric:element_count:v1", "beam:metric:user:sum_int64:v1")
    }
    return sorted(_FOUND, key=repr), counted
