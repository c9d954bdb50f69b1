"""Groups messages into batches: by topic, by the queue of their sharding key, or alone."""

from __future__ import annotations

import logging
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final

from rmqio.errors import LocalError, RmqioError, TopicNotExist, TransportError
from rmqio.interfaces import Producer
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.batches import BatchSender, Outcomes, ProducerBatch
from rmqio.topics import WritableQueues, validate_topic
from rmqio.wire.batch import batchable

# Chooses the queue of a batch before it fills, and decides how long the list of a topic's queues is valid.
#
# A writer needs the queue first, because it makes a batch of what goes to one queue. It knows a producer, and neither
# routes nor brokers. The choice of a producer for one send, `QueueChoice` (client/sending/queue_choice.py), is
# another: it avoids brokers that have failed, and moves a retry. Both take turns and keys from `WritableQueues`.

_MISSING_TOPIC_MS: Final = 1_000
"""A missing topic is not looked up again within this time: otherwise each of its messages would cost a look-up."""


class _Topic:
    __slots__ = ("refreshed_at", "turn", "writable")

    def __init__(self, queues: Sequence[MessageQueue], now: float) -> None:
        self.turn = random.randrange(1 << 16)  # so that many short bundles do not all begin with the same queue
        self.set(queues, now)

    def set(self, queues: Sequence[MessageQueue], now: float) -> None:
        self.writable = WritableQueues(queues)
        self.refreshed_at = now


class WritableTopics:
    """The writable queues of the topics that one writer has seen.

    Args:
      producer: queried for queues.
      known_topics: topics that any writer of this process has seen and that therefore exist; added to. While all
        brokers of a topic are down, a name server reports that it does not exist.
      required_topics: topics that the whole write needs.
      refresh_ms: maximum age of a list of queues.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        known_topics: set[str],
        required_topics: frozenset[str] = frozenset(),
        refresh_ms: int,
        clock: Callable[[], float],
    ) -> None:
        self._producer = producer
        self._known_topics = known_topics
        self._required_topics = required_topics
        self._refresh_s = refresh_ms / 1000
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._missing: dict[str, tuple[float, RmqioError]] = {}

    def next_queue(self, topic: str) -> MessageQueue:
        """Return the queue for the next batch without a key: in turn, on another broker if there is one.

        Raises `LocalError` for an illegal topic, `TopicNotExist` for a topic that only some elements name and that
        nobody in this process has seen, and `TransportError` when no queue of the topic is currently writable.
        """
        known = self._topics.get(topic) or self._look_up(topic)
        known.turn += 1
        return known.writable.in_turn(known.turn)

    def queue_for_key(self, topic: str, key: str) -> MessageQueue:
        """Return the queue of a sharding key, by the rule of Java's producers. Raises as `next_queue`."""
        known = self._topics.get(topic) or self._look_up(topic)
        return known.writable.for_key(key)

    def refresh(self, topic: str, *, now: bool = False) -> bool:
        """Query again when due, or now; return whether the queues have changed. After an error, keeps the old ones."""
        known = self._topics.get(topic)
        if known is None or not (now or self._clock() - known.refreshed_at >= self._refresh_s):
            return False
        known.refreshed_at = self._clock()
        try:
            queues = self._producer.queues(topic)
        except RmqioError:
            return False
        if not queues or tuple(queues) == known.writable.queues:
            return False
        known.set(queues, self._clock())
        return True

    def refresh_all(self, *, now: bool = False) -> None:
        """Call `refresh` for every topic."""
        for topic in self._topics:
            self.refresh(topic, now=now)

    def _look_up(self, topic: str) -> _Topic:
        validate_topic(topic)
        now = self._clock()
        missing = self._missing.get(topic)
        if missing is not None and now - missing[0] < _MISSING_TOPIC_MS / 1000:
            raise missing[1].with_traceback(None)
        try:
            queues = self._producer.queues(topic)
        except TopicNotExist as error:
            reported: RmqioError = error
            if topic in self._known_topics or topic in self._required_topics:
                reported = TransportError(f"topic {topic!r} does not exist, or all of its brokers are down: {error}")
            self._missing[topic] = (now, reported)
            raise reported from error
        except LocalError as error:
            # The topic's name is legal, so the producer is closed. This must not look like a message's fault.
            raise TransportError(f"the producer returned no queues of topic {topic!r}: {error}") from error
        self._missing.pop(topic, None)
        if not queues:
            raise TransportError(f"topic {topic!r} has no writable queue: no known master, or writes are not permitted")
        self._known_topics.add(topic)
        known = self._topics[topic] = _Topic(queues, now)
        return known


_FIRST_LIMIT: Final = 1_024
"""A batch may have so many bytes at first; then its limit doubles, so that it seldom asks."""


class BatchAccumulator:
    """Groups messages into batches per topic and queue, and sends a batch when it is full.

    Memory: the limits of all batches together stay within `max_total_bytes`. A batch that would exceed it is not
    allowed to grow until the largest one has been sent.

    Order: messages with the same sharding key are sent in the order in which they are added, per topic. Messages
    without a key have no order.

    Delivery: when `finish` has returned, all added messages are acknowledged or settled as failed. After an error
    nothing is in flight, unsent messages are lost, and everything added since `begin` must be added again.

    Args:
      sender, topics: of one producer.
      outcomes: notified of messages that have no queue because their topic is refused.
      max_messages, max_bytes: limits of a batch. A larger message is sent alone.
      max_total_bytes: limit of all batches that wait; at least `max_bytes`.
      one_by_one: whether each message is sent alone and awaited.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        sender: BatchSender,
        topics: WritableTopics,
        outcomes: Outcomes,
        *,
        max_messages: int,
        max_bytes: int,
        max_total_bytes: int,
        one_by_one: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender = sender
        self._topics = topics
        self._outcomes = outcomes
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._one_by_one = one_by_one
        self._clock = clock
        self.unkeyed: dict[str, ProducerBatch] = {}
        """The batch per topic for messages without a key. Always this dict: some callers add messages directly."""
        self._keyed: dict[MessageQueue, ProducerBatch] = {}
        self._granted = 0
        """The sum of the limits of all batches."""
        self._is_finished = True
        """Whether the last bundle finished: it may have failed because queues no longer exist."""

    def begin(self) -> None:
        """Discard unsent messages, wait for those in flight, and check for changed queues."""
        self._sender.abandon()
        self._clear()
        self._topics.refresh_all(now=not self._is_finished)
        self._is_finished = False

    def add(self, message: Message, topic: str, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """Add a message for `topic`; `size` is its `estimated_size`. Raises as `BatchSender.send`."""
        if (
            message.sharding_key is not None
            or size > self._max_bytes
            or not batchable(message)
            or self._one_by_one
        ):  # fmt: skip
            self._add_special(message, topic, message_id, element, origin, size)
            return
        batch = self.unkeyed.get(topic)
        while batch is None or batch.size + size > batch.limit or len(batch.messages) >= self._max_messages:
            if batch is None:
                queue = self._queue(message, topic, element, origin)
                if queue is None:
                    return
                batch = ProducerBatch(queue, keyed=False)
            elif batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
                self._flush(self._taken(batch))
                batch = None
                continue
            if self._grow(batch, size):
                self.unkeyed[topic] = batch
            else:
                batch = self.unkeyed.get(topic)
        batch.add(message, message_id, element, origin, size)

    def extend(
        self,
        messages: Sequence[Message],
        topic: str,
        ids: Sequence[str | None],
        elements: Sequence[Any],
        origin: Any,
        sizes: Sequence[int],
    ) -> None:
        """Add many messages as `add` does, but faster, if each has no key and fits into any batch.

        `elements` and `sizes` have one value per message; `origin` is that of all. Raises as `BatchSender.send`.
        """
        begin, count = 0, len(messages)
        while begin < count:
            batch = self.unkeyed.get(topic)
            if batch is None:
                queue = self._queue(messages[begin], topic, elements[begin], origin)
                if queue is None:
                    begin += 1
                    continue
                batch = ProducerBatch(queue, keyed=False)
            end = min(count, begin + self._max_messages - len(batch.messages))
            size = sum(sizes[begin:end])
            if batch.size + size > self._max_bytes:
                ends = [*accumulate(sizes[begin:end], initial=batch.size)]
                end = begin + bisect_right(ends, self._max_bytes) - 1
                size = ends[end - begin] - batch.size
            if end > begin:
                if not self._grow(batch, size):
                    continue
                self.unkeyed[topic] = batch
                batch.extend(messages[begin:end], ids[begin:end], elements[begin:end], origin, size)
                begin = end
            if begin < count:
                self._flush(self._taken(batch))

    def finish(self) -> None:
        """Send the remaining messages and wait until all are acknowledged. Raises as `BatchSender.send`."""
        for batch in (*self.unkeyed.values(), *self._keyed.values()):
            self._sender.send(batch)
        self._clear()
        self._sender.drain()
        self._is_finished = True

    def oldest(self) -> float | None:
        """Return when the oldest batch that waits was begun; None: none waits."""
        firsts = [next(iter(batches.values())) for batches in (self.unkeyed, self._keyed) if batches]
        return min((batch.since for batch in firsts), default=None)

    def send_older(self, since: float) -> None:
        """Send the batches that were begun then or before, and wait until they are acknowledged.

        Raises as `BatchSender.send`.
        """
        for batch in [each for each in self._all() if each.since <= since]:
            if self._waits(batch):  # it can have gone with another one, when queues have changed
                self._flush(self._taken(batch))
        self._sender.drain()  # a try that failed is repeated by whoever waits for it

    def _queue(self, message: Message, topic: str, element: Any, origin: Any) -> MessageQueue | None:
        """Return the queue of a message; None when its topic is refused: the message is then settled."""
        try:
            if message.sharding_key is None:
                return self._topics.next_queue(topic)
            return self._topics.queue_for_key(topic, message.sharding_key)
        except (LocalError, TopicNotExist) as error:
            self._outcomes.failed(element, origin, message, topic, error)
            return None

    def _add_special(
        self, message: Message, topic: str, message_id: str | None, element: Any, origin: Any, size: int
    ) -> None:
        """Add a message that has a key or does not fit into any batch."""
        fits = size <= self._max_bytes and batchable(message) and not self._one_by_one
        while True:
            queue = self._queue(message, topic, element, origin)
            if queue is None:
                return
            keyed = message.sharding_key is not None
            batch = self._keyed.get(queue) if keyed else None
            if batch is None:
                batch = ProducerBatch(queue, keyed=keyed)
            elif not fits or batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
                self._flush(self._taken(batch))
                continue  # the queues may have changed, and with them the queue of this key
            if not fits or self._grow(batch, size):
                break
        batch.add(message, message_id, element, origin, size)
        if fits:
            self._keyed[queue] = batch
        else:
            self._sender.send_alone(batch)

    def _grow(self, batch: ProducerBatch, size: int) -> bool:
        """Let a batch become larger by `size`. False: the largest one has been sent to make room, so look again."""
        needed = batch.size + size
        if needed > batch.limit:
            limit = min(self._max_bytes, max(needed, 2 * batch.limit, _FIRST_LIMIT))
            if self._granted + limit - batch.limit > self._max_total_bytes:
                self._flush(self._taken(max(self._all(), key=lambda each: each.limit)))
                return False
            if not batch.limit:
                batch.since = self._clock()
            self._granted += limit - batch.limit
            batch.limit = limit
        return True

    def _all(self) -> chain[ProducerBatch]:
        return chain(self.unkeyed.values(), self._keyed.values())

    def _waits(self, batch: ProducerBatch) -> bool:
        return (self._keyed.get(batch.queue) if batch.keyed else self.unkeyed.get(batch.queue.topic)) is batch

    def _taken(self, batch: ProducerBatch) -> ProducerBatch:
        """Remove a batch from those that wait."""
        if batch.keyed:
            del self._keyed[batch.queue]
        else:
            del self.unkeyed[batch.queue.topic]
        self._granted -= batch.limit
        return batch

    def _clear(self) -> None:
        self.unkeyed.clear()
        self._keyed.clear()
        self._granted = 0

    def _flush(self, batch: ProducerBatch) -> None:
        self._sender.send(batch)
        topic = batch.queue.topic
        if self._topics.refresh(topic):
            # Keys move to other queues: messages sent to the old ones must be stored first.
            for keyed in [each for each in self._keyed.values() if each.queue.topic == topic]:
                self._sender.send(self._taken(keyed))
            self._sender.drain()


# Batches that do not wait for long: a thread sends those that are old enough.

_LOGGER = logging.getLogger("rmqio.transforms")


class Deferred:
    """Outcomes that the thread of the bundle learns later, if another one sees them. Beam's metrics are that thread's.

    `is_elsewhere` is set by the other thread while it sends.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._later: list[Callable[[], None]] = []
        self.is_elsewhere = False

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """As `Outcomes`."""
        self._tell(partial(self._outcomes.sent, origins, messages, results, latency_s))

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """As `Outcomes`."""
        self._tell(partial(self._outcomes.failed, element, origin, message, topic, error))

    def settle(self) -> None:
        """Tell what the other thread has seen. For the thread of the bundle."""
        later, self._later = self._later, []
        for tell in later:
            tell()

    def clear(self) -> None:
        """Drop what the other thread has seen: its bundle has failed."""
        self._later = []

    def _tell(self, tell: Callable[[], None]) -> None:
        if self.is_elsewhere:
            self._later.append(tell)
        else:
            tell()


class TimedAccumulator:
    """A `BatchAccumulator` whose batches are sent after `max_wait_s`, also while no message is added.

    Order and delivery are those of the accumulator: all calls, and the thread, take turns. The next call raises an
    error of the thread, and nothing more is sent before `begin`.

    Args:
      accumulator: the accumulator, with `deferred` as its outcomes and those of its sender.
      clock: that of the accumulator.
    """

    def __init__(
        self,
        accumulator: BatchAccumulator,
        deferred: Deferred,
        max_wait_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accumulator = accumulator
        self._deferred = deferred
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._turn = threading.Condition(threading.RLock())
        self._error: BaseException | None = None
        self._is_open = False
        """Whether a bundle runs. The rest of one that has failed here is not sent."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """As `BatchAccumulator.begin`."""
        with self._turn:
            self._error = None
            self._deferred.clear()
            self._accumulator.begin()
            self._is_open = True

    def add(self, message: Message, topic: str, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """As `BatchAccumulator.add`. Also raises what has failed in the thread."""
        with self._turn:
            self._adding(partial(self._accumulator.add, message, topic, message_id, element, origin, size))

    def extend(
        self,
        messages: Sequence[Message],
        topic: str,
        ids: Sequence[str | None],
        elements: Sequence[Any],
        origin: Any,
        sizes: Sequence[int],
    ) -> None:
        """As `BatchAccumulator.extend`. Also raises what has failed in the thread."""
        with self._turn:
            self._adding(partial(self._accumulator.extend, messages, topic, ids, elements, origin, sizes))

    def finish(self) -> None:
        """As `BatchAccumulator.finish`. Also raises what has failed in the thread."""
        with self._turn:
            self._raise()
            self._is_open = False
            self._deferred.settle()
            self._accumulator.finish()

    def close(self) -> None:
        """End the thread. It finishes what it is sending."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()

    def send_due(self) -> float | None:
        """Send what has waited long enough. Returns the seconds until there is more to send; None: nothing waits."""
        with self._turn:
            oldest = self._accumulator.oldest() if self._is_open else None
            left = None if oldest is None else oldest + self._max_wait_s - self._clock()
            if left is None or left > 0:
                return left
            self._deferred.is_elsewhere = True
            try:
                self._accumulator.send_older(self._clock() - self._max_wait_s)
            except BaseException as error:  # noqa: BLE001  # raised by the next call of the bundle
                _LOGGER.error("the bundle will fail: %s", error)
                self._error = error
                self._is_open = False
            finally:
                self._deferred.is_elsewhere = False
            return 0

    def _adding(self, add: Callable[[], None]) -> None:
        self._raise()
        self._deferred.settle()
        waited = self._accumulator.oldest() is not None
        try:
            add()
            if not waited and self._accumulator.oldest() is not None:
                self._wake()
        except BaseException:
            self._is_open = False
            raise

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rmqio max_wait_ms", daemon=True)
            thread.start()  # if it cannot, the next bundle tries again
            self._thread = thread
        else:
            self._turn.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with self._turn:
            while not self._is_closed:
                left = self.send_due()
                if left != 0:
                    self._turn.wait(left)
