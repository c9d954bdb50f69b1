"""A RocketMQ cluster in memory: topics, queues, messages and group offsets, without sockets."""

from __future__ import annotations

import bisect
import heapq
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from rmqio.errors import LocalError, SubscriptionParseFailed, TopicNotExist
from rmqio.model import KEYS, TAGS, MessageQueue, Record
from rmqio.testing._failures import Failure, FailurePlan, Operation, PlannedFailure
from rmqio.testing._storage import StoredQueue, StoredTopic
from rmqio.testing._stored import body_crc, raw_host, raw_properties, stored_size
from rmqio.testing.clock import Clock, is_real

_CLUSTERS: weakref.WeakValueDictionary[str, InMemoryCluster] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)


class InMemoryCluster:
    """Topics, queues, messages and group offsets in memory, with a broker's semantics. Thread-safe.

    Args:
      name: under which `InMemoryClientFactory` finds it in this process; None: a new one.
      clock: gives store times. With a `ManualClock` nothing ever blocks: a client's `wait` advances it by the timeout.
      poll_records: the most that one poll of a reader hands out; a broker's default is 32.
    """

    def __init__(self, name: str | None = None, *, clock: Clock = time, poll_records: int = 32) -> None:
        self.name = name if name is not None else f"cluster-{next(_NUMBERS)}"
        self.clock = clock
        self.poll_records = poll_records
        self.changed = threading.Condition(threading.RLock())
        """Notified when something was stored, planned to fail or otherwise changed; guards all state."""
        self.commits: list[tuple[str, MessageQueue, int]] = []
        """Every commit that took effect, in order."""
        self.open_clients = 0
        """Clients and producers that nobody has closed yet; `open_readers` likewise."""
        self.open_readers = 0
        self._topics: dict[str, StoredTopic] = {}
        self._groups: dict[tuple[str, MessageQueue], int] = {}
        self._resets: dict[tuple[str, MessageQueue], int] = {}
        self._failures = FailurePlan()
        self._delayed: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._commit_log_end = 0
        self.predicates: dict[str, Callable[[Record], bool]] = {}
        """What `define_sql` was given, by expression."""
        self.groups: set[str] = set()
        """Consumer groups that the brokers know: a commit of any other is refused by `FakeBroker`."""
        self.listeners: list[Callable[[], object]] = []
        """Called, under the lock, when something changed."""
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
        """Give the name free. Factories of that name then find nothing. Idempotent."""
        if _CLUSTERS.get(self.name) is self:
            del _CLUSTERS[self.name]

    # ---- what a test arranges ----------------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, queues: int = 4, brokers: Sequence[str] = ("broker-a",), *, permission: int = 6
    ) -> tuple[MessageQueue, ...]:
        """Make a topic with that many queues on each broker; more queues or brokers for one that exists."""
        with self.changed:
            stored = self._topics.setdefault(topic, StoredTopic())
            for broker in brokers:
                stored.permission[broker] = permission
                for queue_id in range(queues):
                    stored.queues.setdefault(MessageQueue(topic, broker, queue_id), StoredQueue())
            self.notify()
            return tuple(sorted(stored.queues))

    def add_queues(self, topic: str, count: int, *, broker: str | None = None) -> tuple[MessageQueue, ...]:
        """More queues, on the first broker of the topic unless one is named. Gives the new ones."""
        with self.changed:
            stored = self.stored_topic(topic)
            broker = broker or min(stored.permission)
            have = sum(queue.broker == broker for queue in stored.queues)
            new = tuple(MessageQueue(topic, broker, have + i) for i in range(count))
            self.create_topic(topic, have + count, (broker,), permission=stored.permission.get(broker, 6))
            return new

    def delete_topic(self, topic: str) -> None:
        """Forget a topic with all its messages and the groups' offsets in it."""
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
        """What retention does: nothing below the offset can be read any more, and the minimum offset is there."""
        with self.changed:
            stored = self.stored_queue(queue)
            stored.minimum = max(stored.minimum, min(offset, stored.end))
            del stored.records[: stored.minimum - stored.first]
            stored.first = stored.minimum
            self.notify()

    def remove(self, queue: MessageQueue, begin: int, end: int) -> None:
        """What a lost commit log file does: a reader jumps over [begin, end), though the minimum offset is below."""
        with self.changed:
            self.stored_queue(queue).removed |= set(range(begin, end))

    def corrupt(self, queue: MessageQueue, offset: int) -> None:
        """Break the stored message so that it does not decode."""
        with self.changed:
            self.stored_queue(queue).corrupt.add(offset)

    def reset_group(self, group: str, queue: MessageQueue, offset: int) -> None:
        """An operator's reset: commits are ignored until a member of the group has pulled (`take_reset`)."""
        with self.changed:
            self._resets[group, queue] = offset

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        """What the first pull under the group does: hands out the pending reset, which thereby is done."""
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
        """Make the next uses of an operation raise, of one queue only if given.

        A class is instantiated each time, an instance raised again and again. With `after` the operation takes effect
        first: a send is stored and its answer lost. For a submitted send the error comes out of `result()`.
        """
        with self.changed:
            self._failures.add(operation, PlannedFailure(error, times, queue, after))
            self.notify()

    def define_sql(self, expression: str, predicate: Callable[[Record], bool]) -> None:
        """What an SQL92 filter means: this cluster does not evaluate SQL."""
        with self.changed:
            self.predicates[expression] = predicate

    # ---- what a test looks at ----------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[Record]:
        """All messages that can be read, by broker, queue and offset."""
        with self.changed:
            self.deliver_due()
            stored = self.stored_topic(topic)
            return [record for queue in sorted(stored.queues) for record in stored.queues[queue].records]

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """A group's committed offset; a pending reset goes before it."""
        with self.changed:
            return self._resets.get((group, queue), self._groups.get((group, queue)))

    # ---- what clients and FakeBroker stand on ------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        with self.changed:
            return sorted(self._topics)

    def stored_topic(self, topic: str) -> StoredTopic:
        """Raises `TopicNotExist`."""
        try:
            return self._topics[topic]
        except KeyError:
            raise TopicNotExist(17, f"No topic route info for {topic}", f"route of topic {topic!r}") from None

    def stored_queue(self, queue: MessageQueue) -> StoredQueue:
        """Raises `TopicNotExist`, and `LocalError` when the topic has no such queue."""
        self.deliver_due()
        try:
            return self.stored_topic(queue.topic).queues[queue]
        except KeyError:
            raise LocalError(f"{queue} does not exist") from None

    def permitted_queues(self, topic: str, permission: int) -> list[MessageQueue]:
        """The topic's queues on the brokers that permit it, sorted. Raises `TopicNotExist`."""
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
        """Append one message and wake who waits."""
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
        """Tell who waits that something changed."""
        with self.changed:
            self.changed.notify_all()
            for listener in self.listeners:
                listener()

    def store_later(self, at_ms: int, store: Callable[[], object]) -> None:
        """Run `store` once the clock is there: a delayed message becomes visible."""
        with self.changed:
            heapq.heappush(self._delayed, (at_ms, next(self._numbers), store))
            self.notify()

    def deliver_due(self) -> None:
        """Make delayed messages visible whose time has come."""
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
        """Set a group's offset; False when a pending reset makes the broker ignore it."""
        with self.changed:
            if (group, queue) in self._resets:
                return False
            self._groups[group, queue] = offset
            self.commits.append((group, queue, offset))
            return True

    def sql_predicate(self, expression: str) -> Callable[[Record], bool]:
        """What `define_sql` was given. Raises `SubscriptionParseFailed`."""
        try:
            return self.predicates[expression]
        except KeyError:
            why = "this cluster does not evaluate SQL: say what the filter means with define_sql()"
            raise SubscriptionParseFailed(23, why, f"filter {expression!r}") from None

    @contextmanager
    def operation(self, name: Operation, queue: MessageQueue | None = None) -> Iterator[None]:
        """Hold the lock, and raise what `fail_next` planned, before or after the body."""
        with self.changed:
            self.deliver_due()
            failure = self._failures.take(name, queue)
            if failure is not None and not failure.after:
                raise failure.exception()
            yield
            if failure is not None:
                raise failure.exception()

    def has_failure(self, name: Operation, queue: MessageQueue) -> bool:
        """Whether the next use of the operation will raise."""
        return self._failures.has(name, queue)

    def wait(self, is_ready: Callable[[], bool], timeout_s: float) -> bool:
        """Block until the predicate holds or the time is over; a clock of a test's own is advanced instead."""
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
                if self._delayed:
                    left = min(left, max(self._delayed[0][0] / 1000 - time.time(), 0.001))
                self.changed.wait(left)


def find_cluster(name: str) -> InMemoryCluster:
    """The cluster of that name in this process. Raises `LocalError`."""
    cluster = _CLUSTERS.get(name)
    if cluster is None:
        raise LocalError(
            f"no InMemoryCluster named {name!r} in this process: it was closed or collected, or this code runs in a "
            "process other than the test's (use FakeBroker there)"
        )
    return cluster
