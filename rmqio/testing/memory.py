"""The interfaces over an `InMemoryCluster`, for transforms that run without sockets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmqio.errors import CommitIgnored, CorruptMessage, LocalError, OffsetOutOfRange, RmqioError, TopicNotExist
from rmqio.interfaces import FetchedBatch, OffsetQuery, PendingSend, Producer, QueueClient, QueueReader
from rmqio.model import READ_PERMISSION, WRITE_PERMISSION, Message, MessageFilter, MessageQueue, Record, SendResult
from rmqio.testing.cluster import InMemoryCluster, StoredQueue, encode_stored, find_cluster
from rmqio.topics import WritableQueues, validate_group, validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, BatchBuilder
from rmqio.wire.ids import MessageIds
from rmqio.wire.properties import encode_properties

# `interfaces.Producer` over an `InMemoryCluster`.

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


@dataclass(frozen=True, slots=True)
class InMemoryClientFactory:
    """Creates clients of the named `InMemoryCluster`. Hashable; pickles as the name, so only within one process."""

    name: str

    def queue_client(self) -> QueueClient:
        return InMemoryQueueClient(find_cluster(self.name))

    def producer(self, group: str) -> Producer:
        return InMemoryProducer(find_cluster(self.name), group)


class InMemoryQueueClient:
    """`interfaces.QueueClient` over a cluster."""

    def __init__(self, cluster: InMemoryCluster) -> None:
        self._cluster = cluster
        self._readers: list[InMemoryReader] = []
        self._closed = False
        cluster.open_clients += 1

    def queues(self, topic: str, *, refresh: bool = False) -> Sequence[MessageQueue]:
        self._check_open()
        with self._cluster.operation("queues"):
            return self._cluster.permitted_queues(topic, READ_PERMISSION)

    def topics(self) -> Sequence[str]:
        self._check_open()
        with self._cluster.operation("topics"):
            return [name for name in self._cluster.topic_names() if not name.startswith("%")]

    def min_offset(self, queue: MessageQueue) -> int:
        self._check_open()
        with self._cluster.operation("min_offset", queue):
            return self._cluster.stored_queue(queue).minimum

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        self._check_open()
        with self._cluster.operation("max_offset", queue):
            return self._cluster.stored_queue(queue).end

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        self._check_open()
        with self._cluster.operation("offset_for_time", queue):
            return self._cluster.offset_for_time(queue, timestamp_ms)

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        self._check_open()
        with self._cluster.operation("committed_offset", queue):
            self._cluster.stored_queue(queue)
            return self._cluster.committed(group, queue)

    def look_up(
        self, queries: Sequence[OffsetQuery], *, timeout_ms: int | None = None
    ) -> Sequence[int | RmqioError | None]:
        found: list[int | RmqioError | None] = []
        for query in queries:
            try:
                found.append(self._answer(query))
            except RmqioError as error:
                found.append(error)
        return found

    def _answer(self, query: OffsetQuery) -> int | None:
        if query.kind == "min":
            return self.min_offset(query.queue)
        if query.kind == "max":
            return self.max_offset(query.queue)
        if query.kind == "time":
            return self.offset_for_time(query.queue, query.timestamp_ms)
        if query.kind == "committed":
            return self.committed_offset(query.group, query.queue)
        raise LocalError(f"{query.queue}: no kind {query.kind!r} of offset; use min, max, time or committed")

    def commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], *, timeout_ms: int | None = None
    ) -> Mapping[MessageQueue, RmqioError]:
        failed: dict[MessageQueue, RmqioError] = {}
        for queue, offset in offsets.items():
            try:
                self.commit_offset(group, queue, offset)
            except RmqioError as error:
                failed[queue] = error
        return failed

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._check_open()
        if offset < 0:
            raise LocalError(f"{queue}: cannot commit the negative offset {offset} for group {group!r}")
        with self._cluster.operation("commit_offset", queue):
            self._cluster.stored_queue(queue)
            if not self._cluster.commit(group, queue, offset):
                raise CommitIgnored(group, queue, offset)

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        self._check_open()
        with self._cluster.operation("commit_offset", queue):
            return self._cluster.take_reset(group, queue)

    def open_reader(self, queue: MessageQueue, offset: int, *, message_filter: MessageFilter) -> QueueReader:
        self._check_open()
        with self._cluster.operation("open_reader", queue):
            self._cluster.stored_queue(queue)
            reader = InMemoryReader(self._cluster, queue, offset, message_filter)
            self._readers.append(reader)
            return reader

    def wait(self, readers: Iterable[QueueReader], timeout_ms: int) -> bool:
        self._check_open()
        waited = list(readers)
        return self._cluster.wait(lambda: any(reader.is_ready() for reader in waited), timeout_ms / 1000)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._cluster.open_clients -= 1
            for reader in self._readers:
                reader.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LocalError("this client is closed")


class InMemoryReader:
    """`interfaces.QueueReader` over a cluster."""

    def __init__(
        self, cluster: InMemoryCluster, queue: MessageQueue, offset: int, message_filter: MessageFilter
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._position = offset
        self._passes = _predicate(cluster, message_filter)
        self._closed = False
        cluster.open_readers += 1

    @property
    def queue(self) -> MessageQueue:
        return self._queue

    @property
    def position(self) -> int:
        return self._position

    def is_ready(self) -> bool:
        with self._cluster.changed:
            return self._cluster.has_failure("poll", self._queue) or not self.is_at_end

    @property
    def is_at_end(self) -> bool:
        with self._cluster.changed:
            try:
                return self._position == self._cluster.stored_queue(self._queue).end
            except (TopicNotExist, LocalError):  # deleted: poll reports it
                return False

    def poll(self) -> FetchedBatch | None:
        if self._closed:
            raise LocalError("this reader is closed")
        with self._cluster.operation("poll", self._queue):
            stored = self._cluster.stored_queue(self._queue)
            position = self._position
            if not stored.minimum <= position <= stored.end:
                raise OffsetOutOfRange(self._queue, position, stored.minimum, stored.end)
            if position == stored.end:
                return None
            fetched = self._fetch(stored, position)
            self._position = fetched.next_offset
            return fetched

    def _fetch(self, stored: StoredQueue, position: int) -> FetchedBatch:
        begin = position
        while begin in stored.removed:
            begin += 1
        records: list[Record] = []
        corrupt: list[CorruptMessage] = []
        next_offset = begin
        for record in stored.slice(begin, self._cluster.poll_records):
            if record.queue_offset in stored.removed:
                break
            next_offset = record.queue_offset + 1
            if record.queue_offset in stored.corrupt:
                corrupt.append(_corrupt(record))
            elif self._passes(record):
                records.append(record)
        return FetchedBatch(records, tuple(corrupt), next_offset, stored.end, skipped=begin - position)

    def seek(self, offset: int) -> None:
        self._position = offset

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._cluster.open_readers -= 1


def _predicate(cluster: InMemoryCluster, message_filter: MessageFilter) -> Callable[[Record], bool]:
    if message_filter.sql:
        return cluster.sql_predicate(message_filter.expression)
    wanted = message_filter.tag_set
    return (lambda record: record.tags in wanted) if wanted else (lambda record: True)


def _corrupt(record: Record) -> CorruptMessage:
    return CorruptMessage(
        "CRC does not match",
        topic=record.topic,
        broker=record.broker,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        raw=encode_stored(record),
        next_offset=record.queue_offset + 1,
    )
