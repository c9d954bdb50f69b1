"""The same sums as in sketches, from the rows of a topic: what a hop must have if nothing was lost before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqio.audit.sketch import BLOCK, BLOCK_BITS, BUCKET_BITS, Total, fold, mixed
from rmqio.model import MessageQueue

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
