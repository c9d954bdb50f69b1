"""Sketches: how many messages went by, and the sum of their hashes, for each part of a queue.

Two sketches of the same messages are equal, whatever the order. A message that is missing, or there twice, changes the
count and the sum; where few are missing, the sum also says which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqio.errors import WireError
from rmqio.model import MessageQueue

BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS
"""Offsets of one sketch: blocks begin at multiples of it."""
BUCKET_BITS: Final = 4
"""Elements without a place are counted in so many parts of their hashes: 2 ** 4."""
MASK: Final = (1 << 64) - 1
VERSION: Final = 1

Numbers = npt.NDArray[Any]


class Total(NamedTuple):
    """A count, and sums that can be added."""

    elements: int = 0
    hash_sum: int = 0
    """The sum of the hashes, modulo 2 ** 64."""
    sum_ms: int = 0
    """The sum of the times at which they went by (Unix milliseconds)."""
    first_ms: int = 0
    last_ms: int = 0

    def plus(self, other: Total) -> Total:
        """Return the total of both."""
        if not self.elements:
            return other
        if not other.elements:
            return self
        return Total(
            self.elements + other.elements,
            (self.hash_sum + other.hash_sum) & MASK,
            self.sum_ms + other.sum_ms,
            min(self.first_ms, other.first_ms),
            max(self.last_ms, other.last_ms),
        )

    @property
    def mean_ms(self) -> float:
        return self.sum_ms / self.elements if self.elements else 0.0


class Key(NamedTuple):
    """The subject of a sketch. Without a place, `topic` and `broker` are empty, and `block` is a part of the hashes."""

    run: str
    hop: str
    topic: str
    broker: str
    queue_id: int
    block: int
    window_ms: int
    """The beginning of the window of event time."""
    steps: str

    def text(self) -> str:
        """Return the key of the sketch's messages."""
        return json.dumps(self, separators=(",", ":"))


class Hop(NamedTuple):
    """A point of a pipeline where elements are counted."""

    name: str
    depth: int
    """How many others are before it on the longest way."""
    after: tuple[str, ...]
    """The names of the hops directly before it."""


class Sketch(NamedTuple):
    """A message of an audit topic: what has gone by at a hop so far, in one run. A later one replaces it."""

    key: Key
    hop: Hop
    total: Total


def mixed(offsets: Numbers) -> Numbers:
    """Return a hash of each offset (the finalizer of SplitMix64)."""
    values = offsets.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def mixed_one(offset: int) -> int:
    """Return the hash of one offset."""
    return int(mixed(np.array([offset], np.int64))[0])


def fold(codes: Numbers, hashes: Numbers, times: Numbers, counts: Numbers | None = None) -> list[tuple[int, Total]]:
    """Return the total for each code. `counts`: a row is so many messages, and its hash the sum of theirs."""
    if not len(codes):
        return []
    counts = np.ones(len(codes), np.int64) if counts is None else counts
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        codes, hashes, times, counts = codes[order], hashes[order], times[order], counts[order]
    begins = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1))
    columns = (
        np.add.reduceat(counts, begins),
        np.add.reduceat(hashes, begins),
        np.add.reduceat(times * counts, begins),
        np.minimum.reduceat(times, begins),
        np.maximum.reduceat(times, begins),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(code, Total(*row)) for code, row in zip(codes[begins].tolist(), rows, strict=True)]


def summed(starts: Numbers, stops: Numbers) -> Numbers:
    """Return for each range of offsets, none of which is empty, the sum of the hashes."""
    counts = stops - starts
    if int(counts.max()) == 1:
        return mixed(starts)
    begins = np.cumsum(counts) - counts
    offsets = np.repeat(starts - begins, counts) + np.arange(int(counts.sum()))
    found: Numbers = np.add.reduceat(mixed(offsets), begins)
    return found


def encode(sketch: Sketch) -> bytes:
    """Return the body of a message."""
    key, hop, total = sketch
    document = {
        "version": VERSION,
        **key._asdict(),
        "depth": hop.depth,
        "after": list(hop.after),
        "count": total.elements,
        "hash_sum": f"{total.hash_sum:016x}",
        "sum_ms": total.sum_ms,
        "first_ms": total.first_ms,
        "last_ms": total.last_ms,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode(body: bytes) -> Sketch:
    """Return the sketch of a message. Raises `WireError`."""
    try:
        found = json.loads(body)
        if found["version"] != VERSION:
            raise WireError(f"a sketch of version {found['version']}; this is rmqio's version {VERSION}")
        key = Key(**{name: found[name] for name in Key._fields})
        hop = Hop(key.hop, int(found["depth"]), tuple(found["after"]))
        names = ("sum_ms", "first_ms", "last_ms")
        return Sketch(
            key, hop, Total(int(found["count"]), int(found["hash_sum"], 16), *(int(found[name]) for name in names))
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"not a sketch of Audit: {type(error).__name__}: {error}") from error


# The same sums as in sketches, from the rows of a topic: what a hop must have if nothing was lost before it.

NO_QUEUE: Final = MessageQueue("", "", -1)


class Unit(NamedTuple):
    """A block of offsets of a queue; of `NO_QUEUE`, a part of the hashes of ids."""

    queue: MessageQueue
    block: int

    @property
    def offsets(self) -> range:
        return range(self.block * BLOCK, (self.block + 1) * BLOCK)


class Units:
    """Totals by block of offsets, and by part of the hashes."""

    def __init__(self) -> None:
        self.places: dict[Unit, Total] = {}
        self.ids: dict[Unit, Total] = {}

    def of(self, *, by_id: bool) -> Mapping[Unit, Total]:
        return self.ids if by_id else self.places

    def add(self, rows: npt.NDArray[Any], queues: Sequence[MessageQueue], times: npt.NDArray[Any]) -> None:
        """Add rows of the first topic, with the time of each."""
        if not len(rows):
            return
        blocks = rows["offset"] >> BLOCK_BITS
        for number in np.unique(rows["queue"]).tolist():
            is_there = rows["queue"] == number
            for block, total in fold(blocks[is_there], mixed(rows["offset"][is_there]), times[is_there]):
                _plus(self.places, Unit(queues[number], block), total)
        parts = (rows["id"] >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
        for part, total in fold(parts, rows["id"], times):
            _plus(self.ids, Unit(NO_QUEUE, part), total)

    def add_offsets(self, queue: MessageQueue, offsets: Sequence[int]) -> None:
        """Add messages without an identity, by their places."""
        found = np.array(offsets, np.int64)
        for block, total in fold(found >> BLOCK_BITS, mixed(found), np.zeros(len(found), np.int64)):
            # Their times are unknown: they must not change the mean.
            known = self.places.get(Unit(queue, block), Total())
            mean = int(known.mean_ms)
            _plus(self.places, Unit(queue, block), total._replace(sum_ms=mean * total.elements, first_ms=known.first_ms,
                                                                  last_ms=known.last_ms))  # fmt: skip


def units_of(rows: npt.NDArray[Any], queues: Sequence[MessageQueue]) -> set[Unit]:
    """Return the blocks that rows of the first topic are in."""
    found = set()
    for number in np.unique(rows["queue"]).tolist():
        blocks = np.unique(rows["offset"][rows["queue"] == number] >> BLOCK_BITS)
        found |= {Unit(queues[number], block) for block in blocks.tolist()}
    return found


def _plus(into: dict[Unit, Total], unit: Unit, total: Total) -> None:
    into[unit] = into.get(unit, Total()).plus(total)
