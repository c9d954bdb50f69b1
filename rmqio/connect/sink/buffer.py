"""Rows that wait for their batch, by destination."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from rmqio.connect.sink.options import Batching
from rmqio.model import MessageQueue


class Item(NamedTuple):
    """A row that waits."""

    row: Any
    value: Any
    """Its source: the element, or a value of a batch."""
    place: tuple[MessageQueue, int] | None
    origin: Any
    """A WindowedValue with the windows, timestamp and pane of the element."""


class _Waiting:
    __slots__ = ("items", "since", "size")

    def __init__(self, since: float) -> None:
        self.items: list[Item] = []
        self.size = 0
        self.since = since


class Buffer:
    """Gathers rows. `add` returns the batch that is due, if one is."""

    def __init__(self, options: Batching) -> None:
        self._options = options
        self._waiting: dict[Hashable, _Waiting] = {}
        """By destination, the oldest first."""
        self.total = 0
        """About how many bytes wait."""

    def add(self, item: Item, destination: Hashable, size: int, now: float) -> list[tuple[Hashable, list[Item]]]:
        """Returns the batches to be written now, in order."""
        options, due = self._options, []
        found = self._waiting.get(destination)
        if found is not None and found.size + size > options.max_bytes:
            due.append((destination, self._take(destination)))
            found = None
        if found is None:
            found = self._waiting[destination] = _Waiting(now)
        found.items.append(item)
        found.size += size
        self.total += size
        if len(found.items) >= options.max_rows or found.size >= options.max_bytes:
            due.append((destination, self._take(destination)))
        while self.total > options.max_total_bytes:
            largest = max(self._waiting, key=lambda each: self._waiting[each].size)
            due.append((largest, self._take(largest)))
        return due

    def oldest(self) -> float | None:
        """Returns since when the row waits that has waited longest; None: none waits."""
        return next((each.since for each in self._waiting.values()), None)

    def older_than(self, since: float) -> list[tuple[Hashable, list[Item]]]:
        """Takes the batches whose first row came then or before."""
        found = [name for name, each in self._waiting.items() if each.since <= since]
        return [(name, self._take(name)) for name in found]

    def all(self) -> list[tuple[Hashable, list[Item]]]:
        """Takes everything."""
        return [(name, self._take(name)) for name in list(self._waiting)]

    def clear(self) -> None:
        """Drops everything: its bundle has failed, and will come again."""
        self._waiting.clear()
        self.total = 0

    def _take(self, destination: Hashable) -> list[Item]:
        found = self._waiting.pop(destination)
        self.total -= found.size
        return found.items
