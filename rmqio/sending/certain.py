"""`CertainProducer`: looks up a send with an unknown outcome in its queue before sending anything again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from rmqio.errors import (
    BrokerSilent,
    BrokerSystemError,
    LocalError,
    OffsetOutOfRange,
    RequestTimeout,
    RmqioError,
    TopicNotExist,
    TransportError,
    WireError,
)
from rmqio.interfaces import PendingSend, Producer, QueueClient
from rmqio.model import Message, MessageFilter, MessageQueue, SendResult

# The unique ids of the messages stored in ranges of queues.

_ALL = MessageFilter()


def stored_ids(
    client: QueueClient,
    ranges: Mapping[MessageQueue, tuple[int, int]],
    *,
    silence_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[MessageQueue, list[tuple[int, str]]]]:
    """Yield the offset and id of each message in [begin, end) of each queue, as they are read; in order per queue.

    Messages deleted by retention are skipped with a warning, and so are messages that do not decode. Raises
    `RequestTimeout` when no queue returns anything for `silence_s`, and the errors of a reader.
    """
    readers = {
        client.open_reader(queue, begin, message_filter=_ALL): end
        for queue, (begin, end) in ranges.items()
        if begin < end
    }
    heard = clock()
    try:
        while readers:
            client.wait(readers, 1_000)
            for reader in [*readers]:
                end = readers[reader]
                try:
                    fetched = reader.poll()
                except OffsetOutOfRange as error:
                    if error.wanted < error.minimum:
                        text = "%s: %d messages from offset %d on were deleted and cannot be looked up"
                        _LOGGER.warning(text, reader.queue, min(error.minimum, end) - error.wanted, error.wanted)
                    reader.seek(min(max(error.minimum, 0), end) if error.wanted < error.minimum else end)
                    fetched = None
                if fetched is not None:
                    heard = clock()
                    yield (
                        reader.queue,
                        [
                            (record.queue_offset, record.message_id)
                            for record in fetched.records
                            if record.queue_offset < end
                        ],
                    )
                if reader.position >= end:
                    reader.close()
                    del readers[reader]
            if clock() - heard > silence_s:
                behind = ", ".join(str(reader.queue) for reader in readers)
                raise RequestTimeout(f"looking up messages: received nothing for {silence_s:.0f} s from {behind}")
    finally:
        for reader in readers:
            reader.close()


_LOGGER = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5
T = TypeVar("T")


class Lookup(Protocol):
    """Finds out which messages are stored."""

    def floor(self, queue: MessageQueue) -> int:
        """Return an offset at or before all messages that are sent from now on."""
        ...

    def find(self, queue: MessageQueue, begin: int, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the offsets of the ids stored from `begin` on. Raises while the queue's broker does not answer."""
        ...


class CertainProducer:
    """Sends and retries without storing anything twice. Belongs to one thread.

    Delivery: exactly once. After a try without an answer it waits for that broker and reads the queue for the messages'
    ids. Only missing messages are sent again, and no other broker gets them before that. When the broker does not
    return within `outage_timeout_s`, the last error is raised, and the outcome stays unknown.

    Args:
      producer: makes single tries: it must not repeat a send by itself. Its owner closes it.
      lookup: reads the queues.
      max_retries: for sends that a broker has refused temporarily, e.g. because it is busy.
      outage_timeout_s: seconds since the first of consecutive failures after which an error is raised.
      awaits_topic: whether a missing topic may merely be unavailable (a name server cannot tell the difference).
      clock, sleep: seconds; the clock is monotonic.
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
        """As `interfaces.Producer`. Waits only at the first request for a topic: later, callers know its queues."""
        if topic in self._found:
            return self._producer.queues(topic)
        queues = self._patiently(lambda: self._producer.queues(topic), self._clock() + self._timeout_s, topic)
        self._found.add(topic)
        return queues

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """As `interfaces.Producer`; requires an id and a queue."""
        if queue is None or message_id is None:
            raise LocalError("a CertainProducer requires a queue and a message id")

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
        """As `interfaces.Producer`; requires ids and a queue."""
        if queue is None:
            raise LocalError("a CertainProducer requires a queue and message ids")
        return list(self.submit(messages, queue, ordered=True, message_ids=message_ids).result())

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """As `interfaces.Producer`, but it waits: the outcome is known when it returns. Requires ids."""
        if message_ids is None:
            raise LocalError("a CertainProducer requires message ids")

        def attempt(some: Sequence[Message], to: MessageQueue, ids: Sequence[str]) -> Sequence[SendResult]:
            return self._producer.submit(some, to, ordered=True, message_ids=ids).result()

        try:
            return _Settled(self._send(messages, queue, message_ids, attempt, may_move=not ordered))
        except RmqioError as error:
            return _Settled(error)

    def close(self) -> None:
        """Do nothing: somebody else owns the producer."""

    def _send(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        ids: Sequence[str],
        attempt: Callable[[Sequence[Message], MessageQueue, Sequence[str]], Sequence[SendResult]],
        *,
        may_move: bool = False,
    ) -> list[SendResult]:
        done: dict[str, SendResult] = {}
        left = list(range(len(messages)))
        refused = 0
        deadline: float | None = None
        while left:
            some, names = [messages[i] for i in left], [ids[i] for i in left]
            # Before the try: messages that others store meanwhile can lie after ours.
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
                    _LOGGER.warning("%s: unknown whether %d messages are stored: %s", queue, len(some), error)
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
        """Return another broker's queue, if there is one."""
        try:
            others = [each for each in self._producer.queues(queue.topic) if each.broker != queue.broker]
        except RmqioError:
            return queue  # the next try reports it
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
                _LOGGER.info("looking up stored messages again in %.1f s: %s", _PAUSE_S, error)
                self._sleep(_PAUSE_S)


class _Settled:
    """A send whose outcome is known."""

    def __init__(self, outcome: list[SendResult] | RmqioError) -> None:
        self._outcome = outcome

    def is_done(self) -> bool:
        return True

    def result(self) -> list[SendResult]:
        if isinstance(self._outcome, RmqioError):
            raise self._outcome
        return self._outcome


def _is_unknown(error: RmqioError) -> bool:
    """Return whether the messages may already be stored, or may still be."""
    return isinstance(error, (TransportError, WireError, BrokerSystemError)) and not isinstance(error, BrokerSilent)
