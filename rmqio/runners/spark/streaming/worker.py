"""Running a level in a worker: its stages over the rows of a bucket, with watermarks and state."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, cast

import pyarrow as pa

from rmqio.runners.spark.beam.private import create_InputStream
from rmqio.runners.spark.bootstrap import begin
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.model import Form, Grouping, TaskReport
from rmqio.runners.spark.streaming.micro_batch import (
    BATCH,
    PARTS,
    REPORT,
    TICK,
    BatchHeader,
    Fields,
    MicroBatch,
    Parts,
    SourcePlan,
)
from rmqio.runners.spark.streaming.model import MAX, MIN, Learned, LevelReport, LevelTask, shown
from rmqio.runners.spark.streaming.side_state import Held, SideState
from rmqio.runners.spark.streaming.state import NEVER, Entries, Store
from rmqio.runners.spark.streaming.user_state import KeyedState, Residuals
from rmqio.runners.spark.streaming.windows import Merging, Triggered, Windows, merging_of
from rmqio.runners.spark.worker.rows import RowQueue, RowWriter, threaded
from rmqio.runners.spark.worker.shuffling import chunks, unpack
from rmqio.runners.spark.worker.state import Spool
from rmqio.runners.spark.worker.task import Bundles, prepared, recorded, running_attempt

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.worker.rows import Batches
    from rmqio.runners.spark.worker.task import Warned


# The watermarks that a bucket keeps in its state from one micro-batch to the next.

ENTRY: Final = b"root"
"""The name of the entry in the state."""


@dataclass(frozen=True, slots=True)
class BucketWatermarks:
    """The watermarks of a bucket. Times are in microseconds."""

    stages: Mapping[str, int] = field(default_factory=dict)
    """The watermark of each stage, by stage id."""
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The watermark of each part, by source number and part. Kept in level 1 only, which receives them."""
    heard: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """When something last came from a part, by source number and part. Kept in level 1 only."""

    @classmethod
    def decode(cls, encoded: bytes | None) -> Self:
        """Decodes the entry of the state; None: there is none yet."""
        if not encoded:
            return cls()
        fields = Fields.decode("BucketWatermarks", encoded)
        return cls(
            stages=fields.nested("watermarks", is_optional=True).values(int),
            parts=fields.integers_of_objects("parts", is_optional=True),
            heard=fields.integers_of_objects("heard", is_optional=True),
        )

    def encode(self) -> bytes:
        """Encodes what is not empty."""
        found = {"parts": self.parts, "heard": self.heard, "watermarks": self.stages}
        return json.dumps({name: each for name, each in found.items() if each}).encode()


# Runs the stages of a level in a worker's process, which keeps them between micro-batches, and routes their rows.

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


_TICK: Final = struct.Struct("<iq")
_CLOCK: Final = TICK  # in place of a channel: processing time
_BEFORE: Final = BATCH  # in place of a channel: whether an earlier run has planned the micro-batch


class Bucket:
    """One bucket in one micro-batch."""

    def __init__(self, task: LevelTask, level: Level, outputs: Outputs, store: Store) -> None:
        self._task = task
        self._level = level
        self._outputs = outputs
        self._store = store
        self._known = BucketWatermarks.decode(store.get(ENTRY))
        self._pending = False
        self._late = 0
        self._clock = 0
        self._is_planned_before = False
        self._hold = NEVER
        self._sides: SideState | None = None

    def run(self, bucket: int, rows: Iterable[Row]) -> LevelReport:
        """Processes the rows. The resulting rows go to the outputs."""
        self._bucket = bucket
        task, outputs = self._task, self._outputs
        given: dict[int, list[KeyValue]] = {}
        watermarks = self._take(rows, given)
        with running_attempt(is_planned_before=self._is_planned_before, commits_together=True):
            least = self._run_stages(given, watermarks)
        self._store.put(ENTRY, self._known.encode())
        self._store.flush()
        if task.later:
            tick = _TICK.pack(_CLOCK, self._clock) + _TICK.pack(_BEFORE, self._is_planned_before)
            tick += b"".join(_TICK.pack(channel, watermarks.get(channel, MIN)) for channel in task.later)
            for other in task.buckets:
                outputs.send(TICK, other, None, tick)
        return LevelReport(task.number, bucket, self._level.reports(), least, self._pending, self._late)

    def _run_stages(self, given: dict[int, list[KeyValue]], watermarks: dict[int, int]) -> int:
        """Runs what is due in each stage, and returns the least of their watermarks.

        Adds the watermarks of the channels that they write.
        """
        task = self._task
        known = dict(self._known.stages)
        least = MAX
        for index, stage in enumerate(task.stages):
            name = str(stage.task.stage_id)
            before = known.get(name, MIN)
            now = max(before, min((watermarks.get(channel, MIN) for channel in stage.channels), default=MAX))
            self._hold = NEVER
            self._sides = self._side_state(index, given, watermarks, before)
            if stage.task.input.form is Form.WINDOWS:
                self._group(index, given, before, now)
            elif stage.task.input.form is Form.STATEFUL:
                self._keyed(index, given, before, now)
            elif stage.defers:
                self._deferring(index, given, before)
            else:
                self._level.run_stage(index, self._ready(self._rows(index, given), before))
            if self._sides is not None:
                self._hold = min(self._hold, self._sides.hold())
            known[name] = now
            least = min(least, now)
            for channel, maker in task.made.items():
                if maker == index:
                    watermarks[channel] = min(now, self._hold)
        self._known = dataclasses.replace(self._known, stages=known)
        return least

    def _take(self, rows: Iterable[Row], given: dict[int, list[KeyValue]]) -> dict[int, int]:
        """Sorts the rows into `given`. Returns the watermarks of the channels that come from earlier levels."""
        read = {channel for stage in self._task.stages for channel in stage.channels}
        read |= {each for stage in self._task.stages for channels in stage.sides.values() for each in channels}
        watermarks: dict[int, int] = {}
        sources: Mapping[str, SourcePlan] = {}
        learned: list[tuple[str, Learned]] = []
        for channel, bucket, key, value in rows:
            if channel in read:
                given.setdefault(channel, []).append((key, value))
            elif channel == TICK and self._task.number == 1:
                planned = MicroBatch.decode(value)
                sources, self._clock = planned.sources, int(planned.clock * 1e6)
                self._is_planned_before = planned.run != self._task.run
            elif channel == TICK:
                for of, micros in _TICK.iter_unpack(value):
                    watermarks[of] = min(micros, watermarks.get(of, MAX))
                self._clock = watermarks.pop(_CLOCK)
                self._is_planned_before = bool(watermarks.pop(_BEFORE))
            elif channel == PARTS:
                learned.append(((key or b"").decode(), Learned.decode(value)))
            else:
                self._outputs.send(channel, bucket, key, value)
        for found in given.values():
            # Spark provides them in any order, but a task that is run again must produce the same output
            found.sort(key=lambda row: (row[0] or b"", row[1]))
        if self._task.number == 1:
            return self._watermarks(sources, learned)
        return watermarks

    def _watermarks(self, planned: Mapping[str, SourcePlan], learned: Sequence[tuple[str, Learned]]) -> dict[int, int]:
        """Returns the watermarks of the channels that level 0 writes.

        A channel's watermark is the least of its sources, and a source's watermark is the least of its parts.
        """
        kept = {source: dict(parts) for source, parts in self._known.parts.items()}
        heard = {source: dict(parts) for source, parts in self._known.heard.items()}
        silent = {source: dict(each.silent) for source, each in planned.items()}
        for source, parts in learned:
            for part in parts.cuts:  # it was not read to its end, although that was planned
                silent.get(source, {}).pop(part, None)
        for source, each in planned.items():
            before = kept.get(source, {})
            kept[source] = {
                part: max(before.get(part, MIN), MIN if clock is None else clock) for part, clock in each.parts.items()
            }
        for source, parts in learned:
            mine = kept.setdefault(source, {})
            for part, micros in parts.watermarks.items():
                mine[part] = max(micros, mine.get(part, MIN))
                if part in silent.get(source, {}):
                    heard.setdefault(source, {})[part] = self._clock
        for source, ends in silent.items():
            for part, (micros, patience) in ends.items():
                since = heard.setdefault(source, {}).setdefault(part, self._clock)
                if self._clock - since >= patience:
                    kept[source][part] = max(micros, kept[source].get(part, MIN))
        self._known = dataclasses.replace(self._known, parts=kept, heard=heard)
        found = {
            int(source): MAX if each.has_ended else min(kept[source].values(), default=MIN)
            for source, each in planned.items()
        }
        return {
            channel: min((found.get(source, MIN) for source in sources), default=MAX)
            for channel, sources in self._task.sources.items()
        }

    def _rows(self, index: int, given: Mapping[int, list[KeyValue]]) -> Iterator[tuple[bytes, bytes]]:
        """Yields the key, empty if there is none, and the value of each row of a stage's input."""
        for channel in self._task.stages[index].channels:
            for key, value in (*given.get(channel, ()), *self._outputs.kept.get(channel, ())):
                yield key or b"", value

    def _side_state(
        self, index: int, given: Mapping[int, list[KeyValue]], watermarks: Mapping[int, int], before: int
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
        found.take(self._bucket, rows, least, before - self._lateness(index))
        self._level.renew(index, found.of_global_windows())
        return found

    def _lateness(self, index: int) -> int:
        """Returns how late the elements of a stage may be at most, in microseconds."""
        strategies = self._level.at(index).descriptor.windowing_strategies.values()
        return max((1000 * int(each.allowed_lateness) for each in strategies), default=0)

    def _ready(self, rows: Iterable[tuple[bytes, bytes]], before: int) -> Iterator[bytes]:
        """Returns the encoded elements of rows without those that wait for side inputs, and those that have waited."""
        values = (value for _, value in rows)
        return values if self._sides is None else iter(self._sides.divide(values, before))

    def _group(self, index: int, given: Mapping[int, list[KeyValue]], before: int, now: int) -> None:
        task, windowing = self._task.stages[index].task, self._level.windowing(index)
        if task.input.group is not None and task.input.group.grouping is Grouping.TRIGGERED:
            triggered = Triggered(self._store, task.stage_id, windowing, self._level.merging(index))
            for window, packed in self._rows(index, given):
                self._late += triggered.add(window, packed, before)
            panes = chunks(triggered.fire(before, now, self._clock))
            self._level.run_stage(index, self._ready(((b"", chunk) for chunk in panes), before))
            triggered.flush(now)
            self._hold, self._pending = triggered.hold(), self._pending or triggered.is_pending
            return
        windows = Windows(self._store, task.stage_id, windowing, self._level.merging(index))
        for window, packed in self._rows(index, given):
            self._late += windows.add(window, packed, before)
        # Elements that wait for a side input go to state, and must not refer to a file of this task
        spool = self._level.spool if self._sides is None else None
        groups = chunks(windows.fire(now, spool))
        self._level.run_stage(index, self._ready(((b"", chunk) for chunk in groups), before))
        windows.flush()

    def _keyed(self, index: int, given: Mapping[int, list[KeyValue]], before: int, now: int) -> None:
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

    def _deferring(self, index: int, given: Mapping[int, list[KeyValue]], before: int) -> None:
        """Runs a stage that begins with a splittable DoFn once, over the new elements and the due residuals."""
        residuals = Residuals(self._store, self._task.stages[index].task.stage_id)
        elements = [*residuals.due(self._clock), *self._ready(self._rows(index, given), before)]
        if elements:
            residuals.add(self._level.at(index).run_once(iter(elements)), self._clock, MIN)
            residuals.flush()
        self._hold, self._pending = residuals.hold(), self._pending or not residuals.is_empty


# The functions that Spark runs for a level: level 0 over planned elements, later levels over the rows of a bucket.


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
