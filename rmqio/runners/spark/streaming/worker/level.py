"""Runs the stages of a level in a worker's process, which keeps them between micro-batches, and routes their rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from rmqio.runners.spark.beam.private import create_InputStream
from rmqio.runners.spark.bootstrap import begin
from rmqio.runners.spark.model import TaskReport
from rmqio.runners.spark.streaming.model import MIN, Learned, LevelTask
from rmqio.runners.spark.streaming.state.merging import Merging, merging_of
from rmqio.runners.spark.streaming.state.side_state import Held
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.rows import RowWriter
from rmqio.runners.spark.worker.spool import Spool
from rmqio.runners.spark.worker.task import prepared, recorded

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.worker.rows import Batches
    from rmqio.runners.spark.worker.task import Warned

Row = tuple[int, int, bytes | None, bytes]  # channel, bucket, key, value
KeyValue = tuple[bytes | None, bytes]


class Outputs(RowWriter):
    """Writes the rows of a level's stages. Keeps the rows that a stage here reads, and sends the others to Spark."""

    def __init__(self, task: LevelTask, on: Batches) -> None:
        super().__init__(on)
        self._task = task
        self.kept: dict[int, list[KeyValue]] = {}

    def write(self, channel: int, bucket: int, key: bytes | None, value: bytes) -> None:
        if channel in self._task.spread:
            for each in self._task.buckets:
                super().write(channel, each, key, value)
        elif channel in self._task.local:
            self.kept.setdefault(channel, []).append((key, value))
        else:
            super().write(channel, self._task.buckets[bucket], key, value)

    def send(self, channel: int, bucket: int, key: bytes | None, value: bytes) -> None:
        """Sends a row of the runner's own, or a row that only passes through this level."""
        super().write(channel, bucket, key, value)


class RowList:
    """Collects the rows of a level for Spark's stateful operator, which takes them one by one."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def put(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def __iter__(self) -> Iterator[Row]:
        for batch in self.batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class Level:
    """The stages of a level in this process. Kept between micro-batches, together with the DoFn instances."""

    def __init__(self, task: LevelTask) -> None:
        self._task = task
        self._bundles: dict[int, Bundles] = {}
        self.sides: dict[int, dict[str, Held]] = {}
        """The side inputs of each stage, by name, as its bundles find them."""
        self._versions: dict[int, tuple[int, ...]] = {}
        self._merging: dict[int, Merging | None] = {}
        self._outputs = Outputs(task, cast("Batches", None))  # `begin` sets the receiver
        self.spool = Spool()

    def at(self, index: int) -> Bundles:
        """Returns the `Bundles` of a stage."""
        found = self._bundles.get(index)
        if found is None:
            stage = self._task.stages[index].task
            self.sides[index] = {spec.name: Held() for spec in stage.side_inputs}
            found = self._make(index)
        return found

    def _make(self, index: int) -> Bundles:
        stage, report = self._task.stages[index].task, TaskReport(os.getpid())
        # Finalizers run after the micro-batch is committed; the residuals of their bundle are part of the same one
        found = Bundles(stage, self.sides[index], self._outputs, self.spool, report, waits_for_finalizers=False)
        self._bundles[index] = found
        return found

    def renew(self, index: int, versions: tuple[int, ...]) -> None:
        """Creates a stage again if its side inputs have changed: Beam requests those in the global window only once."""
        if self._versions.setdefault(index, versions) != versions:
            self._versions[index] = versions
            old = self._bundles.pop(index)
            old.close(failed=False)
            self._make(index)

    def begin(self, rows: Batches) -> Outputs:
        """Begins a micro-batch. Its rows go to `rows`."""
        self._outputs.reset(rows)
        self._outputs.kept.clear()
        return self._outputs

    def run_stage(self, index: int, chunks: Iterator[bytes]) -> None:
        """Runs one bundle of a stage, if there is any input for it."""
        first = next(chunks, None)
        if first is None:
            return
        self.at(index).run(_with_first(first, chunks))
        self.spool.clear()

    def windowing(self, index: int) -> Windowing:
        """Returns the windowing of the GroupByKey that a stage begins with."""
        group = self._task.stages[index].task.input.group
        assert group is not None
        return self.at(index).context.windowing_strategies.get_by_id(group.windowing_id)

    def merging(self, index: int) -> Merging | None:
        """Returns the object that merges accumulators; None if a stage's GroupByKey does not group accumulators."""
        group = self._task.stages[index].task.input.group
        assert group is not None
        if index not in self._merging:
            self._merging[index] = merging_of(self.at(index), group.kv_coder_id)
        return self._merging[index]

    def count(self, index: int, runs: Iterable[bytes]) -> int:
        """Returns the number of encoded elements of a stage's input."""
        impl = self.at(index).input_coder.get_impl()
        return sum(1 for run in runs for _ in impl.decode_all(run))

    def learned(self) -> dict[int, Learned]:
        """Returns what reads have learned about their parts, by source."""
        found: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
        for channel, (source, coder_id) in self._task.learned.items():
            kept = self._outputs.kept.pop(channel, [])
            if kept:
                impl = self.at(self._task.made[channel]).context.coders.get_by_id(coder_id).get_impl()
            for _, chunk in kept:
                stream = create_InputStream(chunk)
                while stream.size() > 0:
                    part, micros, cut_at = impl.decode_from_stream(stream, True).value
                    watermarks, cuts = found.setdefault(source, ({}, {}))
                    watermarks[part] = max(micros, watermarks.get(part, MIN))
                    if cut_at >= 0:
                        cuts[part] = cut_at
        return {source: Learned(watermarks, cuts) for source, (watermarks, cuts) in found.items()}

    def reports(self) -> dict[int, TaskReport]:
        """Returns the reports of the stages since the last call, by stage id."""
        return {self._task.stages[at].task.stage_id: each.take_report() for at, each in self._bundles.items()}

    def close(self) -> None:
        """Tears down the stages after a failure."""
        for bundles in self._bundles.values():
            bundles.close(failed=True)
        self.spool.close()


_levels: dict[tuple[str, int], Level] = {}


class entered:
    """Provides this process's level for a task, and a list of the warnings in it. Drops the level if the task fails."""

    def __init__(self, task: LevelTask) -> None:
        self._key = (task.run, task.number)
        self._task = task
        self._recorded = recorded()

    def __enter__(self) -> tuple[Level, list[Warned]]:
        warnings = self._recorded.__enter__()
        if self._task.bootstrap is not None:
            begin(self._task.bootstrap)
        prepared(self._task.stages[0].task.options if self._task.stages else {})
        level = _levels.pop(self._key, None)
        if level is None:
            for other in [key for key in _levels if key[0] != self._task.run]:
                _levels.pop(other).close()  # belongs to a query that this process served before
            level = Level(self._task)
        self._level = level
        return level, warnings

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._recorded.__exit__(kind, *error)
        if kind is None:
            _levels[self._key] = self._level
        else:
            self._level.close()


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
