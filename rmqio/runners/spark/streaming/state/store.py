"""The state of one bucket in a micro-batch: entries of bytes, each read and written at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState


class Entries(Protocol):
    """Stores entries. `SparkEntries` stores them in Spark's state store."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def remove(self, key: bytes) -> None: ...


class SparkEntries:
    """Entries in a map state of transformWithState, for the current bucket. An access takes about 0.05 ms."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: bytes) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        self._state.updateValue((key,), (value,))

    def remove(self, key: bytes) -> None:
        self._state.removeKey((key,))


class Store:
    """Reads entries on first use, collects changes, and writes them in `flush`."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._known: dict[bytes, bytes | None] = {}
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        if key not in self._known:
            self._known[key] = self._entries.get(key)
        return self._known[key]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Sets an entry. None removes it."""
        self._known[key] = value
        self._changed.add(key)

    def flush(self) -> None:
        """Writes all changes."""
        for key in sorted(self._changed):
            value = self._known[key]
            if value is None:
                self._entries.remove(key)
            else:
                self._entries.put(key, value)
        self._changed.clear()
