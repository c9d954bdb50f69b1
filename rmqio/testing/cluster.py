"""A RocketMQ cluster in memory: topics, queues, messages and group offsets, without sockets."""

from __future__ import annotations

import bisect
import heapq
import itertools
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, get_args

from rmqio.errors import LocalError, QueueGone, SubscriptionParseFailed, TopicNotExist
from rmqio.model import KEYS, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, TAGS, MessageQueue, Record
from rmqio.testing.clock import Clock, is_real

# Failures that a test plans for the next uses of an operation.

Operation = Literal[
    "queues",
    "topics",
    "min_offset",
    "max_offset",
    "offset_for_time",
    "committed_offset",
    "commit_offset",
    "open_reader",
    "poll",
    "send",
]
"""Operations that can fail: each is a method of a client; `send` covers all ways to send."""

Failure = BaseException | type[BaseException] | Callable[[], BaseException]


@dataclass(slots=True)
class PlannedFailure:
    """A planned failure; `after`: the operation takes effect first."""

    failure: Failure
    times: int
    queue: MessageQueue | None
    after: bool

    def exception(self) -> BaseException:
        return self.failure if isinstance(self.failure, BaseException) else self.failure()


class FailurePlan:
    """The next planned failures, by operation. Not thread-safe: the cluster's lock guards it."""

    def __init__(self) -> None:
        self._planned: dict[str, list[PlannedFailure]] = {}

    def add(self, operation: Operation, failure: PlannedFailure) -> None:
        if operation not in get_args(Operation):
            raise LocalError(f"unknown operation {operation!r}; use one of {', '.join(get_args(Operation))}")
        self._planned.setdefault(operation, []).append(failure)

    def has(self, operation: Operation, queue: MessageQueue) -> bool:
        return any(item.queue in (None, queue) for item in self._planned.get(operation, ()))

    def take(self, operation: Operation, queue: MessageQueue | None) -> PlannedFailure | None:
        """Return the planned failure of this use, if any, and count it as used."""
        planned = self._planned.get(operation, [])
        for item in planned:
            if item.queue in (None, queue):
                item.times -= 1
                if item.times <= 0:
                    planned.remove(item)
                return item
        return None


# The contents of an in-memory cluster.


@dataclass(slots=True)
class StoredQueue:
    """One queue: `records[i]` has the offset `first + i`, whether or not it can still be read."""

    first: int = 0
    minimum: int = 0
    records: list[Record] = field(default_factory=list)
    stored_bodies: dict[int, bytes] = field(default_factory=dict)
    """Stored bodies of messages whose stored body differs from the record's (compressed)."""
    corrupt: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def slice(self, begin: int, count: int) -> list[Record]:
        return self.records[begin - self.first : begin - self.first + count]


@dataclass(slots=True)
class StoredTopic:
    """Queues by broker, with the permission bits shown in a route."""

    queues: dict[MessageQueue, StoredQueue] = field(default_factory=dict)
    permission: dict[str, int] = field(default_factory=dict)


# Encodes messages as a broker stores and returns them (MessageExtEncoder.java), independently of our decoder.

_MAGIC_V1 = -626843481
_MAGIC_V2 = -626843477
_HEAD = struct.Struct(">iiiiiqqiq")
"""Size, magic, body CRC, queue id, flag, queue offset, physical offset, system flag, born time."""
LOOPBACK = bytes((127, 0, 0, 1))


def raw_host(port: int, address: bytes = LOOPBACK) -> bytes:
    """Return address and port as in a stored message."""
    return address + port.to_bytes(4, "big")


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def raw_properties(properties: Mapping[str, str]) -> bytes:
    """Return the stored form of properties. Checks nothing: a broker stores what it is given."""
    text = "".join(f"{k}{NAME_VALUE_SEPARATOR}{v}{PROPERTY_SEPARATOR}" for k, v in properties.items())
    return text.encode("utf-8", "surrogateescape")


def stored_size(topic: str, body: bytes, properties: bytes) -> int:
    """Return the size of a message with IPv4 hosts."""
    name = len(topic.encode())
    return 88 + len(body) + (1 if name <= 127 else 2) + name + 2 + len(properties)


def encode_stored(record: Record, stored_body: bytes | None = None) -> bytes:
    """Return the bytes of one message; `stored_body` is its stored body if that differs (compressed)."""
    body = record.body if stored_body is None else stored_body
    topic = record.topic.encode()
    long_topic = len(topic) > 127
    rest = b"".join(
        (
            record.raw_born_host,
            struct.pack(">q", record.store_timestamp_ms),
            record.raw_store_host,
            struct.pack(">iqi", record.reconsume_times, record.prepared_transaction_offset, len(body)),
            body,
            struct.pack(">h" if long_topic else ">b", len(topic)),
            topic,
            struct.pack(">h", len(record.raw_properties)),
            record.raw_properties,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(rest),
        _MAGIC_V2 if long_topic else _MAGIC_V1,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.commit_log_offset,
        record.sys_flag,
        record.born_timestamp_ms,
    )
    return head + rest


# The common base of in-memory clients and `FakeBroker`: queues, offsets, delays, waiting.


class ClusterState:
    """The state of a cluster and its broker-like operations. Thread-safe; `changed` guards everything."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        """Notified when a message was stored, a failure was planned or anything else changed; guards all state."""
        self.commits: list[tuple[str, MessageQueue, int]] = []
        """Every commit that took effect, in order."""
        self._topics: dict[str, StoredTopic] = {}
        self._groups: dict[tuple[str, MessageQueue], int] = {}
        self._resets: dict[tuple[str, MessageQueue], int] = {}
        self._failures = FailurePlan()
        self._delayed: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._commit_log_end = 0
        self.predicates: dict[str, Callable[[Record], bool]] = {}
        """Predicates passed to `define_sql`, by expression."""
        self.groups: set[str] = set()
        """Consumer groups known to the brokers: `FakeBroker` refuses a commit of any other."""
        self.listeners: list[Callable[[], object]] = []
        """Called, with the lock held, when something changed."""

    def topic_names(self) -> list[str]:
        with self.changed:
            return sorted(self._topics)

    def stored_topic(self, topic: str) -> StoredTopic:
        """Return the topic. Raises `TopicNotExist`."""
        try:
            return self._topics[topic]
        except KeyError:
            raise TopicNotExist(17, f"No topic route info for {topic}", f"route of topic {topic!r}") from None

    def stored_queue(self, queue: MessageQueue) -> StoredQueue:
        """Return the queue. Raises `TopicNotExist`, and `QueueGone` when the topic has no such queue."""
        self.deliver_due()
        try:
            return self.stored_topic(queue.topic).queues[queue]
        except KeyError:
            raise QueueGone(f"{queue} does not exist") from None

    def permitted_queues(self, topic: str, permission: int) -> list[MessageQueue]:
        """Return the topic's queues on the brokers with this permission, sorted. Raises `TopicNotExist`."""
        with self.changed:
            stored = self.stored_topic(topic)
            return [queue for queue in sorted(stored.queues) if stored.permission[queue.broker] & permission]

    def store(
        self,
        queue: MessageQueue,
        body: bytes,
        properties: bytes,
        *,
        born_ms: int | None = None,
        store_ms: int | None = None,
        sys_flag: int = 0,
        flag: int = 0,
        stored_body: bytes | None = None,
        store_port: int = 10911,
    ) -> Record:
        """Append one message and wake waiting threads."""
        with self.changed:
            stored = self.stored_queue(queue)
            now = round(self.clock.time() * 1000)
            kept = body if stored_body is None else stored_body
            record = Record(
                topic=queue.topic,
                broker=queue.broker,
                queue_id=queue.queue_id,
                queue_offset=stored.end,
                body=body,
                born_timestamp_ms=now if born_ms is None else born_ms,
                store_timestamp_ms=now if store_ms is None else store_ms,
                raw_properties=properties,
                reconsume_times=0,
                sys_flag=sys_flag,
                flag=flag,
                commit_log_offset=self._commit_log_end,
                prepared_transaction_offset=0,
                raw_born_host=raw_host(50_000),
                raw_store_host=raw_host(store_port),
                body_crc=body_crc(kept),
                stored_size=stored_size(queue.topic, kept, properties),
            )
            self._commit_log_end += record.stored_size
            if stored_body is not None:
                stored.stored_bodies[record.queue_offset] = stored_body
            stored.records.append(record)
            self.notify()
            return record

    def notify(self) -> None:
        """Wake waiting threads after a change."""
        with self.changed:
            self.changed.notify_all()
            for listener in self.listeners:
                listener()

    def store_later(self, at_ms: int, store: Callable[[], object]) -> None:
        """Run `store` once the clock reaches the time: a delayed message becomes visible."""
        with self.changed:
            heapq.heappush(self._delayed, (at_ms, next(self._numbers), store))
            self.notify()

    def until_due_s(self) -> float | None:
        """Return the seconds until the next delayed message is due; None: there is none."""
        with self.changed:
            return max(self._delayed[0][0] / 1000 - self.clock.time(), 0.0) if self._delayed else None

    def deliver_due(self) -> None:
        """Make due delayed messages visible."""
        while self._delayed and self._delayed[0][0] <= self.clock.time() * 1000:
            with suppress(TopicNotExist):  # deleted in the meantime
                heapq.heappop(self._delayed)[2]()

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        with self.changed:
            stored = self.stored_queue(queue)
            return stored.first + bisect.bisect_left(
                stored.records, timestamp_ms, key=lambda record: record.store_timestamp_ms
            )

    def commit(self, group: str, queue: MessageQueue, offset: int) -> bool:
        """Set a group's offset; return False when a pending reset makes the broker ignore it."""
        with self.changed:
            if (group, queue) in self._resets:
                return False
            self._groups[group, queue] = offset
            self.commits.append((group, queue, offset))
            return True

    def sql_predicate(self, expression: str) -> Callable[[Record], bool]:
        """Return the predicate passed to `define_sql`. Raises `SubscriptionParseFailed`."""
        try:
            return self.predicates[expression]
        except KeyError:
            why = "this cluster does not evaluate SQL: define the filter's meaning with define_sql()"
            raise SubscriptionParseFailed(23, why, f"filter {expression!r}") from None

    @contextmanager
    def operation(self, name: Operation, queue: MessageQueue | None = None) -> Iterator[None]:
        """Hold the lock, and raise the failure planned with `fail_next`, before or after the body."""
        with self.changed:
            self.deliver_due()
            failure = self._failures.take(name, queue)
            if failure is not None and not failure.after:
                raise failure.exception()
            yield
            if failure is not None:
                raise failure.exception()

    def has_failure(self, name: Operation, queue: MessageQueue) -> bool:
        """Return whether the next use of the operation will raise."""
        return self._failures.has(name, queue)

    def wait(self, is_ready: Callable[[], bool], timeout_s: float) -> bool:
        """Block until the predicate holds or the time is over; a test's own clock is advanced instead."""
        if not is_real(self.clock):
            with self.changed:
                if is_ready():
                    return True
            self.clock.sleep(timeout_s)
            with self.changed:
                self.deliver_due()
                return is_ready()
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while True:
                self.deliver_due()
                if is_ready():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                due_s = self.until_due_s()
                self.changed.wait(left if due_s is None else min(left, max(due_s, 0.001)))


_CLUSTERS: weakref.WeakValueDictionary[str, InMemoryCluster] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)


class InMemoryCluster(ClusterState):
    """Topics, queues, messages and group offsets in memory, with a broker's semantics. Thread-safe.

    Args:
      name: the name by which `InMemoryClientFactory` finds it in this process; None: a new one.
      clock: the source of store times. With a `ManualClock` nothing blocks: `wait` advances it by the timeout.
      poll_records: the maximum number of records per poll of a reader; a broker's default is 32.
    """

    def __init__(self, name: str | None = None, *, clock: Clock = time, poll_records: int = 32) -> None:
        self.name = name if name is not None else f"cluster-{next(_NUMBERS)}"
        super().__init__(clock)
        self.poll_records = poll_records
        self.open_clients = 0
        """Clients and producers that have not been closed; `open_readers` likewise."""
        self.open_readers = 0
        if _CLUSTERS.setdefault(self.name, self) is not self:
            raise LocalError(f"there already is an InMemoryCluster named {self.name!r}; close() it first")

    def __repr__(self) -> str:
        count = sum(len(q.records) for t in self._topics.values() for q in t.queues.values())
        return f"<InMemoryCluster {self.name!r}, {len(self._topics)} topics, {count} messages>"

    def __enter__(self) -> InMemoryCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the name. Factories with that name then find nothing. Idempotent."""
        if _CLUSTERS.get(self.name) is self:
            del _CLUSTERS[self.name]

    # ---- what a test arranges ----------------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, queues: int = 4, brokers: Sequence[str] = ("broker-a",), *, permission: int = 6
    ) -> tuple[MessageQueue, ...]:
        """Create a topic with that many queues on each broker; add queues or brokers to an existing one."""
        with self.changed:
            stored = self._topics.setdefault(topic, StoredTopic())
            for broker in brokers:
                stored.permission[broker] = permission
                for queue_id in range(queues):
                    stored.queues.setdefault(MessageQueue(topic, broker, queue_id), StoredQueue())
            self.notify()
            return tuple(sorted(stored.queues))

    def add_queues(self, topic: str, count: int, *, broker: str | None = None) -> tuple[MessageQueue, ...]:
        """Add queues, by default on the first broker of the topic. Returns the new queues."""
        with self.changed:
            stored = self.stored_topic(topic)
            broker = broker or min(stored.permission)
            have = sum(queue.broker == broker for queue in stored.queues)
            new = tuple(MessageQueue(topic, broker, have + i) for i in range(count))
            self.create_topic(topic, have + count, (broker,), permission=stored.permission.get(broker, 6))
            return new

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its messages and the groups' offsets in it."""
        with self.changed:
            self._topics.pop(topic, None)
            for table in (self._groups, self._resets):
                for key in [key for key in table if key[1].topic == topic]:
                    del table[key]
            self.notify()

    def append(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int = 0,
        broker: str | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        born_ms: int | None = None,
        store_ms: int | None = None,
    ) -> Record:
        """Store a message as it is, unchecked, at the end of a queue of the topic (of its first broker)."""
        named = {KEYS: " ".join(keys)} if keys else {}
        named |= {TAGS: tags} if tags is not None else {}
        with self.changed:
            broker = broker or min(self.stored_topic(topic).permission)
            raw = raw_properties({**named, **(properties or {})})
            return self.store(MessageQueue(topic, broker, queue_id), body, raw, born_ms=born_ms, store_ms=store_ms)

    def delete_before(self, queue: MessageQueue, offset: int) -> None:
        """Act like retention: offsets below this one can no longer be read, and it becomes the minimum offset."""
        with self.changed:
            stored = self.stored_queue(queue)
            stored.minimum = max(stored.minimum, min(offset, stored.end))
            del stored.records[: stored.minimum - stored.first]
            stored.first = stored.minimum
            self.notify()

    def remove(self, queue: MessageQueue, begin: int, end: int) -> None:
        """Act like a lost commit log file: a reader skips [begin, end), although the minimum offset is lower."""
        with self.changed:
            self.stored_queue(queue).removed |= set(range(begin, end))

    def corrupt(self, queue: MessageQueue, offset: int) -> None:
        """Damage the stored message so that it does not decode."""
        with self.changed:
            self.stored_queue(queue).corrupt.add(offset)

    def reset_group(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Act like an operator's reset: commits are ignored until a member of the group has pulled (`take_reset`)."""
        with self.changed:
            self._resets[group, queue] = offset

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        """Act like the first pull under the group: return the pending reset and complete it."""
        with self.changed:
            offset = self._resets.pop((group, queue), None)
            if offset is not None:
                self._groups[group, queue] = offset
            return offset

    def fail_next(
        self,
        operation: Operation,
        error: Failure,
        times: int = 1,
        *,
        queue: MessageQueue | None = None,
        after: bool = False,
    ) -> None:
        """Make the next uses of an operation raise, only for one queue if given.

        A class is instantiated each time; an instance is raised repeatedly. With `after` the operation takes effect
        first: a send is stored and its answer lost. For a submitted send, `result()` raises the error.
        """
        with self.changed:
            self._failures.add(operation, PlannedFailure(error, times, queue, after))
            self.notify()

    def define_sql(self, expression: str, predicate: Callable[[Record], bool]) -> None:
        """Define the meaning of an SQL92 filter: this cluster does not evaluate SQL."""
        with self.changed:
            self.predicates[expression] = predicate

    # ---- what a test looks at ----------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[Record]:
        """Return all readable messages, by broker, queue and offset."""
        with self.changed:
            self.deliver_due()
            stored = self.stored_topic(topic)
            return [record for queue in sorted(stored.queues) for record in stored.queues[queue].records]

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset; a pending reset takes precedence."""
        with self.changed:
            return self._resets.get((group, queue), self._groups.get((group, queue)))


def find_cluster(name: str) -> InMemoryCluster:
    """Return the cluster with that name in this process. Raises `LocalError`."""
    cluster = _CLUSTERS.get(name)
    if cluster is None:
        raise LocalError(
            f"no InMemoryCluster named {name!r} in this process: it was closed or collected, or this code runs in a "
            "process other than the test's (use FakeBroker there)"
        )
    return cluster
