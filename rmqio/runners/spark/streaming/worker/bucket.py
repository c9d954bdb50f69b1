"""Runs a bucket of a level in one micro-batch: first the data, then the watermark.

Whether an element is late depends on the watermark before the micro-batch. Windows fire at the new watermark, after all
elements have been added.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rmqio.runners.spark.model import Form, Grouping
from rmqio.runners.spark.streaming.channels import BATCH, PARTS, TICK
from rmqio.runners.spark.streaming.micro_batch import MicroBatch, SourcePlan
from rmqio.runners.spark.streaming.model import MAX, MIN, Learned, LevelReport, LevelTask
from rmqio.runners.spark.streaming.state.keys import NEVER
from rmqio.runners.spark.streaming.state.residuals import Residuals
from rmqio.runners.spark.streaming.state.side_state import SideState
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.streaming.state.triggered import Triggered
from rmqio.runners.spark.streaming.state.user_state import KeyedState
from rmqio.runners.spark.streaming.state.windows import Windows
from rmqio.runners.spark.streaming.worker.bucket_watermarks import ENTRY, BucketWatermarks
from rmqio.runners.spark.streaming.worker.level import KeyValue, Level, Outputs, Row
from rmqio.runners.spark.worker.attempt import running_attempt
from rmqio.runners.spark.worker.shuffling.grouping import chunks
from rmqio.runners.spark.worker.shuffling.packing import unpack

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
