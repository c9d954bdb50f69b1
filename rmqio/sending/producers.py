"""Producers shared by all writers of a process: one per factory and group, closed when the last writer is gone."""

from __future__ import annotations

import os
import threading

from rmqio.seams import ClientFactory, Producer

_Key = tuple[ClientFactory, str]


class _Shared:
    __slots__ = ("producer", "users")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.users = 0


_lock = threading.Lock()
_producers: dict[_Key, _Shared] = {}
_known_topics: dict[ClientFactory, set[str]] = {}


class ProducerLease:
    """One writer's claim on the shared producer. Made where it is used; neither forked nor pickled."""

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

    def release(self) -> None:
        """Give it back; the last one closes the producer, which awaits what is in flight. Idempotent."""
        shared, self._shared = self._shared, None
        if shared is None or self._pid != os.getpid():
            return
        with _lock:
            shared.users -= 1
            is_last = shared.users == 0
            if is_last:
                del _producers[self._key]
        if is_last:
            shared.producer.close()


def _forget_after_fork() -> None:
    # The parent's connections, and a lock that one of its threads may hold, are not ours to touch.
    global _lock
    _lock = threading.Lock()
    _producers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
