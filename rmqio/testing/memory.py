"""The interfaces over an `InMemoryCluster`, for transforms that run without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmqio.errors import CommitIgnored, CorruptMessage, LocalError, OffsetOutOfRange, RmqioError, TopicNotExist
from rmqio.interfaces import FetchedBatch, OffsetQuery, Producer, QueueClient, QueueReader
from rmqio.model import READ_PERMISSION, MessageFilter, MessageQueue, Record
from rmqio.testing._memory_producer import InMemoryProducer
from rmqio.testing._protocol.stored import encode_stored
from rmqio.testing._storage import StoredQueue
from rmqio.testing.cluster import InMemoryCluster, find_cluster


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
