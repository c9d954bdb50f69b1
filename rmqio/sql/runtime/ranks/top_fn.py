"""The first rows so far of partitions, of inputs without end: a table gets what changes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BooleanCoder, BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from rmqio.sql.runtime import expiry
from rmqio.sql.runtime.ranks.rank_fn import RankSpec
from rmqio.sql.runtime.ranks.ranking import payload, rows_of
from rmqio.sql.runtime.writes.changes import ChangesFn, changes


class TopFn(ChangesFn):
    """Keeps the first rows of each key. Elements are (key, payload of rows); the output is lists of messages.

    The rows in the table are computed from those that were kept before: messages are only for rows that differ.
    """

    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec.fragment)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._numbered = self._spec.numbered()
        self._first = self._spec.ranking.compiled()

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(KEPT),
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        before = rows_of(kept.read() or b"\x90")
        after = self.merged(before, rows_of(element[1]))
        if after != before:
            kept.write(payload(after))
        yield from self.changed(before, after, timestamp)

    def changed(self, before: list[bytes], after: list[bytes], timestamp: Any) -> list[Any]:
        """Returns what the table gets, unless it waits for more."""
        if before == after:
            return []
        return self.add(changes(self._shown(before, was_there=True), self._shown(after)), timestamp)

    def merged(self, kept: list[bytes], given: list[bytes]) -> list[bytes]:
        """Returns what is kept of old and new rows."""
        return self._first([*kept, *given])

    def _shown(self, kept: list[bytes], *, was_there: bool = False) -> list[Any]:
        return self.messages_of(self._numbered(self.first(kept)), was_there=was_there)

    def first(self, kept: list[bytes]) -> list[bytes]:
        """Returns the first rows of those that are kept."""
        return kept


class TopOfGroupsFn(TopFn):
    """Keeps all rows of each key, since they change. Given and kept lists alternate between identity and row.

    A row that is empty is no longer there.
    """

    def merged(self, kept: list[bytes], given: list[bytes]) -> list[bytes]:
        rows = dict(zip(kept[::2], kept[1::2], strict=True))
        rows.update(zip(given[::2], given[1::2], strict=True))
        return [part for pair in rows.items() if pair[1] for part in pair]

    def first(self, kept: list[bytes]) -> list[bytes]:
        return self._first(kept[1::2])


class ExpiringTopFn(TopFn):
    """Forgets a key whose last row came longer ago than the time to live. The table keeps its rows."""

    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)
    IS_SET = ReadModifyWriteStateSpec("is_set", BooleanCoder())

    def process(
        self,
        element: tuple[bytes, bytes],
        kept: Any = beam.DoFn.StateParam(TopFn.KEPT),
        timestamp: Any = beam.DoFn.TimestampParam,
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> Iterator[Any]:
        found = kept.read()
        is_over = not found or expiry.due_ms(found, self._spec.rank.ttl_ms) <= expiry.now_ms()
        before = [] if is_over else rows_of(found[expiry.SIZE :])
        after = self.merged(before, rows_of(element[1]))
        kept.write(expiry.stamp() + payload(after))
        if not is_set.read():
            timer.set((expiry.now_ms() + self._spec.rank.ttl_ms) / 1000)
            is_set.write(True)
        yield from self.changed(before, after, timestamp)

    @on_timer(EXPIRY)
    def expire(
        self,
        kept: Any = beam.DoFn.StateParam(TopFn.KEPT),
        timer: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> None:
        """Forgets the key, or waits again: the timer is not put off by rows."""
        found = kept.read()
        due_ms = expiry.due_ms(found, self._spec.rank.ttl_ms) if found else 0
        if due_ms > expiry.now_ms():
            timer.set(due_ms / 1000)
        else:
            kept.clear()
            is_set.clear()


class ExpiringTopOfGroupsFn(ExpiringTopFn, TopOfGroupsFn):
    """Forgets a group, too, whose last change came longer ago, unless the table shows it. Rows begin with its stamp."""

    def merged(self, kept: list[bytes], given: list[bytes]) -> list[bytes]:
        now = expiry.stamp()
        pairs = zip(given[::2], given[1::2], strict=True)
        rows = super().merged(kept, [part for group, row in pairs for part in (group, now + row if row else b"")])
        shown, now_ms = set(self.first(rows)), expiry.now_ms()
        return [
            part
            for group, row in zip(rows[::2], rows[1::2], strict=True)
            if row[expiry.SIZE :] in shown or expiry.due_ms(row, self._spec.rank.ttl_ms) > now_ms
            for part in (group, row)
        ]

    def first(self, kept: list[bytes]) -> list[bytes]:
        return self._first([row[expiry.SIZE :] for row in kept[1::2]])
