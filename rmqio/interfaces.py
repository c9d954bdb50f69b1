"""The protocols between the transforms and a client, and the picklable factories that make one where it is used.

Whatever reads or writes queues codes against `QueueClient`, `QueueReader` and `Producer`; `rmqio.client` implements
them over sockets, `rmqio.testing` in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from rmqio.errors import CorruptMessage, RmqioError
from rmqio.model import Message, MessageFilter, MessageQueue, Record, SendResult

ENDLESS_READ: Final = "rmqio:endless_read:v1"
"""Beam's annotation of a transform whose read never ends, by which a runner knows it. That a collection is unbounded
does not say so: other people's splittable DoFns are unbounded and may yet end."""

IDS: Final = "ids"
RANDOM_IDS: Final = "random; copies cannot be dropped"
"""What the display data of a write say under `IDS`, where nobody can tell what a bundle sends again from new messages.
An annotation would have to be known before the write is applied."""


class OffsetLookup(Protocol):
    """What a start or stop strategy may ask. All raise `BrokerError` and `TransportError`."""

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset that the broker still holds."""
        ...

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        """One past the newest visible message. `at_least`: as in `OffsetQuery`.

        While a broker's master is away, that is its replica's end, which may be smaller than one that was seen before:
        whoever holds a position keeps it until the end has passed it.
        """
        ...

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after the time (Unix ms, the broker's clock); `max_offset` if none."""
        ...

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset the group goes on at; None when it has none."""
        ...


class OffsetQuery(NamedTuple):
    """One question about one queue, for `QueueClient.look_up`. The answers are those of `OffsetLookup`."""

    queue: MessageQueue
    kind: Literal["min", "max", "time", "committed"]
    timestamp_ms: int = 0
    """Of "time"."""
    group: str = ""
    """Of "committed"."""
    at_least: int = 0
    """Of "max": what has been seen of the queue. A replica that has less is behind, which is a `TransportError`; a
    master that has less says so."""


class FetchedBatch(NamedTuple):
    """Consecutive messages of one queue, as a reader hands them out."""

    records: list[Record]
    corrupt: tuple[CorruptMessage, ...]
    """Messages among them that do not decode."""
    next_offset: int
    """Where reading goes on; may lie beyond the last record when a filter or a removed file left a gap."""
    max_offset: int
    """The broker's end when it answered: `max_offset - next_offset` messages are left."""
    skipped: int = 0
    """Offsets in this range that the broker jumped over although no filter explains it (files removed by retention)."""
    latency_ms: float = 0.0
    """From sending the pull to decoding its answer."""


class QueueReader(Protocol):
    """Reads one queue ahead, several pulls in flight; made by `QueueClient.open_reader`, used by one thread."""

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def position(self) -> int:
        """The offset that the next `poll` starts at."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `poll` would give something (or raise) now, without waiting."""
        ...

    @property
    def is_at_end(self) -> bool:
        """Whether the broker holds a long poll of ours: nothing is left to read at this moment."""
        ...

    def poll(self) -> FetchedBatch | None:
        """The next messages, or None when none have arrived yet. Never blocks on the network.

        Raises `OffsetOutOfRange` (the reader stays where it is; `seek` to go on), `BrokerError`, `TransportError`
        after the retries that the client's options permit.
        """
        ...

    def seek(self, offset: int) -> None:
        """Go on at another offset; what was read ahead is dropped."""
        ...

    def close(self) -> None:
        """Forget what is in flight. Idempotent."""
        ...


class QueueClient(OffsetLookup, Protocol):
    """Reads queues by offset. Thread-safe, but a reader belongs to one thread. Connects on first use."""

    def queues(self, topic: str, *, refresh: bool = False) -> Sequence[MessageQueue]:
        """The topic's readable queues, sorted; as they are known for a while, or with `refresh` as they are now.

        Raises `TopicNotExist`.
        """
        ...

    def topics(self) -> Sequence[str]:
        """Users' topics (no system, retry or dead-letter topics), sorted."""
        ...

    def look_up(
        self, queries: Sequence[OffsetQuery], *, timeout_ms: int | None = None
    ) -> Sequence[int | RmqioError | None]:
        """The answers to many queries at once, in their order; an error in the place of each query that failed.

        All queries travel together, and the whole takes at most `timeout_ms` (None: one request timeout), however many
        brokers are silent. A broker that has not answered in time is left alone: its queries fail at once with
        `BrokerSilent` until a probe, for which nobody waits, has been answered.
        """
        ...

    def commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], *, timeout_ms: int | None = None
    ) -> Mapping[MessageQueue, RmqioError]:
        """Set the group's offsets of many queues at once; what failed, by queue. Otherwise as `look_up`.

        The errors are those of `commit_offset`.
        """
        ...

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset. Raises when the broker ignored it, or does not know the group even after a retry."""
        ...

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        """Fetch an operator's pending reset of the group's offset, after which commits work again; None: none pends.

        A broker hands a reset to the first puller of the group, once, and ignores commits until then.
        """
        ...

    def open_reader(self, queue: MessageQueue, offset: int, *, message_filter: MessageFilter) -> QueueReader:
        """A reader of one queue from an offset on. Sends its first pulls at once."""
        ...

    def wait(self, readers: Iterable[QueueReader], timeout_ms: int) -> bool:
        """Block until one of the readers is ready or the time is over; whether one is ready."""
        ...

    def close(self) -> None:
        """Close every connection and reader. Idempotent."""
        ...


class PendingSend(Protocol):
    """A batch that is on its way."""

    @property
    def is_done(self) -> bool:
        """Whether `result` would not block."""
        ...

    def result(self) -> list[SendResult]:
        """One result per message, in order. Blocks; retries as the options say; then raises the last error."""
        ...


class SendStatistics(Protocol):
    """What a producer did about failures so far. A producer that retries shows them as `statistics`."""

    retries: int
    unknown_outcomes: int
    """Tries that broke off without an answer: the message may be stored, so each retry of one may be a duplicate."""


class Producer(Protocol):
    """Sends. Thread-safe. Connects on first use. At least once: a retry after an unknown outcome can duplicate."""

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The topic's writable queues, sorted. Raises `TopicNotExist`."""
        ...

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """Send one message and wait. Without a queue: by sharding key if it has one, else in turn.

        `message_id` becomes the unique id (UNIQ_KEY); None: a new random one.

        A retry goes to another broker's queue where there is one, unless the queue was given or a sharding key set.
        """
        ...

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic to one queue as one request and wait; all are stored, or none."""
        ...

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """Start sending a batch to one queue; returns at once unless too much is in flight.

        With `ordered` the queue has at most one batch in flight. `message_ids`: one unique id (UNIQ_KEY) per message.
        The batch must fit `wire.batch`'s caps and hold no delayed message. Raises `LocalError` for what cannot be sent.
        """
        ...

    def close(self) -> None:
        """Wait for what is in flight, then close. Idempotent."""
        ...


@runtime_checkable
class ClientFactory(Hashable, Protocol):
    """Makes clients in the process that uses them. Picklable, and equal factories share one client a process."""

    def queue_client(self) -> QueueClient: ...

    def producer(self, group: str) -> Producer: ...
