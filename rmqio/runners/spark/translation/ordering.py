"""The order of a plan: topological, and the same in each process."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def ordered(
    items: Iterable[T], reads: Callable[[T], list[str]], writes: Callable[[T], list[str]], name: Callable[[T], str]
) -> list[T]:
    """Returns the items in topological order. Sorts by name where that leaves a choice.

    Beam iterates over sets, so its own order differs from process to process. State in checkpoints is stored under the
    number that a stage has in this order.
    """
    items = sorted(items, key=name)
    makers = {pcollection: at for at, item in enumerate(items) for pcollection in writes(item)}
    missing = [{makers[p] for p in reads(item) if p in makers} - {at} for at, item in enumerate(items)]
    readers: dict[int, list[int]] = {}
    for at, makers_of in enumerate(missing):
        for maker in makers_of:
            readers.setdefault(maker, []).append(at)
    ready = [at for at, makers_of in enumerate(missing) if not makers_of]
    found = []
    while ready:
        at = heapq.heappop(ready)
        found.append(items[at])
        for reader in readers.get(at, ()):
            missing[reader].discard(at)
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return found
