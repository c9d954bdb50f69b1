"""Windows of processing time: a row belongs to the windows of the moment at which it reaches the aggregate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
import msgspec
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from rmqio.sql.rows import pack
from rmqio.sql.runtime.expiry import now_ms
from rmqio.sql.runtime.groups.aggregate_fn import AggregateSpec, Finisher, GroupRowsFn, MergeFn
from rmqio.sql.runtime.groups.windows import bounds_at, by_clock, last_us

_MILLISECOND_US: Final = 1000
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
