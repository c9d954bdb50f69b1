"""Ranks in a pipeline: each form has its own way to run, and an input that ends has one for most of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BooleanCoder, BytesCoder, Coder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.compile.description import Fragment, ToRanks
from rmqio.sql.planning.plan import Rank
from rmqio.sql.planning.ranks import (
    Form,
    form_of,
    is_by_arrival,
    stated_order,
    window_and_column,
    window_end,
)
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.aggregate_fn import GroupRowsFn
from rmqio.sql.runtime.outputs import ChangesFn, Computing, changes
from rmqio.sql.runtime.ranking import Ranking, payload, rows_of

# The first rows of partitions, of inputs that end and of windows: merged after the shuffle, given once.


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank, and the fragment for its rows.

    Attributes:
      rank: the plan.
      ranking: the order of its rows.
      fragment: what happens to the rows.
      side: if they go into a join, which input of it they are.
      delay_us: by how much the times of the rows can be behind the watermark.
    """

    rank: Rank
    ranking: Ranking
    fragment: Fragment
    side: int = 0
    delay_us: int = 0

    def numbered(self) -> Callable[[list[bytes]], list[tuple[Any, ...]]]:
        """Returns the function from packed rows in their order to rows, with numbers if they have some."""
        unpack = unpacker(self.ranking.fields)
        if not self.rank.is_numbered:
            return lambda rows: list(map(unpack, rows))
        return lambda rows: [(*unpack(row), number) for number, row in enumerate(rows, 1)]


class FirstRowsFn(beam.CombineFn):
    """Merges payloads: lists of packed rows. The accumulator is a payload, too; empty: there was none."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def setup(self, *_: object, **__: object) -> None:
        self._first = self._ranking.compiled()

    def create_accumulator(self) -> bytes:
        return b""

    def add_input(self, accumulator: bytes, element: bytes) -> bytes:
        return self.merge_accumulators((accumulator, element))

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        found = [each for each in accumulators if each]
        if len(found) < 2:
            return found[0] if found else b""
        return payload(self._first([row for each in found for row in rows_of(each)]))

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator

    def get_accumulator_coder(self) -> Coder:
        return BytesCoder()


class RankedFn(GroupRowsFn):
    """Runs the fragment on the first rows of partitions, which are complete."""

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
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        yield from self.add(self._numbered(self._first(rows_of(element[1]))), window, timestamp)


# The first row of each key, given once: by event time when the watermark passes it, by processing time at once.

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
        timer.set((windows.now_ms() + self._spec.rank.ttl_ms) / 1000)

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
            timer.set((windows.now_ms() + self._spec.rank.ttl_ms) / 1000)
        yield from super().process(element, seen, window, timestamp)

    @on_timer(EXPIRY)
    def expire(self, seen: Any = beam.DoFn.StateParam(SeenFn.SEEN)) -> None:
        """Forgets the key."""
        seen.clear()


# The first rows so far of partitions, of inputs without end: a table gets what changes of them.


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
        is_over = not found or windows.due_ms(found, self._spec.rank.ttl_ms) <= windows.now_ms()
        before = [] if is_over else rows_of(found[windows.SIZE :])
        after = self.merged(before, rows_of(element[1]))
        kept.write(windows.stamp() + payload(after))
        if not is_set.read():
            timer.set((windows.now_ms() + self._spec.rank.ttl_ms) / 1000)
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
        due_ms = windows.due_ms(found, self._spec.rank.ttl_ms) if found else 0
        if due_ms > windows.now_ms():
            timer.set(due_ms / 1000)
        else:
            kept.clear()
            is_set.clear()


class ExpiringTopOfGroupsFn(ExpiringTopFn, TopOfGroupsFn):
    """Forgets a group, too, whose last change came longer ago, unless the table shows it. Rows begin with its stamp."""

    def merged(self, kept: list[bytes], given: list[bytes]) -> list[bytes]:
        now = windows.stamp()
        pairs = zip(given[::2], given[1::2], strict=True)
        rows = super().merged(kept, [part for group, row in pairs for part in (group, now + row if row else b"")])
        shown, now_ms = set(self.first(rows)), windows.now_ms()
        return [
            part
            for group, row in zip(rows[::2], rows[1::2], strict=True)
            if row[windows.SIZE :] in shown or windows.due_ms(row, self._spec.rank.ttl_ms) > now_ms
            for part in (group, row)
        ]

    def first(self, kept: list[bytes]) -> list[bytes]:
        return self._first([row[windows.SIZE :] for row in kept[1::2]])


_LEAST_WINDOW: Final = Duration(micros=1000)
"""Rows of a window come at its last time, so that any window that ends there fires with it."""


def target_of(rank: Rank) -> ToRanks:
    """Returns the form in which rows go into a rank whose own rows do not change."""
    end = window_end(rank)
    found = None if end is None else window_and_column(rank.input, end)
    zone = None if found is None else found[0].local_zone
    time = stated_order(rank)[0].column if form_of(rank) is Form.FIRST else end
    return ToRanks(rank.keys, end, Ranking.of(rank, by_arrival=is_by_arrival(rank)), delay_us(rank.input), zone, time)


def ranked(
    rank: Rank,
    rows: Any,
    fragment: Fragment,
    side: int,
    computing: Computing,
    label: str,
    *,
    ends: bool,
) -> Any:
    """Returns the first rows of partitions.

    Args:
      rows: pairs of key and payload, see `target_of`.
      fragment: what happens to the rows.
      side: if they go into a join, which input of it they are.
      computing: adds the DoFns.
      label: of the transforms.
      ends: whether the input ends.
    """
    spec = RankSpec(rank, Ranking.of(rank, by_arrival=is_by_arrival(rank)), fragment, side, delay_us(rank.input))
    form = form_of(rank)
    expires = rank.ttl_ms > 0 and not ends
    if form is Form.FIRST:
        if (
            ends
        ):  # Beam's Direct runner loses timers of one name of two DoFns in one stage: each gets a stage of its own
            rows = rows | f"{label}: apart" >> beam.Reshuffle()
        return computing.add(rows, label, (ExpiringFirstFn if expires else FirstFn)(spec))
    if form is Form.SEEN and not ends:
        return computing.add(rows, label, (ExpiringSeenFn if expires else SeenFn)(spec))
    if form is Form.UPDATES and not ends:
        return computing.add(rows, label, (ExpiringTopFn if expires else TopFn)(spec))
    if form is Form.WINDOW:
        rows = rows | f"{label}: windows" >> beam.WindowInto(FixedWindows(_LEAST_WINDOW))
    merged = rows | label >> beam.CombinePerKey(FirstRowsFn(spec.ranking))
    found = computing.add(merged, f"{label}: rows", RankedFn(spec))
    return found | f"{label}: all windows" >> beam.WindowInto(GlobalWindows()) if form is Form.WINDOW else found


def of_groups(rank: Rank, rows: Any, fragment: Fragment, computing: Computing, label: str) -> Any:
    """Returns the first rows of partitions of groups that change. `rows`: see `GroupsToRanksFn`."""
    spec = RankSpec(rank, Ranking.of(rank, by_arrival=is_by_arrival(rank)), fragment)
    return computing.add(rows, label, (ExpiringTopOfGroupsFn if rank.ttl_ms else TopOfGroupsFn)(spec))
