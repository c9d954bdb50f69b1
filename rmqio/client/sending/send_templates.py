"""A producer's send templates, each created at the first send to its queue."""

from __future__ import annotations

from rmqio.client.routes import Routes
from rmqio.client.sending.queue_choice import NEW_TOPIC_QUEUES
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire.templates.send import SendTemplate


class SendTemplates:
    """Maps queues to templates. Thread-safe. Queues have the user's names; the group has the broker's name."""

    def __init__(self, options: ClientOptions, group: str, routes: Routes) -> None:
        self._options = options
        self._group = group
        self._routes = routes
        self._made: dict[MessageQueue, SendTemplate] = {}

    def of(self, queue: MessageQueue) -> SendTemplate:
        """Return the template of a queue."""
        found = self._made.get(queue)
        if found is None:
            found = self._made[queue] = SendTemplate(
                self._group,
                self._routes.wire_queue(queue),
                create_topic=self._options.create_topics,
                topic_queues=NEW_TOPIC_QUEUES,
            )
        return found
