"""Ids of messages that depend only on their places, computed in C for the usual places."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio import batches
from rmqio.batches import around_offset
from rmqio.model import MessageQueue
from rmqio.wire import accelerator

_usual_place_ids = accelerator.usual_place_ids


def place_ids(queue: MessageQueue, offsets: Sequence[int], steps: str = "") -> list[str]:
    """Returns what `batches.place_ids` does, in less time."""
    found = None
    if _usual_place_ids is not None:
        prefix, tail = around_offset(queue, steps)
        found = _usual_place_ids(prefix, offsets, tail)
    return batches.place_ids(queue, offsets, steps) if found is None else found
