"""`interfaces.Producer` over an `InMemoryCluster`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import PendingSend
from rmqio.model import WRITE_PERMISSION, Message, MessageQueue, SendResult
from rmqio.testing.cluster import InMemoryCluster
from rmqio.topics import WritableQueues, validate_group, validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, BatchBuilder
from rmqio.wire.ids import MessageIds
from rmqio.wire.properties import encode_properties

DELAY_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class InMemoryPendingSend:
    """An `interfaces.PendingSend` that is done from the start."""

    def __init__(self, outcome: list[SendResult] | RmqioError) -> None:
        self._outcome = outcome

    def is_done(self) -> bool:
        return True

    def result(self) -> list[SendResult]:
        if isinstance(self._outcome, RmqioError):
            raise self._outcome
        return self._outcome


class InMemoryProducer:
    """`interfaces.Producer` over a cluster. Refuses what the real one refuses; retries nothing."""

    def __init__(self, cluster: InMemoryCluster, group: str) -> None:
        validate_group(group)
        self._cluster = cluster
        self._group = group
        self._ids = MessageIds()
        self._turns = itertools.count()
        self._closed = False
        cluster.open_clients += 1

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        self._check_open()
        with self._cluster.operation("queues"):
            return self._cluster.permitted_queues(topic, WRITE_PERMISSION)

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        self._check_open()
        if not isinstance(message.body, bytes) or not (message.body or message.is_tombstone):
            raise LocalError("message body must be bytes and not empty")
        if len(message.body) > MAX_MESSAGE_BYTES:
            raise LocalError(f"message body has {len(message.body)} bytes; the maximum is {MAX_MESSAGE_BYTES}")
        message_id = message_id or next(self._ids)
        raw = encode_properties(message, message_id=message_id)
        queue = self._choose((message,), queue)
        with self._cluster.operation("send", queue):
            return self._store(message, queue, message_id, raw, round(self._cluster.clock.time() * 1000))

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        if not messages:
            return []
        self._check_open()
        return list(self.submit(messages, self._choose(messages, queue), message_ids=message_ids).result())

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        self._check_open()
        if not messages:
            return InMemoryPendingSend([])
        ids = [next(self._ids) for _ in messages] if message_ids is None else list(message_ids)
        if len(ids) != len(messages):
            raise LocalError(f"{len(ids)} message_ids for {len(messages)} messages")
        builder = BatchBuilder()
        if builder.add_all(messages, ids) < len(messages):
            raise LocalError(f"batch is full after {len(builder)} messages and {builder.size} bytes")
        self._choose(messages, queue)
        try:
            with self._cluster.operation("send", queue):
                now_ms = round(self._cluster.clock.time() * 1000)  # one store time for the whole batch
                return InMemoryPendingSend(
                    [
                        self._store(
                            message, queue, message_id, encode_properties(message, message_id=message_id), now_ms
                        )
                        for message, message_id in zip(messages, ids, strict=True)
                    ]
                )
        except RmqioError as error:
            return InMemoryPendingSend(error)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._cluster.open_clients -= 1

    def _store(self, message: Message, queue: MessageQueue, message_id: str, raw: bytes, now: int) -> SendResult:
        cluster = self._cluster
        due = now
        if message.delay_level is not None:
            due = now + 1000 * DELAY_LEVELS_S[message.delay_level - 1]
        elif message.deliver_at_ms is not None:
            due = message.deliver_at_ms
        if due > now:
            cluster.store_later(due, lambda: cluster.store(queue, message.body, raw, born_ms=now))
            return SendResult(queue, 0, message_id, "")
        record = cluster.store(queue, message.body, raw, born_ms=now, store_ms=now)
        return SendResult(queue, record.queue_offset, message_id, record.offset_message_id)

    def _choose(self, messages: Sequence[Message], queue: MessageQueue | None) -> MessageQueue:
        topic = queue.topic if queue is not None else messages[0].topic
        if topic is None:
            raise LocalError("neither the message nor the call names a topic")
        for message in messages:
            if message.topic not in (None, topic):
                raise LocalError(f"message is for topic {message.topic!r}, not {topic!r}")
        validate_topic(topic)
        if queue is not None:
            return queue
        writable = WritableQueues(self._cluster.permitted_queues(topic, WRITE_PERMISSION))
        targets = {writable.for_key(m.sharding_key) for m in messages if m.sharding_key is not None}
        if len(targets) > 1:
            raise LocalError(f"sharding keys of one batch belong to {len(targets)} queues of topic {topic!r}")
        return targets.pop() if targets else writable.in_turn(next(self._turns))

    def _check_open(self) -> None:
        if self._closed:
            raise LocalError("this producer is closed")
