"""How long messages have waited: looks up when each oldest unread message was stored, beside the polls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from rmqio.command_line.contents import QueueState, time_of
from rmqio.errors import RmqioError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

_EVERY_S: Final = 2.0
"""A look-up is a pull of one message. A message that a broker no longer has in memory is a read of its disk."""


class UnreadTimes:
    """When the oldest message that the group has not read was stored, by queue.

    One thread per broker looks up its queues in turn, so that a broker that hangs holds up its own thread only, and
    polls never wait. The time of a queue is forgotten when the group has moved on.
    """

    def __init__(self, client: QueueClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[MessageQueue, tuple[int, int | None]] = {}
        self._wanted: dict[str, dict[MessageQueue, int]] = {}
        self._wakes: dict[str, threading.Event] = {}
        self._over = threading.Event()

    def want(self, states: Sequence[QueueState]) -> dict[MessageQueue, int | None]:
        """Look up the times for these states; return the times that are known. Never waits."""
        wanted: dict[str, dict[MessageQueue, int]] = {}
        for state in states:
            places = wanted.setdefault(state.queue.broker, {})
            if state.error is None and state.committed is not None and state.lag:
                places[state.queue] = max(state.committed, state.min_offset)
        found = {}
        with self._lock:
            self._wanted = wanted
            for queue, offset in (pair for places in wanted.values() for pair in places.items()):
                # A group that reads keeps moving: the last known time is a few polls old, which is near enough.
                if queue in self._known and offset >= self._known[queue][0]:
                    found[queue] = self._known[queue][1]
            for broker, places in wanted.items():
                if places and not self._over.is_set():
                    self._wake(broker)
        return found

    def close(self) -> None:
        """End the threads, without waiting for those that wait for a broker."""
        with self._lock:
            self._over.set()
            for wake in self._wakes.values():
                wake.set()

    def _wake(self, broker: str) -> None:
        if broker not in self._wakes:
            self._wakes[broker] = threading.Event()
            threading.Thread(target=self._work, args=(broker,), name=f"rmqio watch {broker}", daemon=True).start()
        self._wakes[broker].set()

    def _work(self, broker: str) -> None:
        wake = self._wakes[broker]
        while wake.wait():
            wake.clear()
            with self._lock:
                if self._over.is_set():
                    return
                places = dict(self._wanted.get(broker, {}))
                known = dict(self._known)
            for queue, offset in places.items():
                if self._over.is_set():
                    return
                if queue in known and known[queue][0] == offset and known[queue][1] is not None:
                    continue
                try:
                    stored = time_of(self._client, queue, offset)
                except RmqioError:
                    break  # the polls show that the broker is away
                with self._lock:
                    self._known[queue] = offset, stored
            self._over.wait(_EVERY_S)
