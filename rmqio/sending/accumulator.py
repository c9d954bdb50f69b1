"""Groups messages into batches: by topic, by the queue of their sharding key, or alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import Message, MessageQueue
from rmqio.sending.batch import ProducerBatch
from rmqio.sending.batches import BatchSender
from rmqio.sending.outcomes import Outcomes
from rmqio.sending.routes import WriteRoutes
from rmqio.wire.messages.batch import batchable


class BatchAccumulator:
    """Groups messages into batches per topic and queue, and sends a batch when it is full.

    Order: messages with the same sharding key are sent in the order in which they are added, per topic. Messages
    without a key have no order.

    Delivery: when `finish` has returned, all added messages are acknowledged or settled as failed. After an error
    nothing is in flight, unsent messages are lost, and everything added since `begin` must be added again.

    Args:
      sender, routes: of one producer.
      outcomes: notified of messages that have no queue because their topic is refused.
      max_messages, max_bytes: limits of a batch. A larger message is sent alone.
      one_by_one: whether each message is sent alone and awaited.
    """

    def __init__(
        self,
        sender: BatchSender,
        routes: WriteRoutes,
        outcomes: Outcomes,
        *,
        max_messages: int,
        max_bytes: int,
        one_by_one: bool = False,
    ) -> None:
        self._sender = sender
        self._routes = routes
        self._outcomes = outcomes
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._one_by_one = one_by_one
        self.unkeyed: dict[str, ProducerBatch] = {}
        """The batch per topic for messages without a key. Always this dict: some callers add messages directly."""
        self._keyed: dict[MessageQueue, ProducerBatch] = {}
        self._is_finished = True
        """Whether the last bundle finished: it may have failed because queues no longer exist."""

    def begin(self) -> None:
        """Discard unsent messages, wait for those in flight, and check for changed queues."""
        self._sender.abandon()
        self.unkeyed.clear()
        self._keyed.clear()
        self._routes.refresh_all(now=not self._is_finished)
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
        if batch is None or batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
            if batch is not None:
                self._flush(self.unkeyed.pop(topic))
            queue = self._queue(message, topic, element, origin)
            if queue is None:
                return
            batch = self.unkeyed[topic] = ProducerBatch(queue, keyed=False)
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
                batch = self.unkeyed[topic] = ProducerBatch(queue, keyed=False)
            end = min(count, begin + self._max_messages - len(batch.messages))
            size = sum(sizes[begin:end])
            if batch.size + size > self._max_bytes:
                ends = [*accumulate(sizes[begin:end], initial=batch.size)]
                end = begin + bisect_right(ends, self._max_bytes) - 1
                size = ends[end - begin] - batch.size
            if end > begin:
                batch.extend(messages[begin:end], ids[begin:end], elements[begin:end], origin, size)
                begin = end
            if begin < count:
                self._flush(self.unkeyed.pop(topic))

    def finish(self) -> None:
        """Send the remaining messages and wait until all are acknowledged. Raises as `BatchSender.send`."""
        for batch in (*self.unkeyed.values(), *self._keyed.values()):
            self._sender.send(batch)
        self.unkeyed.clear()
        self._keyed.clear()
        self._sender.drain()
        self._is_finished = True

    def _queue(self, message: Message, topic: str, element: Any, origin: Any) -> MessageQueue | None:
        """Return the queue of a message; None when its topic is refused: the message is then settled."""
        try:
            if message.sharding_key is None:
                return self._routes.next_queue(topic)
            return self._routes.queue_for_key(topic, message.sharding_key)
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
                self._flush(self._keyed.pop(queue))
                continue  # the queues may have changed, and with them the queue of this key
            break
        batch.add(message, message_id, element, origin, size)
        if fits:
            self._keyed[queue] = batch
        else:
            self._sender.send_alone(batch)

    def _flush(self, batch: ProducerBatch) -> None:
        self._sender.send(batch)
        topic = batch.queue.topic
        if self._routes.refresh(topic):
            # Keys move to other queues: messages sent to the old ones must be stored first.
            for queue in [queue for queue in self._keyed if queue.topic == topic]:
                self._sender.send(self._keyed.pop(queue))
            self._sender.drain()
