"""Groups without a window, of inputs without end, with a time to live: merged, given, and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from rmqio.sql.runtime import expiry
from rmqio.sql.runtime.groups.aggregate_fn import AggregateSpec, MergeFn
from rmqio.sql.runtime.groups.emits import UPDATES_S

_WAITS: Final = 1
"""After the stamp: rows have come since the group was given."""
_HEAD: Final = expiry.SIZE + 1


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
        kept.write(expiry.stamp() + bytes([_WAITS]) + merged)
        if not _waits(found):
            due.set(expiry.now_ms() / 1000 + UPDATES_S)

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
            kept.write(found[: expiry.SIZE] + b"\0" + found[_HEAD:])
        due.set(expiry.due_ms(found, self._ttl_ms) / 1000)

    def _is_over(self, found: bytes) -> bool:
        return not _waits(found) and expiry.due_ms(found, self._ttl_ms) <= expiry.now_ms()


def _waits(found: bytes) -> bool:
    return bool(found) and found[expiry.SIZE] == _WAITS
