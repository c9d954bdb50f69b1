"""Long texts and long lists in events: what is looked at of them, and how many there were."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any, NamedTuple

from rmqio.rules.limits import Limits
from rmqio.rules.plan.values import cut, everything, flat, values_at


class CutCounts(NamedTuple):
    """Of how much only the beginning was looked at, since it was last asked for."""

    texts: int = 0
    lists: int = 0


class Cuts:
    """Cuts, and notes that it has; what was cut is counted afterwards, in the events where there was something.

    A look at an event can come to a text more than once: a count there would count it twice.
    """

    def __init__(self, limits: Limits) -> None:
        self._max_bytes = limits.max_value_bytes
        self._most = limits.max_values
        self.noted = 0
        """Another number after something was cut, also if several threads cut."""
        self._start = functools.partial(_steps, limits.max_values, self._note)
        self._lock = threading.Lock()
        self._counts = CutCounts()

    def text(self, text: str) -> str:
        """Returns what is looked at of a text."""
        found = cut(text, self._max_bytes)
        if len(found) < len(text):
            self._note()
        return found

    def values(self, values: Iterator[Any]) -> list[Any]:
        """Returns the values that are looked at."""
        found = list(islice(values, self._most + 1))
        if len(found) > self._most:
            found.pop()
            self._note()
        return found

    def values_at(self, event: Any, path: str) -> list[Any] | None:
        """Returns what a path leads to, by the members of lists that are looked at."""
        return values_at(event, path, self._start)

    def count(self, events: Iterable[Mapping[str, Any] | None], fields: Iterable[str | None]) -> None:
        """Counts what is cut in events by those who look at some fields; None is all of an event."""
        fields = [*fields]
        counts = [self._of_event(event, fields) for event in events if event is not None]
        with self._lock:
            self._counts = CutCounts(*map(sum, zip(self._counts, *counts, strict=True)))

    def taken(self) -> CutCounts:
        """Returns the counts, and begins anew."""
        with self._lock:
            counts, self._counts = self._counts, CutCounts()
        return counts

    def _note(self) -> None:
        self.noted += 1

    def _of_event(self, event: Mapping[str, Any], fields: Iterable[str | None]) -> CutCounts:
        long: set[int] = set()
        lists = 0
        for field in fields:
            values = everything(event)
            more: list[None] = []
            if field is not None:
                note = functools.partial(more.append, None)
                found = values_at(event, field, functools.partial(_steps, self._most, note))
                values = (leaf for value in found or () for leaf in flat(value))
            leaves = list(islice(values, self._most + 1))
            lists += bool(more) or len(leaves) > self._most
            texts = (each for each in leaves[: self._most] if isinstance(each, str))
            long.update(id(each) for each in texts if len(cut(each, self._max_bytes)) < len(each))
        return CutCounts(len(long), lists)


def _steps(most: int, note: Callable[[], object]) -> Iterator[None]:
    """Steps that may be taken; it notes if more are wanted."""
    yield from repeat(None, most)
    note()
