"""Converts the elements of `ReadAllFromRocketMQ` to queues to read."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam

from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.start import check_named
from rmqio.topics import Subscription, validate_queue, validate_subscription
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.reading.config import ReadConfig
from rmqio.transforms.reading.discovery.discover_fn import warn_if_unread
from rmqio.transforms.shared import shared_client


class DescribeFn(beam.DoFn):
    """Converts an element of `ReadAllFromRocketMQ` to descriptors.

    The transform's start and stop can name queues of any topic that arrives. For a topic that has arrived, named queues
    that do not exist are refused. An instance says once that what has arrived is not read: see `warn_if_unread`.
    """

    def __init__(self, config: ReadConfig, start_advice: str | None = None) -> None:
        self._factory = config.factory
        self._config, self._advice = config, start_advice
        self._has_warned = False
        self._named = (
            ("start=StartFrom.specific_offsets(...)", config.start.named),
            ("stop=StopAt.offsets(...)", () if config.stop is None else config.stop.named),
        )
        self._checked: set[str] = set()

    def process(self, element: str | MessageQueue | QueueDescriptor) -> Iterable[QueueDescriptor]:
        client = shared_client(self._factory)
        if isinstance(element, QueueDescriptor):
            validate_queue(element.queue)
            self._check(element.queue.topic, client)
            self._warn(str(element.queue), [element.queue], client, element)
            return [element]
        what = Subscription.of(element)
        validate_subscription(what)
        queues = what.find_queues(client)
        for topic in sorted({queue.topic for queue in queues}):
            self._check(topic, client)
        self._warn(str(what), queues, client)
        return [QueueDescriptor(queue) for queue in queues]

    def _warn(
        self, what: str, queues: list[MessageQueue], client: QueueClient, own: QueueDescriptor | None = None
    ) -> None:
        config = self._config
        start, stop = (own and own.start) or config.start, (own and own.stop) or config.stop
        if stop is None or self._has_warned:
            return
        self._has_warned = warn_if_unread(
            what, queues, client, start=start, stop=stop, group=config.group, advice=self._advice
        )

    def _check(self, topic: str, client: QueueClient) -> None:
        if topic in self._checked:
            return
        for what, named in self._named:
            of_topic = [queue for queue in named if queue.topic == topic]
            if of_topic:
                check_named(of_topic, client.queues(topic), what)
        self._checked.add(topic)
