"""Subscriptions: topics by name, topics by pattern, or queues, and which queues they currently have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmqio.errors import LocalError, TopicNotExist
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.start import nearest_queue


@dataclass(frozen=True)
class Subscription:
    """Topics by name, topics by pattern, or queues to read. Exactly one of the three is not empty."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that must match a topic's whole name."""
    queues: tuple[MessageQueue, ...] = ()
    flags: int = 0
    """The pattern's flags (`re.IGNORECASE` ...)."""

    @classmethod
    def of(cls, what: Any) -> Subscription:
        """The subscription for a name, names, a compiled pattern, a queue or queues. Raises `LocalError`."""
        if isinstance(what, re.Pattern) and isinstance(what.pattern, str) and what.pattern:
            return cls(pattern=what.pattern, flags=what.flags)
        if isinstance(what, str):
            what = [what]
        if isinstance(what, MessageQueue):
            return cls(queues=(what,))
        items = list(what) if isinstance(what, Iterable) else []
        if items and all(isinstance(item, MessageQueue) for item in items):
            return cls(queues=tuple(sorted(set(items))))
        if items and all(isinstance(item, str) and item for item in items):
            return cls(topics=tuple(sorted(set(items))))
        raise LocalError(
            f"topic is {what!r:.80}; it must be a topic's name, a list of names, a compiled regular expression, "
            "or a list of MessageQueue"
        )

    def __str__(self) -> str:
        if self.pattern:
            return f"topics that match {self.pattern!r}"
        return ", ".join(self.topics) or ", ".join(map(str, self.queues))

    @property
    def named_topics(self) -> list[str]:
        """The topics that must exist, sorted; a pattern names none."""
        return sorted({*self.topics, *(queue.topic for queue in self.queues)})

    def find_queues(self, client: QueueClient, *, missing_ok: bool = False) -> list[MessageQueue]:
        """The queues that exist now, sorted. Raises `TopicNotExist` unless `missing_ok` (a pattern may match none).

        With `missing_ok`, this is one of many looks, so cached routes are good enough; otherwise, routes are refreshed.
        """
        refresh = not missing_ok
        topics: Sequence[str] = self.topics
        if self.queues:
            existing: set[MessageQueue] = set()
            for topic in self.named_topics:
                try:
                    existing.update(client.queues(topic, refresh=refresh))
                except TopicNotExist:
                    if not missing_ok:
                        raise
            missing = [q for q in self.queues if q not in existing]
            if missing and not missing_ok:
                hint = nearest_queue(missing[0], existing)
                raise LocalError(f"{missing[0]} does not exist or cannot be read: {hint}")
            return [q for q in self.queues if q in existing]
        if self.pattern:
            matches = re.compile(self.pattern, self.flags).fullmatch
            topics = [topic for topic in client.topics() if matches(topic)]
        found: list[MessageQueue] = []
        for topic in topics:
            try:
                found.extend(client.queues(topic, refresh=refresh))
            except TopicNotExist:
                # A topic that the pattern matched can be deleted a moment later.
                if not (missing_ok or self.pattern):
                    raise
        return sorted(found)
