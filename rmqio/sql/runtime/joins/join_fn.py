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

from rmqio.sql.runtime.joins.expiry import EXPIRY, FOR_EVER
from rmqio.sql.runtime.joins.matching import KeptRows, Matcher, MatchSpec, Rows


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Describes a join.

    Attributes:
      match: the inner join, without an interval.
      ttl_ms: how long a row is kept, in milliseconds of processing time.
      kept: whether the rows of the left and of the right are kept for ever: their input ends.
    """

    match: MatchSpec
    ttl_ms: int
    kept: tuple[bool, bool] = (False, False)


class JoinFn(beam.DoFn):
    """Joins the rows of a key, of inputs that end. Elements are (key, (side, rows)); the output is lists of messages.

    Every row is kept until the end: no row is removed before its partners come. The state of a key is read and decoded
    once in a bundle, and not once for each element.
    """

    LEFT = BagStateSpec("left", BytesCoder())
    RIGHT = BagStateSpec("right", BytesCoder())

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._matcher = Matcher(self._spec.match)

    def start_bundle(self) -> None:
        self._kept = KeptRows()

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        left: Any = beam.DoFn.StateParam(LEFT),
        right: Any = beam.DoFn.StateParam(RIGHT),
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        key, (side, packed) = element
        own, other = (right, left) if side else (left, right)
        for row in packed:
            own.add(row)
        kept = self._kept.of(key)
        partners = kept[1 - side]
        if partners is None:
            partners = kept[1 - side] = self._matcher.rows(1 - side, list(other.read()))
            self._kept.count += len(partners.rows)
        if partners.rows or kept[side] is not None:
            yield from self._joined(side, self._matcher.rows(side, packed), kept, partners, timestamp.micros)

    def _joined(self, side: int, rows: Rows, kept: list[Rows | None], partners: Rows, time_us: int) -> Iterator[Any]:
        """Yields what becomes of the pairs of new rows, which are added to the decoded ones of their key."""
        if (own := kept[side]) is not None:
            self._matcher.add(own, rows)
            self._kept.count += len(rows.rows)
        for pairs in self._matcher.pairs(side, rows, partners):
            yield from self._matcher.outputs(pairs, time_us)


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
        key, (side, packed) = element
        own, other = (right, left) if side else (left, right)
        now_ms = time.time_ns() // 1_000_000
        is_kept = self._spec.kept[side]
        until_ms = FOR_EVER if is_kept else now_ms + self._spec.ttl_ms
        until = EXPIRY.pack(until_ms)
        for row in packed:
            own.add(until + row)
        if not is_kept and not is_set.read():
            expiry.set(until_ms / 1000)
            is_set.write(True)
        kept = self._kept.of(key)
        partners = kept[1 - side]
        if partners is None:
            partners = kept[1 - side] = self._decoded(1 - side, list(other.read()))
            self._kept.count += len(partners.rows)
        if partners.rows or kept[side] is not None:
            rows = self._matcher.rows(side, packed)
            rows.times = [until_ms] * len(packed)
            yield from self._joined(side, rows, kept, self._living(1 - side, partners, now_ms), timestamp.micros)

    def _decoded(self, side: int, kept: list[bytes]) -> Rows:
        """The rows of a side. Their times are those until which they are kept."""
        rows = self._matcher.rows(side, [row[EXPIRY.size :] for row in kept])
        rows.times = [EXPIRY.unpack_from(row)[0] for row in kept]
        return rows

    def _living(self, side: int, rows: Rows, now_ms: int) -> Rows:
        """The rows that are not over their time."""
        if self._spec.kept[side] or all(each > now_ms for each in rows.times):
            return rows
        return Rows([row for row, until_ms in zip(rows.rows, rows.times, strict=True) if until_ms > now_ms])

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
