"""The findings of an audit: counts, which are exact, and places, of which the first are kept."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rmqio.audit.reading import Entries
from rmqio.model import MessageQueue

# Pairs the rows of two topics by their hashes: an identity that is there twice is wanted twice.

Numbers = npt.NDArray[Any]


class Matched(NamedTuple):
    """The result of pairing rows with the same hashes."""

    sent: Entries
    """Rows of the first topic that arrived; `got` has those of the second, in the same order."""
    got: Entries
    lost: Entries
    """Rows of the first topic that are not in the second."""
    doubled: Entries
    """Rows of the second topic that are copies too many."""
    doubled_of: Entries
    """The rows of the first topic that they are copies of, in the same order."""
    foreign: Entries
    """Rows of the second topic whose identity is not in the first."""


def match(sent: Entries, got: Entries, letters: Collection[int] = ()) -> Matched:
    """Pair rows: of one identity, the first with the first, and so on, in order of time.

    Args:
      letters: numbers of queues with dead letters. A letter counts only for a message that is not in the second topic:
        one that was sent back, or could not be written to another topic, has a letter and has arrived.
    """
    if not letters:
        return _matched(sent, got)
    is_letter = np.isin(got["queue"], list(letters))
    found = _matched(sent, got[~is_letter])
    rest = _matched(found.lost, got[is_letter])
    return found._replace(
        sent=np.concatenate((found.sent, rest.sent)), got=np.concatenate((found.got, rest.got)), lost=rest.lost
    )


def _matched(sent: Entries, got: Entries) -> Matched:
    sent, got = _sorted(sent), _sorted(got)
    sent_ids, sent_at, sent_counts = _groups(sent)
    got_ids, got_at, got_counts = _groups(got)
    wanted = _looked_up(sent_ids, got_ids, got_counts)
    allowed = _looked_up(got_ids, sent_ids, sent_counts)
    sent_ranks, got_ranks = _ranks(sent_at, sent_counts), _ranks(got_at, got_counts)
    arrives = sent_ranks < np.repeat(wanted, sent_counts)
    allowed_of_each = np.repeat(allowed, got_counts)
    is_due = got_ranks < allowed_of_each
    doubled = got[~is_due & (allowed_of_each > 0)]
    copied = sent[sent_at[np.searchsorted(sent_ids, doubled["id"])]]
    return Matched(sent[arrives], got[is_due], sent[~arrives], doubled, copied, got[allowed_of_each == 0])


def _sorted(rows: Entries) -> Entries:
    rows = rows[np.argsort(rows["id"], kind="stable")]
    again = rows["id"][1:] == rows["id"][:-1]
    if not again.any():
        return rows
    return rows[np.lexsort((rows["offset"], rows["queue"], rows["time"], rows["id"]))]


def _groups(rows: Entries) -> tuple[Numbers, Numbers, Numbers]:
    """The hashes of sorted rows, and for each where it begins and how often it is there."""
    found, at, counts = np.unique(rows["id"], return_index=True, return_counts=True)
    return found, at, counts


def _ranks(at: Numbers, counts: Numbers) -> Numbers:
    """For each row, how many of its hash stand before it."""
    ranks: Numbers = np.arange(int(counts.sum())) - np.repeat(at, counts)
    return ranks


def _looked_up(ids: Numbers, others: Numbers, counts: Numbers) -> Numbers:
    """For each hash, the count of the other side."""
    if not len(others):
        return np.zeros(len(ids), np.int64)
    places = np.minimum(np.searchsorted(others, ids), len(others) - 1)
    return np.where(others[places] == ids, counts[places], 0)


# Messages of one queue that are out of order in a queue of the second topic.
#
# Pairs go to files by queue and range of offsets where they are many, so that one range at a time is in memory.

_PAIR: Final = np.dtype(
    [("to", "<u2"), ("at", "<i8"), ("from", "<u2"), ("offset", "<i8"), ("time", "<i8"), ("came", "<i8")]
)
_RANGE_BITS: Final = 20
"""Offsets of one file: a million."""

Pairs = npt.NDArray[Any]


class Order:
    """Takes pairs in any order, and finds those that are out of order. A context manager, which deletes its files.

    Args:
      most_rows: the number of pairs from which they go to files.
    """

    def __init__(self, most_rows: int, folder: Path | None = None) -> None:
        self._most, self._folder = most_rows, folder
        self._pairs: list[Pairs] = []
        self._waiting = 0
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._names: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._files is not None:
            self._files.cleanup()

    def add(self, sent: Entries, got: Entries) -> None:
        """Add pairs: `got[n]` is what came of `sent[n]`."""
        made = np.empty(len(sent), _PAIR)
        made["to"], made["at"], made["came"] = got["queue"], got["offset"], got["time"]
        made["from"], made["offset"], made["time"] = sent["queue"], sent["offset"], sent["time"]
        self._pairs.append(made)
        self._waiting += len(made)
        if self._waiting >= self._most:
            self._spill()

    def disorder(self) -> Iterator[Pairs]:
        """Yield the pairs that stand behind one with a higher offset of the same queue."""
        if self._files is None:
            runs: Iterator[Pairs] = iter([np.concatenate(self._pairs)] if self._pairs else [])
        else:
            self._spill()
            runs = (np.fromfile(self._path(name), _PAIR) for name in sorted(self._names))
        highest: dict[tuple[int, int], int] = {}
        for pairs in runs:
            pairs = pairs[np.lexsort((pairs["at"], pairs["from"], pairs["to"]))]
            lines = pairs["to"].astype(np.int64) << 16 | pairs["from"]
            bounds = np.flatnonzero(np.diff(lines)) + 1
            for line in np.split(pairs, bounds):
                if not len(line):
                    continue
                key = int(line["to"][0]), int(line["from"][0])
                before = np.maximum.accumulate(np.concatenate(([highest.get(key, -1)], line["offset"])))
                highest[key] = int(before[-1])
                wrong = line[line["offset"] < before[:-1]]
                if len(wrong):
                    yield wrong

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="rmqio-audit-", dir=self._folder)
        if not self._waiting:
            return
        pairs = np.concatenate(self._pairs)
        self._pairs, self._waiting = [], 0
        pairs = pairs[np.lexsort((pairs["at"], pairs["to"]))]
        ranges = pairs["at"] >> _RANGE_BITS
        cuts = np.flatnonzero(np.diff(pairs["to"].astype(np.int64)) | np.diff(ranges)) + 1
        for part in np.split(pairs, cuts):
            name = int(part["to"][0]), int(part["at"][0]) >> _RANGE_BITS
            self._names.add(name)
            with self._path(name).open("ab") as file:
                part.tofile(file)

    def _path(self, name: tuple[int, int]) -> Path:
        assert self._files is not None
        return Path(self._files.name) / f"{name[0]:05d}-{name[1]:012d}"


_MOST_PLACES: Final = 200_000
_DELAY_BUCKETS: Final = 41

KINDS: Final = ("lost", "doubled", "late", "out_of_order", "foreign", "pending")


class Place(NamedTuple):
    """A message that something happened to."""

    kind: str
    queue: MessageQueue
    """The queue of the first topic; of a foreign message, the second's."""
    offset: int
    time_ms: int
    id: int
    """The hash of its identity."""
    to_queue: MessageQueue | None = None
    to_offset: int = -1
    delay_ms: int = 0


@dataclass
class Counts:
    """Counts of a queue or a window."""

    sent: int = 0
    arrived: int = 0
    in_dead_letters: int = 0
    """Are not in the second topic, but dead letters."""
    lost: int = 0
    pending: int = 0
    doubled: int = 0
    foreign: int = 0
    late: int = 0
    out_of_order: int = 0
    max_delay_ms: int = 0
    sum_delay_ms: int = 0

    def as_dict(self) -> dict[str, int]:
        shown = dict(vars(self))
        shown.pop("sum_delay_ms")
        return {**shown, "mean_delay_ms": round(self.sum_delay_ms / self.arrived) if self.arrived else 0}


@dataclass
class Findings:
    """Collects what came of the messages.

    Args:
      window_ms: length of a window of the first topic's store time.
      late_ms: a message that arrives later than this is late.
      pending_since_ms: a message that was stored at or after this is on its way, and not lost.
      old_before_ms: a message that was stored before this is about to be forgotten.
    """

    window_ms: int
    late_ms: int
    pending_since_ms: int
    old_before_ms: int = 0
    total: Counts = field(default_factory=Counts)
    old: Counts = field(default_factory=Counts)
    """The part of `total` that is about to be forgotten; only sent, lost, doubled, late and out of order."""
    sources: dict[MessageQueue, Counts] = field(default_factory=dict)
    sinks: dict[MessageQueue, Counts] = field(default_factory=dict)
    windows: dict[int, Counts] = field(default_factory=dict)
    delays: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(_DELAY_BUCKETS, np.int64))
    """How many messages took less than 2 ** n milliseconds."""
    places: dict[str, list[Place]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def add(self, found: Matched, sources: list[MessageQueue], sinks: list[MessageQueue], letters: set[int]) -> None:
        """Add what was matched; `letters`: numbers of queues with dead letters."""
        waits = found.lost["time"] >= self.pending_since_ms
        lost, pending = found.lost[~waits], found.lost[waits]
        is_letter = np.isin(found.got["queue"], list(letters))
        arrived, got = found.sent[~is_letter], found.got[~is_letter]
        delays = got["time"] - arrived["time"]
        is_late = delays > self.late_ms
        late, late_got = arrived[is_late], got[is_late]
        for name, rows in (
            ("sent", np.concatenate((found.sent, found.lost))), ("arrived", arrived),
            ("in_dead_letters", found.sent[is_letter]), ("lost", lost), ("pending", pending), ("late", late),
        ):  # fmt: skip
            self._count(name, rows, sources, self.sources)
            self._count_windows(name, rows)
            self._count_old(name, rows)
            setattr(self.total, name, getattr(self.total, name) + len(rows))
        self._count_old("doubled", found.doubled_of)
        self._count_windows("doubled", found.doubled_of)
        for name, rows in (("arrived", got), ("in_dead_letters", found.got[is_letter]), ("doubled", found.doubled),
                           ("foreign", found.foreign), ("late", late_got)):  # fmt: skip
            self._count(name, rows, sinks, self.sinks)
        self.total.doubled += len(found.doubled)
        self.total.foreign += len(found.foreign)
        self._add_delays(arrived, delays)
        self._keep("lost", lost, sources)
        self._keep("pending", pending, sources)
        self._keep("foreign", found.foreign, sinks)
        self._keep("doubled", found.doubled_of, sources, found.doubled, sinks)
        self._keep("late", late, sources, late_got, sinks)

    def known_copies(
        self, sent: Entries, sources: list[MessageQueue], hashes: npt.NDArray[Any]
    ) -> tuple[Entries, npt.NDArray[Any]]:
        """Count messages of no message there as doubled, if they have one of the given hashes: those of further values
        of `sent`. Returns the rows that they are copies of, and when the copies came.
        """
        by_hash = {place.id: place for place in self.places["foreign"]}
        there = np.flatnonzero(np.isin(hashes, np.array([*by_hash], np.uint64)))
        came = np.array([by_hash[int(hashes[at])].time_ms for at in there], np.int64)
        rows = sent[there]
        for row, at in zip(rows.tolist(), there.tolist(), strict=True):
            place = by_hash[int(hashes[at])]
            id_, queue, offset, time_ms = row
            self.places["doubled"].append(
                Place(
                    "doubled", sources[queue], offset, time_ms, id_, place.queue, place.offset, place.time_ms - time_ms
                )
            )
            for counts in (self.total, self.sinks[place.queue]):
                counts.foreign -= 1
                counts.doubled += 1
        found = {by_hash[int(hashes[at])] for at in there.tolist()}
        self.places["foreign"] = [place for place in self.places["foreign"] if place not in found]
        self._count_old("doubled", rows)
        self._count_windows("doubled", rows)
        return rows, came

    def add_disorder(self, pairs: npt.NDArray[Any], sources: list[MessageQueue], sinks: list[MessageQueue]) -> None:
        """Add pairs of `Order.disorder`."""
        self.total.out_of_order += len(pairs)
        self._count("out_of_order", pairs, sinks, self.sinks, "to")
        self._count_old("out_of_order", pairs)
        room = _MOST_PLACES - len(self.places["out_of_order"])
        for pair in pairs[:room].tolist():
            to, at, source, offset, time_ms, came_ms = pair
            self.places["out_of_order"].append(
                Place("out_of_order", sources[source], offset, time_ms, 0, sinks[to], at, came_ms - time_ms)
            )

    def first(self, kind: str, most: int) -> list[Place]:
        """Return the earliest messages of a kind."""
        return heapq.nsmallest(most, self.places[kind], key=lambda place: (place.time_ms, place.queue, place.offset))

    def delay_within(self, share: float) -> int:
        """Return an upper bound of the delay of this share of the messages: a power of two, or the longest delay."""
        total = int(self.delays.sum())
        if not total:
            return 0
        bound = 1 << int(np.searchsorted(np.cumsum(self.delays), share * total))
        return min(bound, self.total.max_delay_ms)

    def _add_delays(self, sent: Entries, delays: npt.NDArray[Any]) -> None:
        if not len(delays):
            return
        delays = np.maximum(delays, 0)
        self.total.max_delay_ms = max(self.total.max_delay_ms, int(delays.max()))
        self.total.sum_delay_ms += int(delays.sum())
        buckets = np.ceil(np.log2(np.maximum(delays, 1) + 1)).astype(np.int64)
        self.delays += np.bincount(np.minimum(buckets, _DELAY_BUCKETS - 1), minlength=_DELAY_BUCKETS)
        numbers, places = np.unique(sent["time"] // self.window_ms, return_inverse=True)
        most = np.zeros(len(numbers), np.int64)
        np.maximum.at(most, places, delays)
        sums = np.bincount(places, weights=delays)
        for number, high, whole in zip(numbers.tolist(), most.tolist(), sums.tolist(), strict=True):
            window = self.windows.setdefault(number * self.window_ms, Counts())
            window.max_delay_ms = max(window.max_delay_ms, high)
            window.sum_delay_ms += int(whole)

    @staticmethod
    def _count(
        name: str, rows: npt.NDArray[Any], queues: list[MessageQueue], into: dict[MessageQueue, Counts],
        column: str = "queue",
    ) -> None:  # fmt: skip
        for number, count in enumerate(np.bincount(rows[column], minlength=len(queues)).tolist()):
            counts = into.setdefault(queues[number], Counts())
            setattr(counts, name, getattr(counts, name) + count)

    def _count_old(self, name: str, rows: npt.NDArray[Any]) -> None:
        count = int((rows["time"] < self.old_before_ms).sum())
        setattr(self.old, name, getattr(self.old, name) + count)

    def _count_windows(self, name: str, rows: Entries) -> None:
        numbers, counts = np.unique(rows["time"] // self.window_ms, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            window = self.windows.setdefault(number * self.window_ms, Counts())
            setattr(window, name, getattr(window, name) + count)

    def _keep(
        self,
        kind: str,
        rows: Entries,
        queues: list[MessageQueue],
        got: Entries | None = None,
        sinks: list[MessageQueue] | None = None,
    ) -> None:
        kept = self.places[kind]
        room = _MOST_PLACES - len(kept)
        rows = rows[:room]
        there = rows.tolist() if got is None else got[:room].tolist()
        for (id_, queue, offset, time_ms), (_, to, at, came_ms) in zip(rows.tolist(), there, strict=True):
            if got is None or sinks is None:
                kept.append(Place(kind, queues[queue], offset, time_ms, id_))
            else:
                kept.append(Place(kind, queues[queue], offset, time_ms, id_, sinks[to], at, came_ms - time_ms))
