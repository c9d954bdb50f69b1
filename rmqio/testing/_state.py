"""The common base of in-memory clients and `FakeBroker`: queues, offsets, delays, waiting."""

from __future__ import annotations

import bisect
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmqio.errors import QueueGone, SubscriptionParseFailed, TopicNotExist
from rmqio.model import MessageQueue, Record
from rmqio.testing._failures import FailurePlan, Operation
from rmqio.testing._protocol.stored import body_crc, raw_host, stored_size
from rmqio.testing._storage import StoredQueue, StoredTopic
from rmqio.testing.clock import Clock, is_real


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

    def forget_committed(self, group: str, queue: MessageQueue) -> None:
        """Lose a group's offset, as a broker does with one of two first commits that it processes at the same time."""
        with self.changed:
            self._groups.pop((group, queue), None)

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
