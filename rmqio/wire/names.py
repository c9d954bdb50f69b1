"""Validates the names of a read: topics, and queues with their brokers. Brokers do not check them and find nothing."""

from __future__ import annotations

from typing import Final

from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.topics.names import validate_topic
from rmqio.topics.subscription import Subscription

_MAX_BROKER: Final = 255


def validate_subscription(what: Subscription) -> None:
    """Raise `LocalError` for the first topic or queue that no broker can have. Matches of a pattern exist."""
    for topic in what.topics:
        validate_topic(topic)
    for queue in what.queues:
        validate_queue(queue)


def validate_queue(queue: MessageQueue) -> None:
    """Raise `LocalError` for a queue that no broker can have."""
    topic, broker, queue_id = queue
    for what, name in (("topic", topic), ("broker", broker)):
        if not isinstance(name, str):
            raise LocalError(f"{what} name of {tuple(queue)} is {name!r}; it must be text")
    validate_topic(topic)
    # A broker accepts nearly any name for itself (with dots, colons or slashes), except characters that break a line.
    if not broker or len(broker) > _MAX_BROKER or not broker.isprintable() or broker != "".join(broker.split()):
        raise LocalError(
            f"broker name {broker!r} (of topic {topic!r}) is illegal: 1 to {_MAX_BROKER} characters are allowed, and "
            "no white space; `rmqio describe TOPIC` shows the brokers of a topic"
        )
    if not isinstance(queue_id, int) or isinstance(queue_id, bool) or queue_id < 0:
        raise LocalError(f"queue {queue_id!r} of topic {topic!r} is illegal: queues are numbered from 0")
