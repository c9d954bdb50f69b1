"""What an in-memory cluster keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqio.model import MessageQueue, Record


@dataclass(slots=True)
class StoredQueue:
    """One queue: `records[i]` has the offset `first + i`, whether it can still be read or not."""

    first: int = 0
    minimum: int = 0
    records: list[Record] = field(default_factory=list)
    stored_bodies: dict[int, bytes] = field(default_factory=dict)
    """Bodies as stored, of those messages where that differs from the record's body (compressed)."""
    corrupt: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def slice(self, begin: int, count: int) -> list[Record]:
        return self.records[begin - self.first : begin - self.first + count]


@dataclass(slots=True)
class StoredTopic:
    """Queues by broker, with the permission bits that a route shows."""

    queues: dict[MessageQueue, StoredQueue] = field(default_factory=dict)
    permission: dict[str, int] = field(default_factory=dict)
