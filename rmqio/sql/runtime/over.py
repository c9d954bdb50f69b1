"""OVER: rows of a partition, each with the results of functions over others; by time, or of inputs that end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.over import Frames, Peers, results
from rmqio.sql.planning.plan import Field, SortKey
from rmqio.sql.planning.relations import AnalyticCall, OverCall
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.outputs import RowsFn
from rmqio.sql.runtime.ranking import Ranking, sort_key
from rmqio.transforms.parts import Waiting, second_after

# OVER of inputs that end, in any order: all rows of a partition, sorted, each with the results of functions.


@dataclass(frozen=True, slots=True)
class AnalyticSpec:
    """Describes functions over partitions.

    Attributes:
      calls: the functions.
      order: the columns of ORDER BY; empty: all rows are peers.
      fields: the columns of the input.
      fragment: what happens to a row with the results.
      side: if the rows go into a join, which input of it they are.
    """

    calls: tuple[AnalyticCall, ...]
    order: tuple[SortKey, ...]
    fields: tuple[Field, ...]
    fragment: Fragment
    side: int = 0


class AnalyticFn(RowsFn):
    """Takes all rows of a partition."""

    def __init__(self, spec: AnalyticSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        spec = self._spec
        self._unpack = unpacker(spec.fields)
        self._sorted = Ranking(spec.fields, spec.order, 0, False).compiled()
        self._keys = [sort_key(each, spec.fields[each.column]) for each in spec.order]

    def process(
        self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        packed = self._sorted([row for _, some in element[1] for row in some])
        rows = list(map(self._unpack, packed))
        peers = Peers([tuple(key((row, b"")) for key in self._keys) for row in rows])
        columns = [results(each, self._spec.fields, rows, peers) for each in self._spec.calls]
        yield from self.emitted_with(rows, list(zip(*columns, strict=True)), timestamp.micros)


@dataclass(frozen=True, slots=True)
class OverSpec:
    """Describes an OVER.

    Attributes:
      calls: the functions.
      time: the position of the time.
      fields: the columns of the input.
      fragment: what happens to a row with the results.
      side: if the rows go into a join, which input of it they are.
      delay_us: by how much rows can be behind the watermark.
    """

    calls: tuple[OverCall, ...]
    time: int
    fields: tuple[Field, ...]
    fragment: Fragment
    side: int = 0
    delay_us: int = 0


class _OverFn(RowsFn):
    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._unpack = unpacker(self._spec.fields)

    def _timed(self, row: bytes) -> tuple[int, bytes, tuple[Any, ...]]:
        """A row by its order: its time, then its bytes, which do not depend on where it came from."""
        values = self._unpack(row)
        return values[self._spec.time], row, values

    def _advanced(
        self, rows: list[tuple[int, bytes, tuple[Any, ...]]], kept: bytes
    ) -> tuple[list[Any], list[Any], Frames]:
        """The rows in order, the results of each, and the frames after them."""
        frames = Frames(self._spec.calls, self._spec.time, self._spec.fields, kept)
        ordered = [values for _, _, values in sorted(rows, key=lambda each: each[:2])]
        return ordered, frames.advance(ordered), frames


class OverAllFn(_OverFn):
    """Takes all rows of a partition, of an input that ends."""

    def process(
        self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        _, found = element
        rows = [self._timed(row) for _, some in found for row in some]
        ordered, results, _ = self._advanced(rows, b"")
        yield from self.emitted_with(ordered, results, timestamp.micros)


class OverFn(_OverFn):
    """Takes rows as they come: a row waits until the watermark has passed its second. Later rows of it are late."""

    PENDING = BagStateSpec("pending", BytesCoder())
    LATER_1 = BagStateSpec("later_1", BytesCoder())
    LATER_2 = BagStateSpec("later_2", BytesCoder())
    LATER_3 = BagStateSpec("later_3", BytesCoder())
    LATER_4 = BagStateSpec("later_4", BytesCoder())
    USED = ReadModifyWriteStateSpec("used", VarIntCoder())
    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())
    DONE = ReadModifyWriteStateSpec("done", VarIntCoder())
    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec)
        self._late = Metrics.counter("rmqio.sql", "rows_late")

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        pending: Any = beam.DoFn.StateParam(PENDING),
        later_1: Any = beam.DoFn.StateParam(LATER_1),
        later_2: Any = beam.DoFn.StateParam(LATER_2),
        later_3: Any = beam.DoFn.StateParam(LATER_3),
        later_4: Any = beam.DoFn.StateParam(LATER_4),
        used: Any = beam.DoFn.StateParam(USED),
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        _, (_, rows) = element
        done_us = done.read()
        waiting = Waiting((pending, later_1, later_2, later_3, later_4), used, done_us)
        earliest: int | None = None
        for row in rows:
            time_us = self._timed(row)[0]
            if done_us is not None and time_us < done_us:
                self._late.inc()
                continue
            waiting.add(time_us, row)
            earliest = time_us if earliest is None else min(earliest, time_us)
        if earliest is None:
            return
        next_us = second_after(earliest)
        waits_for = following.read()
        if waits_for is None or next_us < waits_for:
            following.write(next_us)
            due.set(Timestamp(micros=next_us + self._spec.delay_us))

    @on_timer(DUE)
    def put_out(
        self,
        pending: Any = beam.DoFn.StateParam(PENDING),
        later_1: Any = beam.DoFn.StateParam(LATER_1),
        later_2: Any = beam.DoFn.StateParam(LATER_2),
        later_3: Any = beam.DoFn.StateParam(LATER_3),
        later_4: Any = beam.DoFn.StateParam(LATER_4),
        used: Any = beam.DoFn.StateParam(USED),
        kept: Any = beam.DoFn.StateParam(KEPT),
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[Any]:
        """The watermark has passed a second: its rows, and those before, come out."""
        until_us = following.read()
        if until_us is None:  # a timer that was set anew
            return
        waiting = Waiting((pending, later_1, later_2, later_3, later_4), used, done.read())
        taken, earliest = waiting.take(until_us)
        ordered, results, frames = self._advanced([self._timed(row) for _, row in taken], kept.read() or b"")
        kept.write(frames.kept())
        done.write(until_us)
        if earliest is not None:
            next_us = second_after(earliest)
            following.write(next_us)
            due.set(Timestamp(micros=next_us + self._spec.delay_us))
        else:
            following.clear()
        yield from self.emitted_with(ordered, results, until_us)


class ExpiringOverFn(OverFn):
    """Forgets a key after the time to live, if no row of it waits for the watermark: the next row is its first."""

    LAST = ReadModifyWriteStateSpec("last", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)
    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)

    def __init__(self, spec: OverSpec, ttl_ms: int) -> None:
        super().__init__(spec)
        self._ttl_ms = ttl_ms

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        pending: Any = beam.DoFn.StateParam(OverFn.PENDING),
        later_1: Any = beam.DoFn.StateParam(OverFn.LATER_1),
        later_2: Any = beam.DoFn.StateParam(OverFn.LATER_2),
        later_3: Any = beam.DoFn.StateParam(OverFn.LATER_3),
        later_4: Any = beam.DoFn.StateParam(OverFn.LATER_4),
        used: Any = beam.DoFn.StateParam(OverFn.USED),
        done: Any = beam.DoFn.StateParam(OverFn.DONE),
        following: Any = beam.DoFn.StateParam(OverFn.NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
        kept: Any = beam.DoFn.StateParam(OverFn.KEPT),
        last: Any = beam.DoFn.StateParam(LAST),
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> None:
        found = last.read()
        if found and self._is_over(found, following):  # the timer is late
            kept.clear()
            done.clear()
        last.write(windows.stamp())
        if not found:  # once until it fires: a key that always gets rows would never be looked at
            timer.set((windows.now_ms() + self._ttl_ms) / 1000)
        super().process(element, pending, later_1, later_2, later_3, later_4, used, done, following, due)

    @on_timer(DUE)
    def put_out(
        self,
        pending: Any = beam.DoFn.StateParam(OverFn.PENDING),
        later_1: Any = beam.DoFn.StateParam(OverFn.LATER_1),
        later_2: Any = beam.DoFn.StateParam(OverFn.LATER_2),
        later_3: Any = beam.DoFn.StateParam(OverFn.LATER_3),
        later_4: Any = beam.DoFn.StateParam(OverFn.LATER_4),
        used: Any = beam.DoFn.StateParam(OverFn.USED),
        kept: Any = beam.DoFn.StateParam(OverFn.KEPT),
        done: Any = beam.DoFn.StateParam(OverFn.DONE),
        following: Any = beam.DoFn.StateParam(OverFn.NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
        last: Any = beam.DoFn.StateParam(LAST),
    ) -> Iterator[Any]:
        """The same. The time to live is counted from when the last rows came out, as in Flink."""
        if last.read():
            last.write(windows.stamp())
        yield from super().put_out(pending, later_1, later_2, later_3, later_4, used, kept, done, following, due)

    @on_timer(EXPIRY)
    def expire(
        self,
        done: Any = beam.DoFn.StateParam(OverFn.DONE),
        following: Any = beam.DoFn.StateParam(OverFn.NEXT),
        kept: Any = beam.DoFn.StateParam(OverFn.KEPT),
        last: Any = beam.DoFn.StateParam(LAST),
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> None:
        """Forgets the key, or waits again."""
        found = last.read()
        if found and not self._is_over(found, following):
            timer.set(max(windows.due_ms(found, self._ttl_ms), windows.now_ms() + self._ttl_ms // 2) / 1000)
            return
        for state in (done, kept, last):
            state.clear()

    def _is_over(self, found: bytes, following: Any) -> bool:
        return following.read() is None and windows.due_ms(found, self._ttl_ms) <= windows.now_ms()
