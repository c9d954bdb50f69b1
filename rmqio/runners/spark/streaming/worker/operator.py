"""The functions that Spark runs for a level: level 0 over planned elements, later levels over the rows of a bucket."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.streaming.channels import BATCH, PARTS, REPORT, TICK
from rmqio.runners.spark.streaming.figures import shown
from rmqio.runners.spark.streaming.micro_batch import BatchHeader, MicroBatch, Parts
from rmqio.runners.spark.streaming.model import Learned, LevelReport, LevelTask
from rmqio.runners.spark.streaming.state.store import Entries, Store
from rmqio.runners.spark.streaming.worker.bucket import Bucket
from rmqio.runners.spark.streaming.worker.level import KeyValue, Level, Outputs, Row, RowList, entered
from rmqio.runners.spark.worker.attempt import running_attempt
from rmqio.runners.spark.worker.rows import RowQueue, threaded

if TYPE_CHECKING:
    from rmqio.runners.spark.worker.task import Warned


def run_first(
    task: LevelTask, batches: Iterable[pa.RecordBatch], cut: Callable[[list[tuple[int, Parts]]], None]
) -> Iterator[pa.RecordBatch]:
    """Runs level 0: the stages before the first shuffle, over the rows of a source's partition.

    Before the task ends, `cut` receives the planned parts that were not read (`Cuts`, as pairs of number and parts).
    """

    def work(rows: RowQueue) -> None:
        with entered(task) as (level, warnings):
            _first(task, level, warnings, rows, batches, cut)

    yield from threaded(work, _names(task))


def _first(
    task: LevelTask,
    level: Level,
    warnings: list[Warned],
    rows: RowQueue,
    batches: Iterable[pa.RecordBatch],
    cut: Callable[[list[tuple[int, Parts]]], None],
) -> None:
    outputs = level.begin(rows)
    planned: MicroBatch | None = None
    header: BatchHeader | None = None
    given: dict[int, list[bytes]] = {}
    for batch in batches:
        columns = (batch.column("channel").to_pylist(), batch.column("value").to_pylist())
        for channel, value in zip(*columns, strict=True):
            if channel == BATCH:
                header = BatchHeader.decode(value)
            elif channel == TICK:
                planned = MicroBatch.decode(value)
                for bucket in task.buckets:
                    outputs.send(TICK, bucket, None, value)
            else:
                given.setdefault(channel, []).append(value)
    is_planned_before = header is not None and header.run != task.run
    with running_attempt(is_planned_before=is_planned_before, commits_together=True):
        for index, stage in enumerate(task.stages):
            level.run_stage(index, _values(stage.channels, given, outputs.kept))
    learned = level.learned()
    if planned is not None and header is not None:  # the task that reports the earlier cuts: the batch is cut again
        for name, parts_had in header.cuts.items():
            now = learned.get(int(name), Learned({}, {}))
            learned[int(name)] = now._replace(cuts={**now.cuts, **parts_had})
    for source, of_source in learned.items():
        for bucket in task.buckets:
            outputs.send(PARTS, bucket, b"%d" % source, of_source.encode())
    cuts = {source: of_source.cuts for source, of_source in learned.items() if of_source.cuts}
    if cuts and header is not None:
        cut([(header.number, {str(source): found for source, found in cuts.items()})])
    _report(outputs, task.buckets[0], LevelReport(0, -1, level.reports(), planned=planned, cuts=cuts), warnings)


def run_bucket(task: LevelTask, bucket: int, rows: Iterable[Row], entries: Entries) -> Iterator[Row]:
    """Runs a later level: the stages up to the next shuffle, over the rows of a bucket, with the bucket's state."""
    found = RowList()
    try:
        with entered(task) as (level, warnings):
            outputs = level.begin(found)
            report = Bucket(task, level, outputs, Store(entries)).run(bucket, rows)
            _report(outputs, bucket, report, warnings)
    except BaseException as error:  # noqa: BLE001  raised in the form that the driver reads
        raise TaskFailure(error, _names(task)) from None
    return iter(found)


def _names(task: LevelTask) -> str:
    return ", ".join(stage.task.name for stage in task.stages)


def _values(
    channels: Iterable[int], given: Mapping[int, list[bytes]], kept: Mapping[int, list[KeyValue]]
) -> Iterator[bytes]:
    for channel in channels:
        yield from given.get(channel, ())
        for _, value in kept.get(channel, ()):
            yield value


def _report(outputs: Outputs, bucket: int, report: LevelReport, warnings: list[Warned]) -> None:
    """Sends the last row: the report for the driver, and as its key the JSON that Spark's own progress shows of it."""
    if warnings and report.tasks:
        next(iter(report.tasks.values())).warnings = list(warnings)
    outputs.send(REPORT, bucket, json.dumps(shown(report)).encode(), pickle.dumps(report))
    outputs.flush()
