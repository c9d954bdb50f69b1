"""OVER: rows of a partition in order of time, each with the results of functions over the rows before it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.over.frames import Frames
from rmqio.sql.planning.plan import Field
from rmqio.sql.planning.relations import OverCall
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.rows.row_outputs import RowsFn

GRAIN_US: Final = 1_000_000
"""Rows of one second come out together, when the watermark passes its end: a timer for each row would read the state
of its partition each time."""
_TIME: Final = struct.Struct(">q")
"""The time of a row, before its bytes."""


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

    def _advanced(self, rows: list[tuple[int, bytes, tuple[Any, ...]]], kept: bytes) -> tuple[list[Any], Frames]:
        """The rows in order, with the results, and the frames after them."""
        frames = Frames(self._spec.calls, self._spec.time, self._spec.fields, kept)
        ordered = [values for _, _, values in sorted(rows, key=lambda each: each[:2])]
        results = frames.advance(ordered)
        return [row + found for row, found in zip(ordered, results, strict=True)], frames


class OverAllFn(_OverFn):
    """Takes all rows of a partition, of an input that ends."""

    def process(
        self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        _, found = element
        rows = [self._timed(row) for _, some in found for row in some]
        yield from self.emitted(self._advanced(rows, b"")[0], timestamp.micros)


class OverFn(_OverFn):
    """Takes rows as they come: a row waits until the watermark has passed its second. Later rows of it are late."""

    PENDING = BagStateSpec("pending", BytesCoder())
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
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        _, (_, rows) = element
        done_us = done.read()
        earliest: int | None = None
        for row in rows:
            time_us = self._timed(row)[0]
            if done_us is not None and time_us < done_us:
                self._late.inc()
                continue
            pending.add(_TIME.pack(time_us) + row)
            earliest = time_us if earliest is None else min(earliest, time_us)
        if earliest is None:
            return
        next_us = _second_after(earliest)
        waits_for = following.read()
        if waits_for is None or next_us < waits_for:
            following.write(next_us)
            due.set(Timestamp(micros=next_us + self._spec.delay_us))

    @on_timer(DUE)
    def put_out(
        self,
        pending: Any = beam.DoFn.StateParam(PENDING),
        kept: Any = beam.DoFn.StateParam(KEPT),
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[Any]:
        """The watermark has passed a second: its rows, and those before, come out."""
        until_us = following.read()
        if until_us is None:  # a timer that was set anew
            return
        rows: list[tuple[int, bytes, tuple[Any, ...]]] = []
        others: list[bytes] = []
        earliest = 0
        for each in pending.read():
            (time_us,) = _TIME.unpack_from(each)
            if time_us < until_us:
                rows.append(self._timed(each[_TIME.size :]))
            else:
                earliest = min(earliest, time_us) if others else time_us
                others.append(each)
        found, frames = self._advanced(rows, kept.read() or b"")
        kept.write(frames.kept())
        done.write(until_us)
        pending.clear()
        for each in others:
            pending.add(each)
        if others:
            next_us = _second_after(earliest)
            following.write(next_us)
            due.set(Timestamp(micros=next_us + self._spec.delay_us))
        else:
            following.clear()
        yield from self.emitted(found, until_us)


def _second_after(time_us: int) -> int:
    return (time_us // GRAIN_US + 1) * GRAIN_US
