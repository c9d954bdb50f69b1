"""A producer that waits out an outage, for writers whose failure costs more than waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rmqio.errors import LocalError, RmqioError, TopicNotExist
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendResult

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
