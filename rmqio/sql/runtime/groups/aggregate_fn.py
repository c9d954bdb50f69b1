"""GROUP BY after the shuffle: partial aggregates of a key and a window are merged, and become rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
import msgspec
from apache_beam.coders import BytesCoder, Coder
from apache_beam.transforms.window import IntervalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.sql.compile.aggregates.aggregation import Merger, started
from rmqio.sql.compile.description import Fragment, Mapped, OtherTarget, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Field, Window
from rmqio.sql.rows import key_bytes, pack_group, type_hint
from rmqio.sql.runtime.groups.windows import SESSION_GAP_US, by_clock, last_us, start_of
from rmqio.sql.runtime.rows.failed_rows import FailedRows, at_end
from rmqio.sql.runtime.rows.outputs import outputs
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
