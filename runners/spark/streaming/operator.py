"""The functions that Spark runs for a level: the first one over planned elements, a later one over a bucket's rows."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.streaming.bucket import Bucket
from rmqio.runners.spark.streaming.channels import BATCH, PARTS, REPORT, TICK
from rmqio.runners.spark.streaming.figures import shown
from rmqio.runners.spark.streaming.level import Level, Outputs, Row, RowList, entered
from rmqio.runners.spark.streaming.micro_batch import BatchHeader, MicroBatch
from rmqio.runners.spark.streaming.model import Learned, LevelReport, LevelTask
from rmqio.runners.spark.streaming.state.store import Entries, Store
from rmqio.runners.spark.worker.attempt import running_attempt
from rmqio.runners.spark.worker.rows import threaded


def run_first(
    task: LevelTask, batches: Iterable[pa.RecordBatch], cut: Callable[[Any], None]
) -> Iterator[pa.RecordBatch]:
    """Level 0: the rows of a source's partition, through the stages before the first shuffle.

    `cut` takes what was not read of what was planned (`Cuts`, as pairs of number and parts) before the task has ended.
    """

    def work(rows: Any) -> None:
        with entered(task) as (level, warnings):
            _first(task, level, warnings, rows, batches, cut)

    yield from threaded(work, _names(task))


def _first(
    task: LevelTask,
    level: Level,
    warnings: list[Any],
    rows: Any,
    batches: Iterable[pa.RecordBatch],
    cut: Callable[[Any], None],
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
    if planned is not None and header is not None:  # one task reports it: as in the run before, it is cut short
        for name, parts_had in header.cuts.items():
            learned.setdefault(int(name), Learned({}, {})).cuts.update(parts_had)
    for source, parts in learned.items():
        for bucket in task.buckets:
            outputs.send(PARTS, bucket, b"%d" % source, json.dumps(parts).encode())
    cuts = {source: parts.cuts for source, parts in learned.items() if parts.cuts}
    if cuts and header is not None:
        cut([(header.number, {str(source): found for source, found in cuts.items()})])
    _report(outputs, task.buckets[0], LevelReport(0, -1, level.reports(), planned=planned, cuts=cuts), warnings)


def run_bucket(task: LevelTask, bucket: int, rows: Iterable[Row], entries: Entries) -> Iterator[Row]:
    """A later level: the rows of a bucket, through the stages up to the next shuffle, with the bucket's state."""
    found = RowList()
    try:
        with entered(task) as (level, warnings):
            outputs = level.begin(found)
            report = Bucket(task, level, outputs, Store(entries)).run(bucket, rows)
            _report(outputs, bucket, report, warnings)
    except BaseException as error:  # noqa: BLE001  told in the form that the driver reads
        raise TaskFailure(error, _names(task)) from None
    return iter(found)


def _names(task: LevelTask) -> str:
    return ", ".join(stage.task.name for stage in task.stages)


def _values(
    channels: Iterable[int], given: Mapping[int, list[bytes]], kept: dict[int, list[tuple[bytes | None, bytes]]]
) -> Iterator[bytes]:
    for channel in channels:
        yield from given.get(channel, ())
        for _, value in kept.get(channel, ()):
            yield value


def _report(outputs: Outputs, bucket: int, report: LevelReport, warnings: list[Any]) -> None:
    """The last row: what the driver is told, and beside it, as JSON, what Spark's own progress shows of it."""
    if warnings and report.tasks:
        next(iter(report.tasks.values())).warnings = list(warnings)
    outputs.send(REPORT, bucket, json.dumps(shown(report)).encode(), pickle.dumps(report))
    outputs.flush()
