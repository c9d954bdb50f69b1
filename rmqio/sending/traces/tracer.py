"""Sends entries of the message trace, in a thread of its own: tracing delays and fails nothing that it traces."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rmqio import telemetry
from rmqio.errors import RmqioError, TopicNotExist
from rmqio.interfaces import ClientFactory, Producer
from rmqio.model import Message

_LOGGER = logging.getLogger(__name__)

GROUP: Final = "_INNER_TRACE_PRODUCER-rmqio"
"""The producer group; Java's names begin alike."""
MAX_WAITING: Final = 20_000
"""Entries that wait at most. More are dropped, and counted."""
_BODY_CHARS: Final = 100_000
_KEY_BYTES: Final = 12_000
"""Limits of a message of traces. The broker cuts off properties of more than 32,767 bytes, and indexes each key."""
_LINGER_S: Final = 0.2
_PAUSE_S: Final = 60.0
"""How long nothing is sent after the topic was missing, and how often a warning may be repeated."""


class Entry(NamedTuple):
    """An entry, and the keys by which it is found: the message's id, and its own keys."""

    text: str
    keys: str


class Tracer:
    """The trace of one process to one topic. Thread-safe. Its thread begins with the first entry.

    Best effort: entries are dropped while the topic is missing or its brokers fail, and if more arrive than can be
    sent. Drops are counted (`traces_dropped`), and a warning is logged, at most once a minute.

    Args:
      factory: creates the producer.
      topic: the trace topic.
      clock: monotonic seconds.
    """

    def __init__(self, factory: ClientFactory, topic: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._factory = factory
        self.topic = topic
        self._clock = clock
        self._paused_until = float("-inf")
        self._warned_at = float("-inf")
        self.dropped = 0
        """Entries that were not sent."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what waits, and the thread. In a forked child, both are the parent's."""
        self._waiting: deque[Entry] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._sending = 0
        self._is_closed = False
        self._hurry = False

    def room(self) -> int:
        """Return how many entries can be added. Entries that find no room need not be made."""
        if self._is_closed or self._clock() < self._paused_until:
            return 0
        return MAX_WAITING - len(self._waiting)

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries, as many as there is room for."""
        with self._changed:
            kept = entries[: max(0, self.room())]
            if kept and not self._runs():
                kept = ()
            self._waiting.extend(kept)
            self._changed.notify_all()
        if len(kept) < len(entries):
            self.drop(len(entries) - len(kept), "more is traced than can be sent")

    def _runs(self) -> bool:
        """Begin the thread if there is none. Returns whether there is one."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rmqio trace", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process may have no more threads, or it ends
                return False
            self._thread = thread
        return True

    def drop(self, count: int, reason: str) -> None:
        """Count entries that are not sent."""
        self.dropped += count
        telemetry.record("traces_dropped", (self.topic,), count)
        now = self._clock()
        if now - self._warned_at >= _PAUSE_S:
            self._warned_at = now
            _LOGGER.warning("message trace: %d entries for topic %r are dropped: %s", count, self.topic, reason)

    def flush(self, timeout_s: float = 0.5) -> bool:
        """Wait until everything is sent or dropped, at most for this time. Returns whether it is."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._waiting and not self._sending, timeout_s)
            self._hurry = False
        return done

    def close(self, timeout_s: float = 0.5) -> None:
        """Flush, then end the thread. Idempotent."""
        self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)  # it closes the producer

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        producer: Producer | None = None
        try:
            while (entries := self._take()) is not None:
                try:
                    producer = producer or self._factory.producer(GROUP)
                    self._send(producer, entries)
                except Exception as error:  # noqa: BLE001  # whatever it is, the traced work goes on
                    self.drop(len(entries), f"{type(error).__name__}: {error}")
                finally:
                    with self._changed:
                        self._sending = 0
                        self._changed.notify_all()
        finally:
            if producer is not None:
                producer.close()

    def _take(self) -> list[Entry] | None:
        """Wait for entries; return those of one message, or None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return None
            # Entries come in small groups: a message for each would cost the broker more than what is traced
            self._changed.wait_for(
                lambda: self._hurry or self._is_closed or len(self._waiting) > MAX_WAITING // 20, _LINGER_S
            )
            taken: list[Entry] = []
            chars = key_bytes = 0
            while self._waiting and chars < _BODY_CHARS and key_bytes < _KEY_BYTES:
                text, keys = self._waiting.popleft()
                keys = _sendable(keys)
                taken.append(Entry(text, keys))
                chars += len(text)
                key_bytes += len(keys.encode())
            self._sending = len(taken)
            return taken

    def _send(self, producer: Producer, entries: list[Entry]) -> None:
        if self._clock() < self._paused_until:
            self.drop(len(entries), "its topic is missing")
            return
        keys = tuple(dict.fromkeys(key for entry in entries for key in entry.keys.split()))
        body = "".join([entry.text for entry in entries]).encode("utf-8", "replace")
        try:
            producer.send(Message(body, topic=self.topic, keys=keys))
        except TopicNotExist as error:
            self._paused_until = self._clock() + _PAUSE_S
            self.drop(
                len(entries),
                f"{error}. Brokers have RMQ_SYS_TRACE_TOPIC with traceTopicEnable=true; else create a topic, and "
                "name it with trace=",
            )
        except RmqioError as error:
            self.drop(len(entries), f"{type(error).__name__}: {error}")


def _sendable(keys: str) -> str:
    """Return keys of other producers' messages as a message may have them; of very long ones the first, the id."""
    if not keys.isascii():
        keys = keys.encode("utf-8", "replace").decode()
    if "\x01" in keys or "\x02" in keys:
        keys = keys.replace("\x01", "").replace("\x02", "")
    return keys if len(keys) <= _KEY_BYTES // 6 else keys.split(None, 1)[0][:_KEY_BYTES]
