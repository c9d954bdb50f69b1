"""Messages on their way into batches: by topic, by the queue of their sharding key, or alone."""

from __future__ import annotations

from typing import Any

from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import Message, MessageQueue
from rmqio.sending.batch import Batch
from rmqio.sending.batches import BatchSender
from rmqio.sending.outcomes import Outcomes
from rmqio.sending.routes import WriteRoutes
from rmqio.wire.batch import batchable


class BatchAccumulator:
    """Gathers messages in batches per topic and queue, and sends a batch when it is full.

    Order: messages with the same sharding key are sent in the order in which they are added, per topic. Messages
    without a key have none.

    Delivery: what was added is acknowledged, or settled as failed, when `finish` has returned. After an error was
    raised nothing is in flight, what is gathered is lost, and all that was added since `begin` must come again.

    Args:
      sender, routes: of one producer.
      outcomes: told of messages that have no queue, since their topic is refused.
      max_messages, max_bytes: of a batch. What is larger by itself is sent alone.
      one_by_one: each message is sent alone, and waited for.
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
        self.unkeyed: dict[str, Batch] = {}
        """The batch of each topic that takes messages without a key; always this dict, for those who add by hand."""
        self._keyed: dict[MessageQueue, Batch] = {}
        self._is_finished = True
        """Whether the last bundle was: it may have failed since queues are no more."""

    def begin(self) -> None:
        """Forget what was gathered and never sent, wait for what is in flight, and look whether queues are new."""
        self._sender.abandon()
        self.unkeyed.clear()
        self._keyed.clear()
        self._routes.refresh_all(now=not self._is_finished)
        self._is_finished = False

    def add(self, message: Message, topic: str, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """Add a message that is for `topic`; `size` is its `estimated_size`. Raises as `BatchSender.send`."""
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
            batch = self.unkeyed[topic] = Batch(queue, keyed=False)
        batch.add(message, message_id, element, origin, size)

    def finish(self) -> None:
        """Send what is left and wait until everything is acknowledged. Raises as `BatchSender.send`."""
        for batch in (*self.unkeyed.values(), *self._keyed.values()):
            self._sender.send(batch)
        self.unkeyed.clear()
        self._keyed.clear()
        self._sender.drain()
        self._is_finished = True

    def _queue(self, message: Message, topic: str, element: Any, origin: Any) -> MessageQueue | None:
        """Where a message goes; None when its topic is refused, which is then settled."""
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
        """Add a message that has a key, or that no batch can take."""
        fits = size <= self._max_bytes and batchable(message) and not self._one_by_one
        while True:
            queue = self._queue(message, topic, element, origin)
            if queue is None:
                return
            keyed = message.sharding_key is not None
            batch = self._keyed.get(queue) if keyed else None
            if batch is None:
                batch = Batch(queue, keyed=keyed)
            elif not fits or batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
                self._flush(self._keyed.pop(queue))
                continue  # the queues may be others now, and so the queue of this key
            break
        batch.add(message, message_id, element, origin, size)
        if fits:
            self._keyed[queue] = batch
        else:
            self._sender.send_alone(batch)

    def _flush(self, batch: Batch) -> None:
        self._sender.send(batch)
        topic = batch.queue.topic
        if self._routes.refresh(topic):
            # Keys move to other queues: what went to the old ones must be stored first.
            for queue in [queue for queue in self._keyed if queue.topic == topic]:
                self._sender.send(self._keyed.pop(queue))
            self._sender.drain()
