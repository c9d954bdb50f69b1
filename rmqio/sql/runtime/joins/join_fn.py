"""The join of two streams: each row waits for its partners as long as its time to live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import BooleanCoder, BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.joins.expiry import EXPIRY, FOR_EVER
from rmqio.sql.runtime.rows.failed_rows import FailedRows
from rmqio.sql.runtime.rows.outputs import outputs


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Describes a join.

    Attributes:
      left, right: the columns of the inputs.
      ttl_ms: how long a row is kept, in milliseconds of processing time.
      fragment: what happens to a pair, which is one row of both.
      side: if the rows go into another join, which input of it they are.
      kept: whether the rows of the left and of the right are kept for ever: their input ends.
    """

    left: tuple[Field, ...]
    right: tuple[Field, ...]
    ttl_ms: int
    fragment: Fragment
    side: int = 0
    kept: tuple[bool, bool] = (False, False)


class JoinFn(beam.DoFn):
    """Joins the rows of a key, of inputs that end. Elements are (key, (side, rows)); the output is lists of messages.

    Every row is kept until the end: no row is removed before its partners come.
    """

    LEFT = BagStateSpec("left", BytesCoder())
    RIGHT = BagStateSpec("right", BytesCoder())

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._failed_rows = FailedRows(spec.fragment)

    def setup(self) -> None:
        self._run = compiled(self._spec.fragment)
        self._unpack = unpacker(self._spec.left), unpacker(self._spec.right)

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        left: Any = beam.DoFn.StateParam(LEFT),
        right: Any = beam.DoFn.StateParam(RIGHT),
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        _, (side, rows) = element
        own, other = (right, left) if side else (left, right)
        partners = list(other.read())
        for row in rows:
            own.add(row)
        if partners:
            yield from self._joined(side, rows, partners, timestamp.micros)

    def _joined(self, side: int, rows: list[bytes], partners: list[bytes], time_us: int) -> Iterator[Any]:
        own, other = (self._unpack[1], self._unpack[0]) if side else self._unpack
        found = list(map(other, partners))
        pairs = [partner + row if side else row + partner for row in map(own, rows) for partner in found]
        mapped = self._run(pairs)
        if mapped.failed or mapped.nulls:
            yield from self._failed_rows.outputs(pairs, mapped.failed, mapped.nulls)
        if mapped.values:
            yield from outputs(self._spec.fragment.target, mapped.values, self._spec.side, time_us)


class ExpiringJoinFn(JoinFn):
    """Joins the rows of a key, of inputs without end: a row is kept for the time to live after it came.

    State is by key. A timer of processing time removes the rows that are over their time. It is set once until it
    fires: if each row put it off, a key that always gets rows would keep all of them.
    """

    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)
    IS_SET = ReadModifyWriteStateSpec("is_set", BooleanCoder())

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        left: Any = beam.DoFn.StateParam(JoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(JoinFn.RIGHT),
        timestamp: Any = beam.DoFn.TimestampParam,
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> Iterator[Any]:
        _, (side, rows) = element
        own, other = (right, left) if side else (left, right)
        now_ms = time.time_ns() // 1_000_000
        partners = [row[8:] for row in other.read() if EXPIRY.unpack_from(row)[0] > now_ms]
        is_kept = self._spec.kept[side]
        until = EXPIRY.pack(FOR_EVER if is_kept else now_ms + self._spec.ttl_ms)
        for row in rows:
            own.add(until + row)
        if not is_kept and not is_set.read():
            expiry.set((now_ms + self._spec.ttl_ms) / 1000)
            is_set.write(True)
        if partners:
            yield from self._joined(side, rows, partners, timestamp.micros)

    @on_timer(EXPIRY)
    def expire(
        self,
        left: Any = beam.DoFn.StateParam(JoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(JoinFn.RIGHT),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> None:
        """Removes the rows that are over their time."""
        now_ms = time.time_ns() // 1_000_000
        next_ms = 0
        for state, is_kept in zip((left, right), self._spec.kept, strict=True):
            if is_kept:
                continue
            kept = [row for row in state.read() if EXPIRY.unpack_from(row)[0] > now_ms]
            state.clear()
            for row in kept:
                state.add(row)
                expiry_ms = EXPIRY.unpack_from(row)[0]
                next_ms = min(next_ms or expiry_ms, expiry_ms)
        if next_ms:
            expiry.set(next_ms / 1000)
        else:
            is_set.clear()
