"""Looks up the sketches of the block of offsets that a message is in."""

from __future__ import annotations

import numpy as np

from rmqio.audit.hops import passed_of
from rmqio.audit.reading import Sketches
from rmqio.audit.sketch import BLOCK, BLOCK_BITS, Total, mixed
from rmqio.audit.units import Unit
from rmqio.dead_letters.reading import read_ranges
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue


def hops_of_block(
    client: QueueClient, topic: str, queue: MessageQueue, offset: int
) -> tuple[list[tuple[str, int, int, bool]], list[str]]:
    """Return name, messages in the block, how many went by, and whether they are the same, by hop; and known steps."""
    sketches = Sketches()
    sketches.read(client, topic)
    hops = passed_of(sketches, queue.topic)
    begin = offset >> BLOCK_BITS << BLOCK_BITS
    block = range(max(begin, client.min_offset(queue)), min(begin + BLOCK, client.max_offset(queue)))
    # What retention has deleted was there when it went by.
    there = [*range(begin, block.start)] + [
        record.queue_offset
        for part in read_ranges(client, {queue: block})
        for record in part.records
    ]  # fmt: skip
    hash_sum = int(mixed(np.array(there, np.int64)).sum(dtype=np.uint64))
    unit = Unit(queue, offset >> BLOCK_BITS)
    found = []
    for name, passed in hops.items():
        if not passed.by_id:
            total = passed.units.get(unit, Total())
            found.append((name, len(there), total.elements, total.hash_sum == hash_sum))
    return found, sorted({step for passed in hops.values() for step in passed.steps if step})
