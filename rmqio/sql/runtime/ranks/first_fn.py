"""The first row of each key, given once: by event time when the watermark passes it, by processing time at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.rows import unpacker
from rmqio.sql.runtime import expiry
from rmqio.sql.runtime.groups.aggregate_fn import GroupRowsFn
from rmqio.sql.runtime.ranks.rank_fn import RankSpec
from rmqio.sql.runtime.ranks.ranking import rows_of

_GIVEN: Final = b"\xc0"
"""In the place of a row that was given."""


class _FirstRowFn(GroupRowsFn):
    """The part that both forms of `FirstFn` have: Beam takes one callback for each timer only."""

    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._numbered = self._spec.numbered()
        self._first = self._spec.ranking.compiled()
        self._unpack = unpacker(self._spec.ranking.fields)

    def keep(self, rows: list[bytes], kept: Any, due: Any) -> None:
        """Keeps the first of the rows that were not given yet, until its time."""
        before = kept.read()
        if before == _GIVEN:
            return
        (row,) = self._first([*([before] if before else []), *rows])
        if row != before:
            kept.write(row)
            time_us = self._unpack(row)[self._spec.rank.order[0].column]
            due.set(Timestamp(micros=(time_us + self._spec.delay_us) // 1000 * 1000))

    def given(self, kept: Any, window: Any, timestamp: Any) -> list[Any]:
        """Returns what becomes of the row, and notes that it was given."""
        row = kept.read()
        if not row or row == _GIVEN:
            return []
        kept.write(_GIVEN)
        return self.add(self._numbered([row]), window, timestamp)


class FirstFn(_FirstRowFn):
    """Gives the first row of each key by event time. Elements are (key, payload of rows).

    The row waits until the watermark passes its time: an earlier one can come until then. One that comes later is late,
    and left out. A key whose first row is late gives it at once.
    """

    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(_FirstRowFn.KEPT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        self.keep(rows_of(element[1]), kept, due)

    @on_timer(DUE)
    def give(
        self,
        kept: Any = beam.DoFn.StateParam(_FirstRowFn.KEPT),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        """Gives the row."""
        yield from self.given(kept, window, timestamp)


class ExpiringFirstFn(_FirstRowFn):
    """The same, and forgets a key after the time to live, counted from when its row was given."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)
    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(_FirstRowFn.KEPT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        self.keep(rows_of(element[1]), kept, due)

    @on_timer(DUE)
    def give(
        self,
        kept: Any = beam.DoFn.StateParam(_FirstRowFn.KEPT),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> Iterator[Any]:
        """Gives the row, and forgets it later."""
        yield from self.given(kept, window, timestamp)
        timer.set((expiry.now_ms() + self._spec.rank.ttl_ms) / 1000)

    @on_timer(EXPIRY)
    def expire(self, kept: Any = beam.DoFn.StateParam(_FirstRowFn.KEPT)) -> None:
        """Forgets the key."""
        kept.clear()


class SeenFn(GroupRowsFn):
    """Gives the first row of each key that comes. Elements are (key, payload of rows)."""

    SEEN = ReadModifyWriteStateSpec("seen", BytesCoder())

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._numbered = self._spec.numbered()
        self._first = self._spec.ranking.compiled()

    def process(
        self,
        element: tuple[bytes, bytes],
        seen: Any = beam.DoFn.StateParam(SEEN),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        if not seen.read():
            seen.write(_GIVEN)
            yield from self.add(self._numbered(self._first(rows_of(element[1]))), window, timestamp)


class ExpiringSeenFn(SeenFn):
    """Forgets a key after the time to live, counted from its first row."""

    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[bytes, bytes],
        seen: Any = beam.DoFn.StateParam(SeenFn.SEEN),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
    ) -> Iterator[Any]:
        if not seen.read():
            timer.set((expiry.now_ms() + self._spec.rank.ttl_ms) / 1000)
        yield from super().process(element, seen, window, timestamp)

    @on_timer(EXPIRY)
    def expire(self, seen: Any = beam.DoFn.StateParam(SeenFn.SEEN)) -> None:
        """Forgets the key."""
        seen.clear()
