"""Reads topics into rows of hashes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from rmqio.audit.identity import Identity, Text, hash_of
from rmqio.audit.sketch import BLOCK, Key, Sketch, decode
from rmqio.dead_letters.letters import Part, ranges_of, read_ranges
from rmqio.errors import WireError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue, Record
from rmqio.start import StartFrom, StopAt

# The messages of a topic as rows of numbers, kept in memory, or in files of a part of the hashes each.

Entries = npt.NDArray[Any]
"""Rows of `ENTRY`."""

ENTRY: Final = np.dtype([("id", "<u8"), ("queue", "<u2"), ("offset", "<i8"), ("time", "<i8")])
"""The hash of the identity, the number of the queue, the offset, and the store time in Unix milliseconds."""
PARTS: Final = 256
"""The files of a topic that does not fit into memory: one for each value of the hash's first byte."""
_MAX_QUEUES: Final = 1 << 16


def entries_of(hashes: Sequence[bytes], queue: int, offsets: Sequence[int], times: Sequence[int]) -> Entries:
    """Return rows of one queue."""
    made = np.empty(len(hashes), ENTRY)
    made["id"] = np.frombuffer(b"".join(hashes), ">u8")
    made["queue"], made["offset"], made["time"] = queue, offsets, times
    return made


class Spool:
    """Rows of a topic. A context manager, which deletes its files.

    Args:
      most_rows: the number of rows from which they go to files.
      folder: where the files are; None: the system's folder for temporary files.
    """

    def __init__(self, most_rows: int, folder: Path | None = None) -> None:
        self._most, self._folder = most_rows, folder
        self._rows: list[Entries] = []
        self._waiting = 0
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self.queues: list[Any] = []
        """The queues, by their number."""
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._files is not None:
            self._files.cleanup()

    @property
    def is_on_disk(self) -> bool:
        return self._files is not None

    def number_of(self, queue: Any) -> int:
        """Return the number of a queue, a new one if it is new."""
        if queue not in self.queues:
            if len(self.queues) >= _MAX_QUEUES:
                raise OverflowError(f"more than {_MAX_QUEUES} queues")
            self.queues.append(queue)
        return self.queues.index(queue)

    def add(self, rows: Entries) -> None:
        self._rows.append(rows)
        self._waiting += len(rows)
        self.count += len(rows)
        if self._waiting >= self._most:
            self._spill()

    def all(self) -> Entries:
        """Return all rows. Only for one that is in memory."""
        self._rows = [joined(self._rows)]
        return self._rows[0]

    def keep(self, rows: Entries) -> None:
        """Replace the rows by others. Only for one that is in memory."""
        self._rows, self._waiting, self.count = [rows], len(rows), len(rows)

    def part(self, number: int) -> Entries:
        """Return the rows whose hash begins with this byte."""
        if self._files is None:
            rows = self.all()
            found: Entries = rows[rows["id"] >> np.uint64(56) == number]
            return found
        self._spill()
        path = self._path(number)
        return np.fromfile(path, ENTRY) if path.exists() else np.empty(0, ENTRY)

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="rmqio-audit-", dir=self._folder)
        rows, self._rows, self._waiting = self.all(), [], 0
        if not len(rows):
            return
        firsts = (rows["id"] >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(firsts, kind="stable")
        rows, firsts = rows[order], firsts[order]
        bounds = np.searchsorted(firsts, np.arange(PARTS + 1))
        for number in range(PARTS):
            if bounds[number] < bounds[number + 1]:
                with self._path(number).open("ab") as file:
                    rows[bounds[number] : bounds[number + 1]].tofile(file)

    def _path(self, number: int) -> Path:
        assert self._files is not None
        return Path(self._files.name) / f"{number:02x}"


def joined(rows: Sequence[Entries]) -> Entries:
    """Return the rows in one array."""
    return rows[0] if len(rows) == 1 else np.concatenate(rows) if rows else np.empty(0, ENTRY)


def parts_of(*spools: Spool) -> Any:
    """Yield the rows of all spools, for a part of the hashes at a time: all at once if all of them are in memory."""
    if not any(each.is_on_disk for each in spools):
        yield tuple(each.all() for each in spools)
        return
    for number in range(PARTS):
        yield tuple(each.part(number) for each in spools)


def contained(spool: Spool, hashes: Sequence[bytes]) -> int:
    """Return how many of the hashes a spool has."""
    wanted = np.frombuffer(b"".join(hashes), ">u8").astype("<u8")
    return sum(int(np.isin(wanted, rows["id"]).sum()) for (rows,) in parts_of(spool))


@dataclass
class Side:
    """A topic as it was read: its rows, and what could not become a row."""

    topic: str
    spool: Spool
    without_identity: dict[MessageQueue, list[int]] = field(default_factory=dict)
    """Offsets of messages that have no identity, or cannot be decoded."""
    in_letters: dict[MessageQueue, list[int]] = field(default_factory=dict)
    """Offsets of such messages that dead letters name."""
    skipped: int = 0
    """Offsets that retention has deleted, or that are lost on the broker."""
    left_out: int = 0
    """Offsets before the first ones that were read."""
    begins: dict[MessageQueue, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """The offsets up to which each queue was read."""
    is_to_end: bool = True
    """Whether it was read to its end, as it was when the other topic's end was taken."""
    forgotten: int = 0
    """How many without identity are no longer among them."""

    @property
    def unidentified(self) -> int:
        return self.forgotten + sum(map(len, self.without_identity.values()))

    def clear(self) -> None:
        """Forget what was read of it, but not where it begins."""
        self.spool.keep(self.spool.all()[:0])
        self.without_identity.clear()
        self.in_letters.clear()
        self.skipped = self.forgotten = 0

    def note_letters(self, origins: Mapping[MessageQueue, Iterable[int]]) -> None:
        """Take those that dead letters name out of what has no identity."""
        for queue in self.without_identity.keys() & origins.keys():
            named, offsets = {*origins[queue]}, self.without_identity[queue]
            self.in_letters.setdefault(queue, []).extend(offset for offset in offsets if offset in named)
            self.without_identity[queue] = [offset for offset in offsets if offset not in named]

    def forget_unidentified(self, before: Mapping[MessageQueue, int]) -> None:
        """Forget the places below these offsets, and keep their number."""
        for queue, offsets in self.without_identity.items():
            kept = [offset for offset in offsets if offset >= before.get(queue, 0)]
            self.forgotten += len(offsets) - len(kept)
            self.without_identity[queue] = kept
        for queue, offsets in self.in_letters.items():
            self.in_letters[queue] = [offset for offset in offsets if offset >= before.get(queue, 0)]


def bounds_of(client: QueueClient, topic: str, start: StartFrom, stop: StopAt) -> dict[MessageQueue, range]:
    """Return the offsets to read of each queue: those that retention has deleted are left out."""
    found = {}
    for queue, each in ranges_of(client, topic, start, stop, None).items():
        low = client.min_offset(queue)
        found[queue] = range(max(each.start, low), max(each.stop, low))
    return found


def read_into(client: QueueClient, side: Side, ranges: Mapping[MessageQueue, range], identity: Text) -> None:
    """Read ranges of a topic into its side. Messages that were read before stay."""
    for queue, each in ranges.items():
        if queue not in side.begins:
            side.begins[queue] = each.start
            side.left_out += each.start
        side.ends.setdefault(queue, each.start)
    for part in read_ranges(client, ranges):
        add_part(side, part, identity)
        side.ends[part.queue] = max(part.next_offset, side.ends[part.queue])


def add_part(side: Side, part: Part, identity: Text) -> None:
    """Add consecutive messages of a queue."""
    hashes: list[bytes] = []
    offsets: list[int] = []
    times: list[int] = []
    missing: list[int] = [error.queue_offset for error in part.corrupt]
    for record in part.records:
        text = identity(record)
        if text is None:
            missing.append(record.queue_offset)
            continue
        hashes.append(hash_of(text))
        offsets.append(record.queue_offset)
        times.append(record.store_timestamp_ms)
    if missing:
        side.without_identity.setdefault(part.queue, []).extend(missing)
    side.skipped += part.skipped
    if hashes:
        side.spool.add(entries_of(hashes, side.spool.number_of(part.queue), offsets, times))


class Sketches:
    """The totals that an audit topic has: of each key the last one."""

    def __init__(self) -> None:
        self._found: dict[Key, tuple[MessageQueue, int, Sketch]] = {}
        self._ends: dict[MessageQueue, int] = {}
        self.is_whole = True
        """Whether the audit topic still begins with its first message."""

    def __iter__(self) -> Iterator[Sketch]:
        return (sketch for _, _, sketch in self._found.values())

    def read(self, client: QueueClient, topic: str) -> None:
        """Read what is new. Raises `WireError` for another message."""
        ranges = {}
        for queue, each in bounds_of(client, topic, StartFrom.earliest(), StopAt.latest()).items():
            self.is_whole &= queue in self._ends or not each.start
            begin = self._ends.setdefault(queue, each.start)
            ranges[queue] = range(begin, max(begin, each.stop))
        for part in read_ranges(client, ranges):
            for record in part.records:
                try:
                    sketch = decode(record.body)
                except WireError as error:
                    where = f"audit topic {topic}: {part.queue}, offset {record.queue_offset}"
                    raise WireError(f"{where}: {error}") from None
                # Those of one key are in one queue, in order, even if the broker's clock goes back; but not if the
                # topic has got more queues meanwhile.
                known = self._found.get(sketch.key)
                if known is None or known[0] == part.queue or known[1] <= record.store_timestamp_ms:
                    self._found[sketch.key] = part.queue, record.store_timestamp_ms, sketch
            self._ends[part.queue] = part.next_offset

    def forget(self, begins: Mapping[MessageQueue, int]) -> None:
        """Forget blocks that are below these offsets as a whole."""
        self._found = {
            key: found
            for key, found in self._found.items()
            if (key.block + 1) * BLOCK > begins.get(MessageQueue(key.topic, key.broker, key.queue_id), 0)
        }


def sample(client: QueueClient, ranges: Mapping[MessageQueue, range], most: int) -> list[Record]:
    """Return the first messages of each queue, as many of the middle, and the last ones.

    The first ones alone can be older than what the other topic still has.
    """
    found: list[Record] = []
    ends = {queue: each.start for queue, each in ranges.items()}
    for share in (0, 1, 2):
        few = {}
        for queue, each in ranges.items():
            begin = max(ends[queue], each.start + (len(each) - most) * share // 2)
            few[queue] = range(begin, max(begin, min(each.stop, begin + most)))
            ends[queue] = few[queue].stop
        found += [record for part in read_ranges(client, few) for record in part.records]
    return found


def choose(found: Sequence[Record], sink: Spool, among: Iterable[Identity]) -> tuple[Identity, int]:
    """Return the identity by which most messages of a sample are in the sink, and how many; the first of equal ones."""
    best: tuple[Identity, int] | None = None
    for identity in among:
        texts = [text for text in map(identity.of_source, found) if text is not None]
        count = contained(sink, [hash_of(text) for text in texts]) if texts else 0
        if best is None or count > best[1]:
            best = identity, count
    assert best is not None
    return best
