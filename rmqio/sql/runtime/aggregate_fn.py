"""GROUP BY after the shuffle: partial aggregates of a key and a window are merged, and become rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
import msgspec
from apache_beam.coders import BytesCoder, Coder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import IntervalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.sql.compile.aggregation import Merger, started
from rmqio.sql.compile.description import Fragment, Mapped, OtherTarget, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Field, Window
from rmqio.sql.rows import key_bytes, pack, pack_group, type_hint
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.outputs import FailedRows, at_end, outputs
from rmqio.sql.runtime.windows import SESSION_GAP_US, UPDATES_S, bounds_at, by_clock, last_us, now_ms, start_of
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

_MILLISECOND_US: Final = 1000
_ROUNDED_US: Final = _MILLISECOND_US - 1
"""By how much `window_time` is before the last microsecond of its window, which is the time of Beam's element."""
_ROWS: Final = 500
"""Rows of a batch for the write."""


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """A merge, and the fragment for its rows. The payload of a group is (keys, accumulators).

    If the window `has_own_bounds`, its start and its end are the last two keys.
    """

    aggregate: Aggregate
    fields: tuple[Field, ...]
    """The columns of the rows that are aggregated."""
    fragment: Fragment
    side: int = 0
    """If the rows go into a join, which input of it they are."""

    def merger(self) -> Merger:
        """Returns what merges accumulators."""
        return Merger(self._calls(), self.fragment.statement.name)

    def nothing(self) -> tuple[bytes, bytes]:
        """Returns the element of the group of all rows, of which there are none."""
        return key_bytes(()), pack_group((), started(self._calls()))

    def _calls(self) -> list[tuple[AggregateCall, SqlType | None]]:
        return [(call, self._argument(call.argument)) for call in self.aggregate.calls]

    def _argument(self, position: int | None) -> SqlType | None:
        return None if position is None else self.fields[position].type

    @property
    def has_own_bounds(self) -> bool:
        """Whether groups bring start and end of their windows."""
        return self.aggregate.window is not None and self.aggregate.window.has_own_bounds

    def unpacker(self, merger: Merger) -> Any:
        """Returns the function from a payload to (keys, accumulators)."""
        keys = tuple(type_hint(self.fields[each].type) | None for each in self.aggregate.keys)
        if self.has_own_bounds:
            keys = *keys, int, int
        of_keys: Any = tuple[keys] if keys else tuple[()]  # type: ignore[valid-type]
        of_calls: Any = merger.hint
        hint: Any = tuple[of_keys, of_calls]
        return msgspec.msgpack.Decoder(hint).decode


class MergeFn(beam.CombineFn):
    """Merges payloads. The accumulator is a payload, too; empty: there was none."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec

    def setup(self, *_: object, **__: object) -> None:
        self._merger = self._spec.merger()
        self._unpack = self._spec.unpacker(self._merger)

    def create_accumulator(self) -> bytes:
        return b""

    def add_input(self, accumulator: bytes, payload: bytes) -> bytes:
        return self.merge_accumulators((accumulator, payload))

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        found = [each for each in accumulators if each]
        if len(found) < 2:
            return found[0] if found else b""
        keys, merged = self._unpack(found[0])
        for each in found[1:]:
            merged = self._merger.merge(merged, self._unpack(each)[1])
        return pack_group(keys, merged)

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator

    def get_accumulator_coder(self) -> Coder:
        return BytesCoder()


class NoRowsFn(beam.DoFn):
    """Gives the group of all rows, of which there are none."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec

    def process(self, _: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield self._spec.nothing()


class GroupRowsFn(beam.DoFn):
    """Runs a fragment on some hundred rows at a time.

    Rows that become messages wait for others until the end of the bundle: a batch of one costs as much as one of many.
    Rows that are shuffled again keep their own time, and do not wait.
    """

    def __init__(self, fragment: Fragment, side: int) -> None:
        self._fragment = fragment
        self._side = side
        self._failed_rows = FailedRows(fragment)
        self._waits = not isinstance(fragment.target, (ToKeys, ToGroups, ToRanks, OtherTarget))

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def start_bundle(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._last: Any = None

    def add(self, rows: Iterable[tuple[Any, ...]], window: Any, timestamp: Any) -> list[Any]:
        """Adds rows of an element. Returns what the fragment makes of them, unless they wait."""
        self._rows += rows
        self._last = window, timestamp
        return self._flushed() if not self._waits or len(self._rows) >= _ROWS else []

    def finish_bundle(self) -> Iterator[Any]:
        if self._rows:
            window, timestamp = self._last
            for each in self._flushed():
                yield at_end(each, timestamp, window)

    def _flushed(self) -> list[Any]:
        rows, self._rows = self._rows, []
        mapped = self._run(rows)
        found: list[Any] = []
        if mapped.failed or mapped.nulls:
            found += self._failed_rows.outputs(rows, mapped.failed, mapped.nulls)
        values = self.values(rows, mapped)
        if not values:
            return found
        _, timestamp = self._last
        return found + list(outputs(self._fragment.target, values, self._side, timestamp.micros - _ROUNDED_US))

    def values(self, rows: list[tuple[Any, ...]], mapped: Mapped) -> list[Any]:
        """Returns what goes on of the rows."""
        return mapped.values


class Finisher:
    """Makes rows of accumulators. A row whose aggregate fails is a failed row.

    `failed`: the last row, if it failed, with NULL for what failed.
    """

    def __init__(self, spec: AggregateSpec) -> None:
        self._merger = spec.merger()
        self._failed_rows = FailedRows(spec.fragment)
        self._letters: list[Any] = []
        self.failed: tuple[Any, ...] | None = None

    def row(self, before: tuple[Any, ...], accumulators: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the row of a group; none if it fails.

        Args:
          before: what comes before the aggregates: keys and times.
        """
        self.failed = None
        try:
            return [(*before, *self._merger.finish(accumulators))]
        except ValueFailure:
            found, failed = self._merger.finished(accumulators)
        row = (*before, *found)
        rows, letters = self._failed_rows.of_results(row, {len(before) + i: each for i, each in failed.items()})
        self._letters += letters
        self.failed = None if rows else row
        return rows

    def letters(self) -> list[Any]:
        """Returns the dead letters since the last call."""
        found, self._letters = self._letters, []
        return found


class FinishFn(GroupRowsFn):
    """Makes rows of merged groups."""

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._finisher = Finisher(self._spec)
        self._unpack = self._spec.unpacker(self._spec.merger())

    def process(
        self,
        element: tuple[bytes, bytes],
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        if element[1]:  # Flink gives an empty pane of a window whose time and lateness pass together
            yield from self.given(element[1], window, timestamp)
            yield from self.letters()

    def given(self, payload: bytes, window: Any, timestamp: Any) -> Iterator[Any]:
        """Yields what becomes of a group, unless it waits."""
        if rows := self.row(payload, window):
            for each in self.add(rows, window, timestamp):
                # Beam would put it into all windows of its time: those of HOP are several, and it would come as often.
                is_timed = isinstance(each, TimestampedValue)
                yield WindowedValue(each.value, each.timestamp, (window,)) if is_timed else each

    def letters(self) -> list[Any]:
        """Returns the dead letters of groups since the last call."""
        return self._finisher.letters()

    @property
    def failed(self) -> tuple[Any, ...] | None:
        """The last row, if its aggregate failed, with NULL for what failed."""
        return self._finisher.failed

    def row(self, payload: bytes, window: Any) -> list[tuple[Any, ...]]:
        """Returns the row of a group; none if it fails."""
        keys, accumulators = self._unpack(payload)
        plan = self._spec.aggregate.window
        if plan is not None and plan.has_own_bounds:
            return self._finisher.row((*keys, last_us(plan, keys[-1])), accumulators)
        times = self._times(plan, window) if isinstance(window, IntervalWindow) else ()
        return self._finisher.row((*keys, *times), accumulators)

    def _times(self, plan: Window | None, window: IntervalWindow) -> tuple[int, int, int]:
        """Start, end and time of a window of Beam."""
        delay = 0 if plan is None else plan.delay_us
        end = window.end.micros - delay
        start = window.start.micros - delay
        if plan is not None and plan.kind == "CUMULATE":
            start = start_of(plan, end - 1)
        elif plan is not None and plan.kind == "SESSION":
            end -= SESSION_GAP_US
            return by_clock(plan, start), by_clock(plan, end), end - _MILLISECOND_US
        return start, end, end - _MILLISECOND_US


# Groups without a window, of inputs without end, with a time to live: merged, given, and forgotten.

_WAITS: Final = 1
"""After the stamp: rows have come since the group was given."""
_HEAD: Final = windows.SIZE + 1


class ExpiringGroupFn(beam.DoFn):
    """Gives a group a second after it has changed. Elements are (key, payload of a group), and so is the output.

    A group without a row for the time to live is forgotten: its payload is empty, for what keeps state of it. Its next
    row begins it anew.
    """

    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.REAL_TIME)

    def __init__(self, spec: AggregateSpec) -> None:
        self._merge = MergeFn(spec)
        self._ttl_ms = spec.aggregate.ttl_ms

    def setup(self) -> None:
        self._merge.setup()

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(KEPT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[tuple[bytes, bytes]]:
        key, payload = element
        found = kept.read() or b""
        if found and self._is_over(found):  # the timer is late
            yield key, b""
            found = b""
        merged = self._merge.merge_accumulators((found[_HEAD:], payload))
        kept.write(windows.stamp() + bytes([_WAITS]) + merged)
        if not _waits(found):
            due.set(windows.now_ms() / 1000 + UPDATES_S)

    @on_timer(DUE)
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Gives the group if it has changed; forgets it if it is over its time."""
        found = kept.read()
        if not found:
            return
        if self._is_over(found):
            kept.clear()
            yield key, b""
            return
        if _waits(found):
            yield key, found[_HEAD:]
            kept.write(found[: windows.SIZE] + b"\0" + found[_HEAD:])
        due.set(windows.due_ms(found, self._ttl_ms) / 1000)

    def _is_over(self, found: bytes) -> bool:
        return not _waits(found) and windows.due_ms(found, self._ttl_ms) <= windows.now_ms()


def _waits(found: bytes) -> bool:
    return bool(found) and found[windows.SIZE] == _WAITS


# Windows of processing time: a row belongs to the windows of the moment at which it reaches the aggregate.

_Kept = dict[int, tuple[int, bytes]]
"""From the end of a window to its start and its payload. Those of sessions are instants, others are of their clock."""


class ProcessingFn(GroupRowsFn):
    """Aggregates by key and window. Elements are (key, payload of a group).

    A timer gives the rows of windows that are over. If it is late, rows that come before it are in later windows all
    the same, and the windows that are over take no more.
    """

    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())
    END = TimerSpec("end", TimeDomain.REAL_TIME)

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec
        assert spec.aggregate.window is not None
        self._window = spec.aggregate.window
        self._merge = MergeFn(spec)

    def setup(self) -> None:
        super().setup()
        self._merge.setup()
        self._finisher = Finisher(self._spec)
        self._unpack = self._spec.unpacker(self._spec.merger())
        self._kept: Any = msgspec.msgpack.Decoder(dict[int, tuple[int, bytes]]).decode

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        now_us = now_ms() * 1000
        found = self._read(kept)
        yield from self._given(found, now_us, window, timestamp)
        if self._window.kind == "SESSION":
            self._to_session(found, element[1], now_us)
        else:
            for start, end_us in bounds_at(self._window, by_clock(self._window, now_us)):
                self._add(found, start, end_us, element[1])
        self._keep(found, kept, end)

    @on_timer(END)
    def close(
        self,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        """Gives the rows of the windows that are over."""
        found = self._read(kept)
        yield from self._given(found, now_ms() * 1000, window, timestamp)
        self._keep(found, kept, end)

    def _read(self, kept: Any) -> _Kept:
        data = kept.read()
        return self._kept(data) if data else {}

    def _keep(self, found: _Kept, kept: Any, timer: Any) -> None:
        if found:
            kept.write(pack(found))
            timer.set(min(map(self._over_us, found)) / 1e6)
        else:
            kept.clear()

    def _over_us(self, end: int) -> int:
        """When a window is over, by its end."""
        return end if self._window.kind == "SESSION" else last_us(self._window, end) + _MILLISECOND_US

    def _times(self, start: int, end: int) -> tuple[int, int, int]:
        time = self._over_us(end) - _MILLISECOND_US
        if self._window.kind == "SESSION":
            start, end = by_clock(self._window, start), by_clock(self._window, end)
        return start, end, time

    def _add(self, found: _Kept, start: int, end: int, payload: bytes) -> None:
        before = found.get(end, (start, b""))[1]
        found[end] = start, self._merge.merge_accumulators((before, payload))

    def _to_session(self, found: _Kept, payload: bytes, now_us: int) -> None:
        """One session is open at most: those that are over were given."""
        start = now_us
        if found:
            ((_, (start, before)),) = found.items()
            found.clear()
            payload = self._merge.merge_accumulators((before, payload))
        found[now_us + self._window.size_us] = start, payload

    def _given(self, found: _Kept, now_us: int, window: Any, timestamp: Any) -> list[Any]:
        over = sorted(each for each in found if self._over_us(each) <= now_us)
        rows = []
        for end in over:
            start, payload = found.pop(end)
            keys, accumulators = self._unpack(payload)
            rows += self._finisher.row((*keys, *self._times(start, end)), accumulators)
        return self._finisher.letters() + (self.add(rows, window, timestamp) if rows else [])
