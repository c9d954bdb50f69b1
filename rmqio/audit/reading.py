"""Reads topics into rows of hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rmqio.audit.compare.entries import Spool, contained, entries_of
from rmqio.audit.identity import Identity, Text, hash_of
from rmqio.audit.sketch import BLOCK, Key, Sketch, decode
from rmqio.dead_letters.reading import Part, ranges_of, read_ranges
from rmqio.errors import WireError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue, Record
from rmqio.start import StartFrom, StopAt


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
