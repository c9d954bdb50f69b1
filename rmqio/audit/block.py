"""Looks up the sketches of the block of offsets that a message is in."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from rmqio.audit.hops import passed_of
from rmqio.audit.reading import Sketches
from rmqio.audit.sketch import BLOCK, BLOCK_BITS, MASK, Numbers, Total, mixed, mixed_one
from rmqio.audit.units import Unit
from rmqio.dead_letters.reading import read_ranges
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

Outcome = Literal["passed", "missing", "doubled"]
_PAIR: Final = 2


def hops_of_block(
    client: QueueClient, topic: str, queue: MessageQueue, offset: int
) -> tuple[list[tuple[str, int, int, bool, Outcome | None]], list[str]]:
    """Return by hop, and the known steps: name, messages in the block, how many went by, whether they are the same, and
    the outcome of the one message.
    """
    sketches = Sketches()
    sketches.read(client, topic)
    hops = passed_of(sketches, queue.topic)
    begin = offset >> BLOCK_BITS << BLOCK_BITS
    block = range(max(begin, client.min_offset(queue)), min(begin + BLOCK, client.max_offset(queue)))
    # Messages that retention has deleted were still there when they went by.
    there = [*range(begin, block.start)] + [
        record.queue_offset
        for part in read_ranges(client, {queue: block})
        for record in part.records
    ]  # fmt: skip
    hashes = mixed(np.array(there, np.int64))
    sent = Total(len(there), int(hashes.sum(dtype=np.uint64)))
    unit = Unit(queue, offset >> BLOCK_BITS)
    found = []
    for name, passed in hops.items():
        if not passed.by_id:
            total = passed.units.get(unit, Total())
            is_same = (total.elements, total.hash_sum) == (sent.elements, sent.hash_sum)
            outcome = outcome_of(hashes, mixed_one(offset), total)
            found.append((name, sent.elements, total.elements, is_same, outcome))
    return found, sorted({step for passed in hops.values() for step in passed.steps if step})


def outcome_of(hashes: Numbers, own: int, total: Total) -> Outcome | None:
    """Return what a hop did with the message with the hash `own`; None if its sketch does not tell.

    Args:
      hashes: those of the messages of the block, by offset.
      total: the sketch.
    """
    more = total.elements - len(hashes)
    rest = (total.hash_sum - int(hashes.sum(dtype=np.uint64))) & MASK
    if not more and not rest:
        return "passed"
    if not total.elements:
        return "missing"
    if not more:  # one is missing, and another is there twice
        missing = hashes[np.isin(hashes + np.uint64(rest), hashes)].tolist()
        if len(missing) != 1:
            return None
        return "missing" if own == missing[0] else "doubled" if own == (missing[0] + rest) & MASK else "passed"
    wrong = _with_sum(hashes, abs(more), rest if more > 0 else -rest & MASK)
    if wrong is None:
        return None
    return "passed" if own not in wrong else "missing" if more < 0 else "doubled"


def _with_sum(hashes: Numbers, count: int, wanted: int) -> list[int] | None:
    """The only messages with this sum, of one or two messages, or of neighbours, as a lost bundle has; None: none."""
    if count <= len(hashes):
        before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)))
        begins = np.flatnonzero(before[count:] - before[:-count] == np.uint64(wanted))
        if len(begins) == 1:
            return [int(each) for each in hashes[begins[0] : begins[0] + count]]
    if count == _PAIR:
        others = np.uint64(wanted) - hashes
        pair = hashes[np.isin(others, hashes) & (others != hashes)]
        if len(pair) == _PAIR:
            return [int(each) for each in pair]
    return None
