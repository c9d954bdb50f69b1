"""Groups messages into batches: by topic, by the queue of their sharding key, or alone."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, Final

from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import Message, MessageQueue
from rmqio.sending.batch import ProducerBatch
from rmqio.sending.batches import BatchSender
from rmqio.sending.outcomes import Outcomes
from rmqio.sending.writable_topics import WritableTopics
from rmqio.wire.messages.batch import batchable

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
