"""A level at work: the stages between two shuffles, over the rows that a micro-batch has for a bucket.

First the data, then the watermark: what comes is late by where the watermark was before the micro-batch, and only when
all of it has been taken do windows fire at where it is now.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from apache_beam.coders.coder_impl import create_InputStream

from rmqio.runners.spark.bootstrap import begin
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.model import Form, Grouping, TaskReport
from rmqio.runners.spark.streaming.channels import PARTS, REPORT, TICK
from rmqio.runners.spark.streaming.model import MAX, MIN, LevelReport, LevelTask
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.grouping import chunks
from rmqio.runners.spark.worker.keyed import KeyedState
from rmqio.runners.spark.worker.keys import NEVER
from rmqio.runners.spark.worker.packing import unpack
from rmqio.runners.spark.worker.residuals import Residuals
from rmqio.runners.spark.worker.rows import Abandoned, RowQueue, RowWriter
from rmqio.runners.spark.worker.side_state import Held, SideState
from rmqio.runners.spark.worker.spool import Spool
from rmqio.runners.spark.worker.store import Entries, Store
from rmqio.runners.spark.worker.task import prepared, recorded
from rmqio.runners.spark.worker.triggered import Triggered
from rmqio.runners.spark.worker.windows import Windows

Row = tuple[int, int, bytes | None, bytes]
_ROOT: Final = b"root"
_TICK: Final = struct.Struct("<iq")
_CLOCK: Final = TICK  # in the place of a channel: processing time


class Outputs(RowWriter):
    """What the stages of a level write: kept for those that read it here, the rest goes on to Spark."""

    def __init__(self, task: LevelTask, on: Any) -> None:
        super().__init__(on)
        self._task = task
        self.kept: dict[int, list[tuple[bytes | None, bytes]]] = {}

    def write(self, channel: int, bucket: int, key: bytes | None, value: bytes) -> None:
        if channel in self._task.spread:
            for each in self._task.buckets:
                super().write(channel, each, key, value)
        elif channel in self._task.local:
            self.kept.setdefault(channel, []).append((key, value))
        else:
            super().write(channel, self._task.buckets[bucket], key, value)

    def send(self, channel: int, bucket: int, key: bytes | None, value: bytes) -> None:
        """A row of the runner's own, or one that only passes."""
        super().write(channel, bucket, key, value)


class RowList:
    """Takes rows where the level's reader is Spark's stateful operator, which takes rows one by one."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def put(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def __iter__(self) -> Iterator[Row]:
        for batch in self.batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class Level:
    """The stages of a level in this process. Kept between micro-batches, with the DoFns' instances in it."""

    def __init__(self, task: LevelTask) -> None:
        self._task = task
        self._bundles: dict[int, Bundles] = {}
        self.sides: dict[int, dict[str, Held]] = {}
        """By stage, where its bundles find their side inputs."""
        self._outputs = Outputs(task, None)
        self.spool = Spool()

    def at(self, index: int) -> Bundles:
        """What runs a stage."""
        found = self._bundles.get(index)
        if found is None:
            stage = self._task.stages[index].task
            report = TaskReport(os.getpid())
            # Finalizers run when the micro-batch is committed; what their bundle defers is part of the same one
            self.sides[index] = {spec.name: Held() for spec in stage.side_inputs}
            found = Bundles(stage, self.sides[index], self._outputs, self.spool, report, waits_for_finalizers=False)
            self._bundles[index] = found
        return found

    def begin(self, rows: Any) -> Outputs:
        """A micro-batch begins, whose rows go there."""
        self._outputs.reset(rows)
        self._outputs.kept.clear()
        return self._outputs

    def run_stage(self, index: int, chunks: Iterator[bytes]) -> None:
        """One bundle of a stage, if there is anything for it."""
        first = next(chunks, None)
        if first is None:
            return
        self.at(index).run(_with_first(first, chunks))
        self.spool.clear()

    def windowing(self, index: int) -> Any:
        """Of the GroupByKey that a stage begins with."""
        group = self._task.stages[index].task.input.group
        assert group is not None
        return self.at(index).context.windowing_strategies.get_by_id(group.windowing_id)

    def count(self, index: int, runs: Iterable[bytes]) -> int:
        """How many encoded elements of a stage's input there are."""
        impl = self.at(index).input_coder.get_impl()
        return sum(1 for run in runs for _ in impl.decode_all(run))

    def learned(self) -> dict[int, dict[str, int]]:
        """What reads have learned of the watermarks of their parts, by source."""
        found: dict[int, dict[str, int]] = {}
        for channel, (source, coder_id) in self._task.learned.items():
            kept = self._outputs.kept.pop(channel, [])
            if kept:
                impl = self.at(self._task.made[channel]).context.coders.get_by_id(coder_id).get_impl()
            for _, chunk in kept:
                stream = create_InputStream(chunk)
                while stream.size() > 0:
                    part, micros = impl.decode_from_stream(stream, True).value
                    parts = found.setdefault(source, {})
                    parts[part] = max(micros, parts.get(part, MIN))
        return found

    def reports(self) -> dict[int, TaskReport]:
        """What the stages have to report since the last call."""
        return {self._task.stages[at].task.stage_id: each.take_report() for at, each in self._bundles.items()}

    def close(self) -> None:
        """Tears down, after a failure."""
        for bundles in self._bundles.values():
            bundles.close(failed=True)
        self.spool.close()


_levels: dict[tuple[str, int], Level] = {}


class _entered:
    """The level of this process for a task; not kept if the task fails."""

    def __init__(self, task: LevelTask) -> None:
        self._key = (task.run, task.number)
        self._task = task
        self._recorded = recorded()

    def __enter__(self) -> tuple[Level, list[Any]]:
        warnings = self._recorded.__enter__()
        if self._task.bootstrap is not None:
            begin(self._task.bootstrap)
        prepared(self._task.stages[0].task.options if self._task.stages else {})
        level = _levels.pop(self._key, None)
        if level is None:
            for other in [key for key in _levels if key[0] != self._task.run]:
                _levels.pop(other).close()  # of a query that this process has served before
            level = Level(self._task)
        self._level = level
        return level, warnings

    def __exit__(self, kind: Any, *error: object) -> None:
        self._recorded.__exit__(kind, *error)
        if kind is None:
            _levels[self._key] = self._level
        else:
            self._level.close()


def run_first(task: LevelTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Level 0: the rows of a source's partition, through the stages before the first shuffle."""
    rows = RowQueue()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            with _entered(task) as (level, warnings):
                _first(task, level, warnings, rows, batches)
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001  raised again in the task's own thread
            failure.append(error)
        finally:
            rows.end()

    thread = threading.Thread(target=work, name="level 0", daemon=True)
    thread.start()
    try:
        yield from rows
    finally:
        rows.abandon()
        thread.join()
    if failure:
        raise TaskFailure(failure[0]) from None


def _first(task: LevelTask, level: Level, warnings: list[Any], rows: Any, batches: Iterable[pa.RecordBatch]) -> None:
    outputs = level.begin(rows)
    planned = None
    given: dict[int, list[bytes]] = {}
    for batch in batches:
        columns = (batch.column("channel").to_pylist(), batch.column("value").to_pylist())
        for channel, value in zip(*columns, strict=True):
            if channel == TICK:
                planned = json.loads(value)
                for bucket in task.buckets:
                    outputs.send(TICK, bucket, None, value)
            else:
                given.setdefault(channel, []).append(value)
    for index, stage in enumerate(task.stages):
        level.run_stage(index, _values(stage.channels, given, outputs.kept))
    for source, parts in level.learned().items():
        for bucket in task.buckets:
            outputs.send(PARTS, bucket, b"%d" % source, json.dumps(parts).encode())
    report = LevelReport(0, -1, _with_warnings(level.reports(), warnings), sources=planned)
    outputs.send(REPORT, task.buckets[0], None, pickle.dumps(report))
    outputs.flush()


def run_bucket(task: LevelTask, bucket: int, rows: Iterable[Row], entries: Entries) -> Iterator[Row]:
    """A later level: the rows of a bucket, through the stages up to the next shuffle, with the bucket's state."""
    found = RowList()
    try:
        with _entered(task) as (level, warnings):
            _Bucket(task, level, level.begin(found), Store(entries)).run(bucket, rows, warnings)
    except BaseException as error:  # noqa: BLE001  told in the form that the driver reads
        raise TaskFailure(error) from None
    return iter(found)


class _Bucket:
    """One bucket in one micro-batch."""

    def __init__(self, task: LevelTask, level: Level, outputs: Outputs, store: Store) -> None:
        self._task = task
        self._level = level
        self._outputs = outputs
        self._store = store
        self._root = json.loads(store.get(_ROOT) or b"{}")
        self._pending = False
        self._late = 0
        self._clock = 0
        self._hold = NEVER
        self._sides: SideState | None = None

    def run(self, bucket: int, rows: Iterable[Row], warnings: list[Any]) -> None:
        self._bucket = bucket
        task, outputs = self._task, self._outputs
        given: dict[int, list[tuple[bytes | None, bytes]]] = {}
        watermarks = self._take(rows, given)
        known: dict[str, int] = self._root.setdefault("watermarks", {})
        least = MAX
        for index, stage in enumerate(task.stages):
            name = str(stage.task.stage_id)
            before = known.get(name, MIN)
            now = max(before, min((watermarks.get(channel, MIN) for channel in stage.channels), default=MAX))
            self._hold = NEVER
            self._sides = self._side_state(index, given, watermarks)
            if stage.task.input.form is Form.WINDOWS:
                self._group(index, given, before, now)
            elif stage.task.input.form is Form.STATEFUL:
                self._keyed(index, given, before, now)
            elif stage.defers:
                self._deferring(index, given)
            else:
                self._level.run_stage(index, self._ready(self._rows(index, given), before))
            if self._sides is not None:
                self._hold = min(self._hold, self._sides.hold())
            known[name] = now
            least = min(least, now)
            for channel, maker in task.made.items():
                if maker == index:
                    watermarks[channel] = min(now, self._hold)
        self._store.put(_ROOT, json.dumps(self._root).encode())
        self._store.flush()
        if task.later:
            tick = _TICK.pack(_CLOCK, self._clock)
            tick += b"".join(_TICK.pack(channel, watermarks.get(channel, MIN)) for channel in task.later)
            for other in task.buckets:
                outputs.send(TICK, other, None, tick)
        tasks = _with_warnings(self._level.reports(), warnings)
        report = LevelReport(task.number, bucket, tasks, least, self._pending, self._late)
        outputs.send(REPORT, bucket, None, pickle.dumps(report))
        outputs.flush()

    def _take(self, rows: Iterable[Row], given: dict[int, list[tuple[bytes | None, bytes]]]) -> dict[int, int]:
        """Sorts the rows; returns the watermarks of the channels that come from earlier levels."""
        read = {channel for stage in self._task.stages for channel in stage.channels}
        read |= {each for stage in self._task.stages for channels in stage.sides.values() for each in channels}
        watermarks: dict[int, int] = {}
        sources: dict[str, Any] = {}
        learned: list[tuple[str, dict[str, int]]] = []
        for channel, bucket, key, value in rows:
            if channel in read:
                given.setdefault(channel, []).append((key, value))
            elif channel == TICK and self._task.number == 1:
                planned = json.loads(value)
                sources, self._clock = planned["sources"], int(planned["clock"] * 1e6)
            elif channel == TICK:
                for of, micros in _TICK.iter_unpack(value):
                    watermarks[of] = min(micros, watermarks.get(of, MAX))
                self._clock = watermarks.pop(_CLOCK)
            elif channel == PARTS:
                learned.append(((key or b"").decode(), json.loads(value)))
            else:
                self._outputs.send(channel, bucket, key, value)
        for found in given.values():
            # Spark gives them in any order; what a task that is run again makes of them must be the same
            found.sort(key=lambda row: (row[0] or b"", row[1]))
        if self._task.number == 1:
            return self._watermarks(sources, learned)
        return watermarks

    def _watermarks(self, planned: Mapping[str, Any], learned: Iterable[tuple[str, dict[str, int]]]) -> dict[int, int]:
        """Of what level 0 writes: the least of the sources behind it, each the least of its parts."""
        kept: dict[str, dict[str, int]] = self._root.setdefault("parts", {})
        for source, each in planned.items():
            before = kept.get(source, {})
            kept[source] = {
                part: max(before.get(part, MIN), MIN if clock is None else clock)
                for part, clock in each["parts"].items()
            }
        for source, parts in learned:
            mine = kept.setdefault(source, {})
            for part, micros in parts.items():
                mine[part] = max(micros, mine.get(part, MIN))
        found = {
            int(source): MAX if each["ended"] else min(kept[source].values(), default=MIN)
            for source, each in planned.items()
        }
        return {
            channel: min((found.get(source, MIN) for source in sources), default=MAX)
            for channel, sources in self._task.sources.items()
        }

    def _rows(self, index: int, given: Mapping[int, list[Any]]) -> Iterator[tuple[bytes, bytes]]:
        """The key, empty if there is none, and the value of each row of a stage's input."""
        for channel in self._task.stages[index].channels:
            for key, value in (*given.get(channel, ()), *self._outputs.kept.get(channel, ())):
                yield key or b"", value

    def _side_state(
        self, index: int, given: Mapping[int, list[Any]], watermarks: Mapping[int, int]
    ) -> SideState | None:
        stage = self._task.stages[index]
        if not stage.sides:
            return None
        bundles = self._level.at(index)
        found = SideState(self._store, stage.task.stage_id, bundles, self._level.sides[index])
        rows = {
            name: [value for channel in channels for _, value in given.get(channel, ())]
            for name, channels in stage.sides.items()
        }
        least = {
            name: min((watermarks.get(channel, MIN) for channel in channels), default=MAX)
            for name, channels in stage.sides.items()
        }
        found.take(self._bucket, rows, least)
        return found

    def _ready(self, rows: Iterable[tuple[bytes, bytes]], before: int) -> Iterator[bytes]:
        """The encoded elements of rows, without those that wait for side inputs, with those that have waited."""
        values = (value for _, value in rows)
        return values if self._sides is None else iter(self._sides.divide(values, before))

    def _group(self, index: int, given: Mapping[int, list[Any]], before: int, now: int) -> None:
        task, windowing = self._task.stages[index].task, self._level.windowing(index)
        if task.input.group is not None and task.input.group.grouping is Grouping.TRIGGERED:
            triggered = Triggered(self._store, task.stage_id, windowing)
            for window, packed in self._rows(index, given):
                self._late += triggered.add(window, packed, before)
            panes = chunks(triggered.fire(before, now, self._clock))
            self._level.run_stage(index, self._ready(((b"", chunk) for chunk in panes), before))
            triggered.flush(now)
            self._hold, self._pending = triggered.hold(), self._pending or triggered.is_pending
            return
        windows = Windows(self._store, task.stage_id, windowing)
        for window, packed in self._rows(index, given):
            self._late += windows.add(window, packed, before)
        # What waits for a side input goes to state: it must not hold what is in a file of this task
        spool = self._level.spool if self._sides is None else None
        groups = chunks(windows.fire(now, spool))
        self._level.run_stage(index, self._ready(((b"", chunk) for chunk in groups), before))
        windows.flush()

    def _keyed(self, index: int, given: Mapping[int, list[Any]], before: int, now: int) -> None:
        task, bundles = self._task.stages[index].task, self._level.at(index)
        windowing = self._level.windowing(index)
        state = KeyedState(self._store, task.stage_id, bundles.descriptor, windowing, bundles.timer_coders)
        rows = []
        for window, packed in self._rows(index, given):
            _, runs = unpack(packed)
            if state.is_over(window, before):
                self._late += self._level.count(index, runs)
            else:
                rows.append((b"", b"".join(runs)))
        found = list(self._ready(rows, before))
        if state.wake(now, self._clock) or found:
            bundles.keep(state, state.timers)
            bundles.run(iter(found))
        state.flush(now)
        self._hold, self._pending = state.hold(), self._pending or state.is_pending

    def _deferring(self, index: int, given: Mapping[int, list[Any]]) -> None:
        """A stage that begins with a splittable DoFn: once over what has come and what is due of what it deferred."""
        residuals = Residuals(self._store, self._task.stages[index].task.stage_id)
        before = self._root["watermarks"].get(str(self._task.stages[index].task.stage_id), MIN)
        elements = [*residuals.due(self._clock), *self._ready(self._rows(index, given), before)]
        if elements:
            residuals.add(self._level.at(index).run_once(iter(elements)), self._clock, MIN)
            residuals.flush()
        self._hold, self._pending = residuals.hold(), self._pending or not residuals.is_empty


def _values(
    channels: Iterable[int], given: Mapping[int, list[bytes]], kept: dict[int, list[tuple[bytes | None, bytes]]]
) -> Iterator[bytes]:
    for channel in channels:
        yield from given.get(channel, ())
        for _, value in kept.get(channel, ()):
            yield value


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _with_warnings(reports: dict[int, TaskReport], warnings: list[Any]) -> dict[int, TaskReport]:
    if warnings and reports:
        next(iter(reports.values())).warnings = list(warnings)
    return reports
