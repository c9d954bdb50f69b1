"""The DoFn behind `WriteToRocketMQ`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import apache_beam as beam

from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import Message, MessageQueue
from rmqio.options import WriteOptions
from rmqio.seams import ClientFactory
from rmqio.transforms.write_batches import Batch, BatchSender
from rmqio.transforms.write_elements import MessageMaker
from rmqio.transforms.write_outputs import WriteMetrics, WriteOutputs
from rmqio.transforms.write_producers import ProducerLease
from rmqio.transforms.write_routes import WriteRoutes

_MEMBER_BYTES: Final = 64
"""What a batch's member takes beside body and properties: its head, and a UNIQ_KEY of 32 characters."""


_KEY_BYTES: Final = 64
"""Taken for a tag, and for each key: measuring them costs more than it saves. The sender splits what is too large."""


class WriteFn(beam.DoFn):
    """Sends every element as a message; results to the main output, `FailedMessage`s to the output "failed".

    Delivery: at least once. Messages are gathered in batches per topic and queue, sent when a batch is full, and what
    is left when the bundle finishes; finish_bundle returns only when everything was acknowledged. An error
    that a later try may cure is raised, fails the bundle, and the runner runs it again, whole: messages of it that were
    stored already are stored twice. Nothing is sent in a finalizer: that runs after the commit, where a failure loses
    data.

    Windows: an element is sent once however many windows it is in. Outputs keep windows, timestamp and pane.

    Order: messages with the same sharding key keep their order, within a bundle and a topic. Messages without a key
    have none.

    Args:
      maker: makes the messages.
      factory, group: make the producer, which is shared by all writers of a process with equal ones.
      with_sent: whether results are given out.
      ordered: one batch in flight per queue that a sharding key leads to.
      clock: seconds, monotonic; must pickle.
    """

    def __init__(
        self,
        maker: MessageMaker,
        factory: ClientFactory,
        group: str,
        options: WriteOptions,
        *,
        with_sent: bool = True,
        ordered: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker = maker
        self._factory = factory
        self._group = group
        self._options = options
        self._with_sent = with_sent
        self._ordered = ordered
        self._clock = clock
        self._topic = maker.topic
        self._passes_messages = maker.selector is None and maker.id_fn is None
        self._max_messages = options.max_batch_messages if options.batch_flush else 1
        self._one_by_one = not options.batch_flush and not options.asynchronous
        self._max_bytes = options.max_batch_bytes
        self._lease: ProducerLease | None = None

    def setup(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self._lease = ProducerLease(self._factory, self._group)
        producer = self._lease.producer
        options = self._options
        self._outputs = WriteOutputs(WriteMetrics(), with_sent=self._with_sent)
        required_topics = self._maker.required_topics
        self._routes = WriteRoutes(
            producer,
            known_topics=self._lease.known_topics,
            required_topics=required_topics,
            refresh_ms=options.name_server_poll_interval_ms,
            clock=self._clock,
        )
        self._sender = BatchSender(
            producer,
            self._outputs,
            max_in_flight=options.max_in_flight if options.asynchronous else 1,
            ordered=self._ordered,
            required_topics=required_topics,
            clock=self._clock,
        )

    def start_bundle(self) -> None:
        if self._lease is None or not self._lease.is_valid:  # forked since setup, or never set up
            self._connect()
        self._sender.abandon()
        self._unkeyed: dict[str, Batch] = {}
        self._keyed: dict[MessageQueue, Batch] = {}
        self._outputs.begin_bundle()
        self._routes.refresh_all()

    # WindowParam would call process() once per window of an element, and each call would send it.
    def process(self, element: Any, value: Any = beam.DoFn.WindowedValueParam) -> list[Any] | None:
        # Fields are read by position, which is faster than by name: this runs per message.
        message: Message | None = None
        try:
            if self._passes_messages and type(element) is Message:
                message, message_id = element, None
                topic = element[1] or self._topic
                if not topic:
                    raise LocalError("no topic: neither the message nor topic= names one")
            else:
                message, topic, message_id = self._maker.make(element)
            size = len(message[0]) + _MEMBER_BYTES
            if message[4]:
                size += _properties_size(message)
            elif message[2] or message[3]:
                size += _KEY_BYTES * (1 + len(message[3]))
        except Exception as error:  # noqa: BLE001  # whatever a user's callable raises, one element must not stop the rest
            self._outputs.failed(value, message, None if message is None else message[1], error)
            return self._take(value)

        key = message[5]
        if (
            key is not None
            or size > self._max_bytes
            or message[6] is not None
            or message[7] is not None
            or self._one_by_one
        ):
            self._add_special(value, message, topic, message_id, size)
            return self._take(value)
        batch = self._unkeyed.get(topic)
        if batch is None or batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
            if batch is not None:
                self._flush(self._unkeyed.pop(topic))
            queue = self._queue(value, message, topic)
            if queue is None:
                return self._take(value)
            batch = self._unkeyed[topic] = Batch(queue, keyed=False)
        batch.size += size
        batch.messages.append(message)
        batch.ids.append(message_id)
        batch.inputs.append(value)
        return self._take(value) if self._outputs.waiting else None

    def finish_bundle(self) -> list[Any]:
        """Send what is left and wait until everything is acknowledged. Raises what fails the bundle."""
        for batch in (*self._unkeyed.values(), *self._keyed.values()):
            self._sender.send(batch)
        self._unkeyed, self._keyed = {}, {}
        self._sender.drain()
        self._outputs.end_bundle()
        return self._outputs.take()

    def teardown(self) -> None:
        if self._lease is not None and self._lease.is_valid:
            self._sender.abandon()  # a bundle that another DoFn has failed may have left some
            self._lease.release()

    def _take(self, value: Any) -> list[Any] | None:
        """The outputs that wait, or None.

        While an element of several windows is processed they wait on: Beam multiplies the windows of what it is given
        by those of the element (`_maybe_propagate_windowing_info`).
        """
        return self._outputs.take() if self._outputs.waiting and len(value.windows) == 1 else None

    def _queue(self, value: Any, message: Message, topic: str) -> MessageQueue | None:
        """Where a message goes; None when its topic is refused, which is then settled."""
        try:
            if message.sharding_key is None:
                return self._routes.next_queue(topic)
            return self._routes.queue_for_key(topic, message.sharding_key)
        except (LocalError, TopicNotExist) as error:
            self._outputs.failed(value, message, topic, error)
            return None

    def _add_special(self, value: Any, message: Message, topic: str, message_id: str | None, size: int) -> None:
        """Add a message that has a key, or that no batch can take."""
        batchable = (
            size <= self._max_bytes
            and message.delay_level is None
            and message.deliver_at_ms is None
            and not self._one_by_one
        )
        while True:
            queue = self._queue(value, message, topic)
            if queue is None:
                return
            keyed = message.sharding_key is not None
            batch = self._keyed.get(queue) if keyed else None
            if batch is None:
                batch = Batch(queue, keyed=keyed)
            elif not batchable or batch.size + size > self._max_bytes or len(batch.messages) >= self._max_messages:
                self._flush(self._keyed.pop(queue))
                continue  # the queues may be others now, and so the queue of this key
            break
        batch.size += size
        batch.messages.append(message)
        batch.ids.append(message_id)
        batch.inputs.append(value)
        if batchable:
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


def _properties_size(message: Message) -> int:
    """About the bytes of tag, keys and properties; exact for ASCII. The sender splits a batch that is too large."""
    size = len(message.tags or "") + sum(map(len, message.keys)) + len(message.keys) + 16
    for name, value in message.properties.items():
        size += len(name) + len(value) + 2
    return size
