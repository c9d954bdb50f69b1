"""Topics to which the vendor's library writes: what they contain, and what its results say."""

from __future__ import annotations

import uuid
from typing import Any

from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue, Record, SendResult
from rmqio.options import ClientOptions
from tests.helpers.client.raw_send import read_to
from tests.helpers.waiting import until


def patient(broker: LocalRocketMQ, **more: Any) -> ClientOptions:
    """Returns options with long timeouts: a late answer would count as a failure, and the message be stored twice."""
    return ClientOptions(broker.name_server, request_timeout_ms=30_000, max_retries=20, **more)


def new_topic(broker: LocalRocketMQ, queues: int = 1) -> str:
    topic = f"librocketmq-{uuid.uuid4().hex[:12]}"
    broker.create_topic(topic, queues=queues)
    return topic


def read(broker: LocalRocketMQ, topic: str, count: int, **options: Any) -> list[Record]:
    """Returns all messages, queue by queue, as soon as there are `count`."""
    client = RemotingQueueClient(ClientOptions(broker.name_server, **options))
    try:
        queues = client.queues(topic)

        def have() -> int:
            return sum(client.max_offset(queue) for queue in queues)

        until(lambda: have() >= count, f"{count} messages", progress=have, details=have)
        parts = [part for queue in queues for part in read_to(client, queue, 0, client.max_offset(queue))]
        assert all(part.corrupt == () for part in parts)
        return [record for part in parts for record in part.records]
    finally:
        client.close()


def placed(records: list[Record]) -> dict[str, tuple[MessageQueue, int]]:
    """Returns where each id is stored."""
    found = {record.message_id: (record.queue, record.queue_offset) for record in records}
    assert len(found) == len(records)
    return found


def told(results: list[SendResult]) -> dict[str, tuple[MessageQueue, int]]:
    """Returns where each id is stored according to the results."""
    assert all(result.status.name == "OK" for result in results)
    return {result.message_id: (result.queue, result.queue_offset) for result in results}
