"""A RocketMQ cluster in memory: topics, queues, messages and group offsets, without sockets."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

from rmqio.errors import LocalError
from rmqio.model import KEYS, TAGS, MessageQueue, Record
from rmqio.testing._failures import Failure, Operation, PlannedFailure
from rmqio.testing._protocol.stored import raw_properties
from rmqio.testing._state import ClusterState
from rmqio.testing._storage import StoredQueue, StoredTopic
from rmqio.testing.clock import Clock

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
