"""Producers shared by all writers of a process: one per factory and group, closed when the last writer is released."""

from __future__ import annotations

import os
import threading
from typing import Final

from rmqio import telemetry
from rmqio.interfaces import ClientFactory, Producer, SendStatistics

_Key = tuple[ClientFactory, str]

COUNTED: Final = (
    ("retries", "send_retries"),
    ("unknown_outcomes", "unknown_outcomes"),
    ("busy_answers", "busy_answers"),
    ("throttled_ms", "throttled_ms"),
)
"""The fields of `SendStatistics` that are counted, and the name of each one's metric."""
NOTHING: Final[tuple[int, ...]] = (0,) * len(COUNTED)


class _Shared:
    __slots__ = ("producer", "seen", "users")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.users = 0
        self.seen = NOTHING
        """The part of its statistics already counted."""

    def count(self, untaken: list[int]) -> None:
        """Add the producer's new statistics. Called with the lock held, so that only one writer counts them."""
        statistics: SendStatistics | None = getattr(self.producer, "statistics", None)
        if statistics is None:
            return
        now = tuple(getattr(statistics, name, 0) for name, _ in COUNTED)
        if now == self.seen:
            return
        for index, (_, name) in enumerate(COUNTED):
            new = now[index] - self.seen[index]
            untaken[index] += new
            if new:
                telemetry.record(name, (), new)
        self.seen = now


_lock = threading.Lock()
_producers: dict[_Key, _Shared] = {}
_known_topics: dict[ClientFactory, set[str]] = {}
_untaken: dict[_Key, list[int]] = {}
"""Statistics that no bundle has reported. Outlives the producers: a failed bundle reports nothing."""


class ProducerLease:
    """One writer's claim on the shared producer. Created where it is used; neither forked nor pickled."""

    def __init__(self, factory: ClientFactory, group: str) -> None:
        self._key = (factory, group)
        self._pid = os.getpid()
        with _lock:
            shared = _producers.get(self._key)
            if shared is None:
                shared = _producers[self._key] = _Shared(factory.producer(group))
            shared.users += 1
            self.known_topics = _known_topics.setdefault(factory, set())
            """Topics that any writer of this process has found. Outlives the producers: a failed bundle closes them."""
        self.producer: Producer = shared.producer
        self._shared: _Shared | None = shared

    @property
    def is_valid(self) -> bool:
        """False after `release`, and in a forked child, where the connections belong to the parent."""
        return self._shared is not None and self._pid == os.getpid()

    def take_statistics(self) -> tuple[int, ...]:
        """Return the statistics of the shared producer that no writer has taken yet, in the order of `COUNTED`."""
        assert self._shared is not None  # not released
        with _lock:
            untaken = _untaken.setdefault(self._key, [*NOTHING])
            self._shared.count(untaken)
            taken = tuple(untaken)
            untaken[:] = NOTHING
        return taken

    def note_statistics(self) -> None:
        """Report them to the process's recorder now and leave them to be taken: a bundle can keep failing for long."""
        if self._shared is not None:
            with _lock:
                self._shared.count(_untaken.setdefault(self._key, [*NOTHING]))

    def release(self) -> None:
        """Release the claim; the last one closes the producer, which awaits messages in flight. Idempotent."""
        shared, self._shared = self._shared, None
        if shared is None or self._pid != os.getpid():
            return
        with _lock:
            shared.users -= 1
            is_last = shared.users == 0
            if is_last:
                del _producers[self._key]
        if is_last:
            try:
                shared.producer.close()
            finally:
                with _lock:
                    shared.count(_untaken.setdefault(self._key, [*NOTHING]))


def _forget_after_fork() -> None:
    # The connections belong to the parent, and one of its threads may hold the lock: do not touch either.
    global _lock
    _lock = threading.Lock()
    _producers.clear()
    _untaken.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
