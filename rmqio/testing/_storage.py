"""The contents of an in-memory cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqio.model import MessageQueue, Record


@dataclass(slots=True)
class StoredQueue:
    """One queue: `records[i]` has the offset `first + i`, whether or not it can still be read."""

    first: int = 0
    minimum: int = 0
    records: list[Record] = field(default_factory=list)
    stored_bodies: dict[int, bytes] = field(default_factory=dict)
    """Stored bodies of messages whose stored body differs from the record's (compressed)."""
    corrupt: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def slice(self, begin: int, count: int) -> list[Record]:
        return self.records[begin - self.first : begin - self.first + count]


@dataclass(slots=True)
class StoredTopic:
    """Queues by broker, with the permission bits shown in a route."""

    queues: dict[MessageQueue, StoredQueue] = field(default_factory=dict)
    permission: dict[str, int] = field(default_factory=dict)
