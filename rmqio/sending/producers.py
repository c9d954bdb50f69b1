"""Producers that all writers of a process share, and one that waits out an outage."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rmqio import telemetry
from rmqio.errors import LocalError, RmqioError, TopicNotExist
from rmqio.interfaces import ClientFactory, PendingSend, Producer, SendStatistics
from rmqio.model import Message, MessageQueue, SendResult

# A producer that waits out an outage, for writers whose failure costs more than waiting.

_LOGGER = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
T = TypeVar("T")


class RetryingProducer:
    """Retries sends that failed because a broker is unavailable or busy. Belongs to one thread.

    Delivery: at least once, as its producer. A message keeps its id when it is sent again. With `ordered`, failed
    messages are sent again before any later message of their queue.

    Args:
      producer: makes the tries, each with its own retries. Its owner closes it.
      outage_timeout_s: seconds since the first of consecutive failures after which an error is raised.
      awaits_topic: whether a missing topic may merely be unavailable (a name server cannot tell the difference).
      clock, sleep: seconds; the clock is monotonic.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        outage_timeout_s: float,
        awaits_topic: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._producer = producer
        self._timeout_s = outage_timeout_s
        self._awaits_topic = awaits_topic
        self._clock = clock
        self._sleep = sleep
        self._found: set[str] = set()
        self._failing_since: float | None = None

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """As `interfaces.Producer`. Waits only at the first request for a topic: later, callers know its queues."""
        if topic in self._found:
            return self._producer.queues(topic)
        queues = self._patiently(lambda: self._producer.queues(topic), topic=topic)
        self._found.add(topic)
        return queues

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """As `interfaces.Producer`. Pass an id: without one, each try has a different id."""
        return self._patiently(lambda: self._producer.send(message, queue, message_id=message_id))

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """As `interfaces.Producer`; ids as for `send`."""
        return self._patiently(lambda: self._producer.send_batch(messages, queue, message_ids=message_ids))

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """As `interfaces.Producer`, but `result` waits and retries; ids as for `send`."""

        def submit() -> PendingSend:
            return self._producer.submit(messages, queue, ordered=ordered, message_ids=message_ids)

        return _PatientSend(self, self._patiently(submit, proves=False), submit)

    def close(self) -> None:
        """Do nothing: somebody else owns the producer."""

    def settle(self, first: PendingSend, again: Callable[[], PendingSend]) -> Sequence[SendResult]:
        """Return the result of a send, repeating it until it succeeds. Raises the last error."""
        tries = [first]

        def result() -> Sequence[SendResult]:
            return (tries.pop() if tries else again()).result()

        return self._patiently(result)

    def _patiently(self, attempt: Callable[[], T], *, topic: str | None = None, proves: bool = True) -> T:
        """Return the result of an attempt. `proves`: whether success means that the outage is over."""
        while True:
            try:
                result = attempt()
            except RmqioError as error:
                missing = isinstance(error, TopicNotExist) and topic is not None and not self._awaits_topic(topic)
                if isinstance(error, LocalError) or missing or not (error.retriable or error.stale_route):
                    raise
                now = self._clock()
                if self._failing_since is None:
                    self._failing_since = now
                # Other sends in flight get no time of their own: their first failure is their last.
                if now - self._failing_since >= self._timeout_s:
                    raise
                _LOGGER.warning("retrying in %.0f s: %s", _PAUSE_S, error)
                self._sleep(_PAUSE_S)
            else:
                if proves:
                    self._failing_since = None
                return result


class _PatientSend:
    """A batch in flight, or waiting to be sent again."""

    def __init__(self, producer: RetryingProducer, pending: PendingSend, again: Callable[[], PendingSend]) -> None:
        self._producer = producer
        self._pending = pending
        self._again = again
        self._outcome: Sequence[SendResult] | RmqioError | None = None

    def is_done(self) -> bool:
        return self._outcome is not None or self._pending.is_done()

    def result(self) -> Sequence[SendResult]:
        if self._outcome is None:
            try:
                self._outcome = self._producer.settle(self._pending, self._again)
            except RmqioError as error:
                self._outcome = error
        if isinstance(self._outcome, RmqioError):
            raise self._outcome
        return self._outcome


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
