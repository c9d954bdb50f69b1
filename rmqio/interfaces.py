"""The protocols between the transforms and a client, and picklable factories that create clients where they are used.

Code that reads or writes queues uses `QueueClient`, `QueueReader` and `Producer`. `rmqio.client` implements them over
sockets, `rmqio.testing` in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from rmqio.errors import CorruptMessage, RmqioError
from rmqio.model import Message, MessageFilter, MessageQueue, Record, SendResult

ENDLESS_READ: Final = "rmqio:endless_read:v1"
"""The Beam annotation that tells a runner that a transform's read never ends. An unbounded collection does not imply
that: other splittable DoFns are unbounded and can still end."""

SKEW_NAMESPACE: Final = "rmqio.skew"
"""The namespace of the counters by key and by queue that `rmqio.skew.SkewReport` reads. Their names are JSON."""

IDS: Final = "ids"
RANDOM_IDS: Final = "random"
"""How the value of `IDS` in a write's display data begins if messages that a bundle sends again look, or can look, like
new ones. It is not an annotation, because an annotation must be known before the write is applied."""
EXACTLY_ONCE: Final = "exactly_once"
"""The name of the sink's group in the display data of an exactly-once write."""
QUEUES: Final = "_queues"
"""Suffix of the name of that group: the offsets of the group with this name store the number of queues."""


class OffsetLookup(Protocol):
    """The queries that a start or stop strategy can make. All raise `BrokerError` and `TransportError`."""

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset that the broker still holds."""
        ...

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        """One past the newest visible message. `at_least`: as in `OffsetQuery`.

        While a broker's master is unavailable, this is its replica's end, which can be smaller than an end seen before.
        A caller that has a position keeps it until the end has passed it.
        """
        ...

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after the time (Unix ms, the broker's clock); `max_offset` if there is none."""
        ...

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset at which the group continues; None if it has none."""
        ...


class OffsetQuery(NamedTuple):
    """One query about one queue, for `QueueClient.look_up`. The answers are those of `OffsetLookup`."""

    queue: MessageQueue
    kind: Literal["min", "max", "time", "committed"]
    timestamp_ms: int = 0
    """The timestamp of a "time" query."""
    group: str = ""
    """The group of a "committed" query."""
    at_least: int = 0
    """A "max" query's end that was seen before. If a replica has less, it is behind, which is a `TransportError`; if a
    master has less, that is the answer."""


class FetchedBatch(NamedTuple):
    """Consecutive messages of one queue, as a reader returns them."""

    records: list[Record]
    corrupt: tuple[CorruptMessage, ...]
    """Messages among them that cannot be decoded."""
    next_offset: int
    """The offset to read next. It can be beyond the last record if a filter or a removed file left a gap."""
    max_offset: int
    """The broker's end when it answered: `max_offset - next_offset` messages are left."""
    skipped: int = 0
    """Offsets in this range that the broker skipped although no filter explains it (files removed by retention)."""
    latency_ms: float = 0.0
    """The time from sending the pull to decoding its answer."""


class QueueReader(Protocol):
    """Reads one queue ahead, with several pulls in flight. Created by `QueueClient.open_reader`, used by one thread."""

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def position(self) -> int:
        """The offset at which the next `poll` starts."""
        ...

    def is_ready(self) -> bool:
        """Sends and receives what it can; returns whether `poll` would return messages (or raise) without waiting."""
        ...

    @property
    def is_at_end(self) -> bool:
        """Whether the broker holds a long poll of this reader: at the moment, nothing is left to read."""
        ...

    def poll(self) -> FetchedBatch | None:
        """The next messages, or None if none have arrived yet. Never blocks on the network.

        Raises `OffsetOutOfRange` (the reader keeps its position; `seek` to continue), and `BrokerError` and
        `TransportError` after the retries that the client's options permit.
        """
        ...

    def seek(self, offset: int) -> None:
        """Continue at another offset, and drop what was read ahead."""
        ...

    def close(self) -> None:
        """Drop what is in flight. Idempotent."""
        ...


class QueueClient(OffsetLookup, Protocol):
    """Reads queues by offset. Thread-safe, but a reader belongs to one thread. Connects on first use."""

    def queues(self, topic: str, *, refresh: bool = False) -> Sequence[MessageQueue]:
        """The topic's readable queues, sorted: from a cached route, or with `refresh` from a new one.

        Raises `TopicNotExist`.
        """
        ...

    def topics(self) -> Sequence[str]:
        """The users' topics (no system, retry or dead-letter topics), sorted."""
        ...

    def look_up(
        self, queries: Sequence[OffsetQuery], *, timeout_ms: int | None = None
    ) -> Sequence[int | RmqioError | None]:
        """Answers many queries at once, in their order, with an error in the place of each query that failed.

        All queries are sent together. The call takes at most `timeout_ms` (None: one request timeout), however many
        brokers are silent. A broker that has not answered in time is skipped: its queries fail immediately with
        `BrokerSilent` until it has answered a probe, which runs in the background.
        """
        ...

    def commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], *, timeout_ms: int | None = None
    ) -> Mapping[MessageQueue, RmqioError]:
        """Set the group's offsets of many queues at once, as `look_up` does. Returns the errors of failed queues.

        The errors are those of `commit_offset`.
        """
        ...

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset. Raises if the broker ignored it, or does not know the group even after a retry."""
        ...

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        """Take an operator's pending reset of the group's offset, so that commits work again. None: no reset pends.

        A broker returns a reset to the first pull of the group, once, and ignores commits until then.
        """
        ...

    def open_reader(self, queue: MessageQueue, offset: int, *, message_filter: MessageFilter) -> QueueReader:
        """Open a reader of one queue at an offset. Sends its first pulls immediately."""
        ...

    def wait(self, readers: Iterable[QueueReader], timeout_ms: int) -> bool:
        """Block until one of the readers is ready or the time has passed. Returns whether one is ready."""
        ...

    def close(self) -> None:
        """Close every connection and reader. Idempotent."""
        ...


class MicroBatchLimits(Protocol):
    """How much a micro-batch may read of one source, as a runner that plans says it."""

    @property
    def max_records(self) -> int | None: ...

    @property
    def max_bytes(self) -> int | None: ...

    @property
    def may_cut(self) -> bool:
        """Whether a read may stop before its planned end."""
        ...


class PendingSend(Protocol):
    """A batch in flight."""

    def is_done(self) -> bool:
        """Receives what has arrived, and returns whether `result` would not block."""
        ...

    def result(self) -> Sequence[SendResult]:
        """One result per message, in order. Blocks, and retries as the options say. Raises the last error.

        A producer may make them when they are looked at.
        """
        ...


@dataclass(slots=True)
class SendStatistics:
    """How a producer has handled failures so far. A producer that retries shows them as `statistics`."""

    retries: int = 0
    unknown_outcomes: int = 0
    """Tries that ended without an answer. The message may be stored, so each retry of one may be a duplicate."""
    busy_answers: int = field(default=0, repr=False)
    """Tries that a broker refused because of its load."""
    throttled_ms: int = field(default=0, repr=False)
    """Waits before sends to brokers that were busy."""


class Producer(Protocol):
    """Sends messages. Thread-safe. Connects on first use. At least once: a retry can store a message twice."""

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The topic's writable queues, sorted. Raises `TopicNotExist`."""
        ...

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """Send one message and wait. Without `queue`, the sharding key selects the queue; else queues take turns.

        `message_id` becomes the unique id (UNIQ_KEY); None: a new random one.

        A retry goes to a queue of another broker if there is one, unless `queue` or a sharding key is given.
        """
        ...

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic to one queue in one request and wait. Either all are stored, or none."""
        ...

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """Start sending a batch to one queue. Returns immediately unless too much is in flight.

        With `ordered`, the queue has at most one batch in flight. `message_ids`: one unique id (UNIQ_KEY) per message.
        The batch must respect the caps of `wire.batch` and contain no delayed message. Raises `LocalError` if a message
        cannot be sent.
        """
        ...

    def close(self) -> None:
        """Wait for batches in flight, then close. Idempotent."""
        ...


@runtime_checkable
class ClientFactory(Hashable, Protocol):
    """Creates clients in the process that uses them. Picklable. Equal factories share one client per process."""

    def queue_client(self) -> QueueClient: ...

    def producer(self, group: str) -> Producer: ...
