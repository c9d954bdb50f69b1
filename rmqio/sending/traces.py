"""Message traces: what happened to a message, in RocketMQ's trace topic."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Final, NamedTuple

from rmqio import telemetry
from rmqio.errors import RmqioError, TopicNotExist
from rmqio.interfaces import ClientFactory, Producer
from rmqio.model import Message, Record, SendResult
from rmqio.options import ClientOptions
from rmqio.wire import traces
from rmqio.wire.traces import TRACE_TOPIC, Traced

# Sends entries of the message trace, in a thread of its own: tracing delays and fails nothing that it traces.

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


# The tracers of a process: one per cluster and topic, which all reads and writes share.

_lock = threading.Lock()
_tracers: dict[tuple[ClientFactory, str], Tracer] = {}


def shared_tracer(factory: ClientFactory, trace: bool | str) -> Tracer | None:
    """Return this process's tracer. `trace`: as the options of reads and writes say it; False: there is none."""
    if not trace:
        return None
    topic = TRACE_TOPIC if trace is True else trace
    with _lock:
        found = _tracers.get((factory, topic))
        if found is None:
            found = _tracers[factory, topic] = Tracer(_for_traces(factory, topic), topic)
        return found


def flush_traces(timeout_s: float = 0.5) -> None:
    """Wait until all traces of this process are sent, at most for this time per topic."""
    with _lock:
        tracers = list(_tracers.values())
    for tracer in tracers:
        tracer.flush(timeout_s)


def close_tracers() -> None:
    """Flush and end the tracers of this process. The next use creates new ones."""
    with _lock:
        tracers = list(_tracers.values())
        _tracers.clear()
    for tracer in tracers:
        tracer.close()


def _for_traces(factory: Any, topic: str) -> ClientFactory:
    """The factory of our own clients, for a topic that is never created, and in no namespace if it is RocketMQ's."""
    options = getattr(factory, "options", None)
    if not isinstance(options, ClientOptions) or not is_dataclass(factory):
        return factory  # type: ignore[no-any-return]  # a user's own
    namespace = "" if topic == TRACE_TOPIC else options.namespace
    changed = replace(options, create_topics=False, inner_batches=False, namespace=namespace)
    return replace(factory, options=changed)  # type: ignore[type-var, return-value]


def _forget_after_fork() -> None:
    # Their threads are the parent's, and one of them may hold a lock.
    global _lock
    _lock = threading.Lock()
    for tracer in _tracers.values():
        tracer.begin_anew()


atexit.register(close_tracers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


_TOO_MUCH: Final = "more is traced than can be sent, or the topic is missing"


class SendTrace:
    """Traces what a producer group has stored."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    @classmethod
    def of(cls, factory: ClientFactory, group: str, trace: bool | str) -> SendTrace | None:
        """The trace of a write, by its option `trace`; None: nothing is traced."""
        tracer = shared_tracer(factory, trace)
        return None if tracer is None else cls(tracer, group)

    def sent(self, messages: Sequence[Message], results: Sequence[SendResult], latency_s: float) -> None:
        """Trace stored messages of one topic: one entry each, so that tools find each by its id."""
        topic = results[0].queue.topic if results else ""
        if topic in (self._tracer.topic, TRACE_TOPIC):  # else each trace would have a trace
            return
        room = self._tracer.room()
        latency_ms = round(latency_s * 1000)
        started_ms = round(time.time() * 1000) - latency_ms
        entries = [
            Entry(
                traces.sent(self._group, topic, message, result, started_ms=started_ms, latency_ms=latency_ms),
                " ".join((result.message_id, *message.keys)),
            )
            for message, result in zip(messages[: max(0, room)], results, strict=False)
        ]
        self._tracer.add(entries)
        if len(messages) > len(entries):
            self._tracer.drop(len(messages) - len(entries), _TOO_MUCH)

    def flush(self) -> None:
        """As `ReadTrace.flush`."""
        self._tracer.flush()


class Taken(NamedTuple):
    """Messages that were handed on: what `ReadTrace.handled` needs."""

    request_id: str
    messages: Sequence[Traced]
    at: float


class ReadTrace:
    """Traces what a consumer group reads."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    @classmethod
    def of(cls, factory: ClientFactory, group: str, trace: bool | str) -> ReadTrace | None:
        """The trace of a read, by its option `trace`; None: nothing is traced."""
        tracer = shared_tracer(factory, trace)
        return None if tracer is None else cls(tracer, group)

    def read(self, records: Sequence[Record]) -> Taken:
        """Trace records that are about to be handed on, without those that their broker does not want traced."""
        request_id, room = uuid.uuid4().hex.upper(), max(0, self._tracer.room() // 2)  # the other half: `handled`
        if not records or records[0].topic in (self._tracer.topic, TRACE_TOPIC):
            return Taken(request_id, (), 0.0)
        messages = traces.traced(records[:room])
        texts = traces.read(
            self._group,
            request_id,
            messages,
            region=traces.region_of(records[0]),
            now_ms=round(time.time() * 1000),
        )
        self._add(messages, texts)
        if len(records) > room:
            self._tracer.drop(2 * (len(records) - room), _TOO_MUCH)
        return Taken(request_id, messages, time.monotonic())

    def handled(self, taken: Taken) -> None:
        """Trace that the pipeline has taken the records."""
        messages = taken.messages
        if not messages:
            return
        cost_ms, now_ms = int((time.monotonic() - taken.at) * 1000 / len(messages)), round(time.time() * 1000)
        self._add(messages, traces.handled(self._group, taken.request_id, messages, now_ms=now_ms, cost_ms=cost_ms))

    def flush(self) -> None:
        """Wait for half a second at most until everything is sent: the process may be about to end."""
        self._tracer.flush()

    def _add(self, messages: Sequence[Traced], texts: Sequence[str]) -> None:
        self._tracer.add(
            [Entry(text, f"{each.message_id} {each.keys}") for text, each in zip(texts, messages, strict=True)]
        )
