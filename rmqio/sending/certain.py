"""`CertainProducer`: a send whose outcome is not known is looked up in its queue before anything is sent again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from rmqio.errors import (
    BrokerSilent,
    BrokerSystemError,
    LocalError,
    RmqioError,
    TopicNotExist,
    TransportError,
    WireError,
)
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendResult

_LOGGER = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5
T = TypeVar("T")


class Lookup(Protocol):
    """Finds out what is stored."""

    def floor(self, queue: MessageQueue) -> int:
        """An offset before which nothing lies that is sent from now on."""
        ...

    def find(self, queue: MessageQueue, begin: int, ids: Sequence[str]) -> Mapping[str, int]:
        """The offsets of those ids that are stored from `begin` on. Raises while the queue's broker does not answer."""
        ...


class CertainProducer:
    """Sends, and tries again, without storing anything twice; of one thread.

    Delivery: exactly once. After a try without an answer its broker is waited for, and its queue read for the ids of
    the messages; only what is not there is sent again, and no other broker is given it before. When the broker does not
    come back within `outage_timeout_s` the last error is raised, and the outcome stays unknown.

    Args:
      producer: makes single tries: it must not repeat a send by itself. Closed by its owner.
      lookup: knows the queues.
      max_retries: of sends that a broker has refused for now, e.g. because it is busy.
      outage_timeout_s: seconds since the first failure in a row after which an error is raised.
      awaits_topic: whether a topic that does not exist may only be away (a name server does not know the difference).
      clock, sleep: seconds, monotonic.
    """

    def __init__(
        self,
        producer: Producer,
        lookup: Lookup,
        *,
        max_retries: int,
        outage_timeout_s: float,
        awaits_topic: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._producer = producer
        self._lookup = lookup
        self._max_retries = max_retries
        self._timeout_s = outage_timeout_s
        self._awaits_topic = awaits_topic
        self._clock = clock
        self._sleep = sleep
        self._found: set[str] = set()

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """As `interfaces.Producer`. Waits only when it is asked for a topic first: later, who asks knows the queues."""
        if topic in self._found:
            return self._producer.queues(topic)
        queues = self._patiently(lambda: self._producer.queues(topic), self._clock() + self._timeout_s, topic)
        self._found.add(topic)
        return queues

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """As `interfaces.Producer`; an id must be given, and a queue."""
        if queue is None or message_id is None:
            raise LocalError("a CertainProducer sends to a given queue, with a given id")

        def attempt(some: Sequence[Message], to: MessageQueue, ids: Sequence[str]) -> list[SendResult]:
            return [self._producer.send(some[0], to, message_id=ids[0])]

        results = self._send([message], queue, [message_id], attempt)
        return results[0]

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """As `interfaces.Producer`; ids must be given, and a queue."""
        if queue is None:
            raise LocalError("a CertainProducer sends to a given queue, with given ids")
        return self.submit(messages, queue, ordered=True, message_ids=message_ids).result()

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """As `interfaces.Producer`, but that it waits: the outcome is known when it returns. Ids must be given."""
        if message_ids is None:
            raise LocalError("a CertainProducer sends with given ids")

        def attempt(some: Sequence[Message], to: MessageQueue, ids: Sequence[str]) -> list[SendResult]:
            return self._producer.submit(some, to, ordered=True, message_ids=ids).result()

        try:
            return _Settled(self._send(messages, queue, message_ids, attempt, may_move=not ordered))
        except RmqioError as error:
            return _Settled(error)

    def close(self) -> None:
        """Nothing: the producer belongs to somebody else."""

    def _send(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        ids: Sequence[str],
        attempt: Callable[[Sequence[Message], MessageQueue, Sequence[str]], list[SendResult]],
        *,
        may_move: bool = False,
    ) -> list[SendResult]:
        done: dict[str, SendResult] = {}
        left = list(range(len(messages)))
        refused = 0
        deadline: float | None = None
        while left:
            some, names = [messages[i] for i in left], [ids[i] for i in left]
            # Before the try: what others store meanwhile may lie behind ours
            until = self._clock() + self._timeout_s if deadline is None else deadline
            floor = self._patiently(partial(self._lookup.floor, queue), until)
            try:
                done.update(zip(names, attempt(some, queue, names), strict=True))
                break
            except RmqioError as error:
                is_unknown = _is_unknown(error)
                if isinstance(error, LocalError) or not (is_unknown or error.retriable or error.stale_route):
                    raise
                deadline = self._clock() + self._timeout_s if deadline is None else deadline
                if is_unknown:
                    _LOGGER.warning("%s: it is not known whether %d messages are stored: %s", queue, len(some), error)
                    found = self._patiently(partial(self._lookup.find, queue, floor, names), deadline)
                    done.update((name, SendResult(queue, found[name], name, "")) for name in names if name in found)
                    left = [i for i in left if ids[i] not in found]
                    if left and self._clock() >= deadline:
                        raise
                else:
                    refused += 1
                    if refused > self._max_retries:
                        raise
                    if may_move:
                        queue = self._elsewhere(queue)
                self._sleep(_PAUSE_S)
        return [done[name] for name in ids]

    def _elsewhere(self, queue: MessageQueue) -> MessageQueue:
        """Another broker's queue, if there is one."""
        try:
            others = [each for each in self._producer.queues(queue.topic) if each.broker != queue.broker]
        except RmqioError:
            return queue  # the next try says so
        return others[queue.queue_id % len(others)] if others else queue

    def _patiently(self, attempt: Callable[[], T], deadline: float, topic: str | None = None) -> T:
        while True:
            try:
                return attempt()
            except RmqioError as error:
                missing = isinstance(error, TopicNotExist) and topic is not None and not self._awaits_topic(topic)
                is_final = isinstance(error, LocalError) or missing or not (error.retriable or error.stale_route)
                if is_final or self._clock() >= deadline:
                    raise
                _LOGGER.info("looks again in %.1f s: %s", _PAUSE_S, error)
                self._sleep(_PAUSE_S)


class _Settled:
    """A send whose outcome is known."""

    is_done = True

    def __init__(self, outcome: list[SendResult] | RmqioError) -> None:
        self._outcome = outcome

    def result(self) -> list[SendResult]:
        if isinstance(self._outcome, RmqioError):
            raise self._outcome
        return self._outcome


def _is_unknown(error: RmqioError) -> bool:
    """Whether what was sent may be stored, or may be yet."""
    return isinstance(error, (TransportError, WireError, BrokerSystemError)) and not isinstance(error, BrokerSilent)
