"""Messages on the fake cluster."""

from __future__ import annotations

from rmqio.model import MessageQueue
from tests.helpers.fakes.broker import FakeBroker


def append(broker: FakeBroker, queue: MessageQueue, count: int) -> None:
    """Stores messages at the end of a queue."""
    for _ in range(count):
        broker.cluster.append(queue.topic, b"m", queue_id=queue.queue_id, broker=queue.broker)
