"""The cluster of a command: clients made of its options, what topics there are, and the contents of their queues."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqio.command_line import arguments as common
from rmqio.command_line.arguments import QueueName
from rmqio.command_line.output import CommandFailed
from rmqio.errors import CorruptMessage, OffsetOutOfRange, RmqioError, TopicNotExist, TransportError, counted
from rmqio.hints import did_you_mean
from rmqio.interfaces import FetchedBatch, QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.start import Position

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

_TAIL_OUTAGE_MS = 60_000


def attended_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Return the options of a client whose user is waiting. Raises `LocalError`."""
    given = {"outage_timeout_ms": arguments.timeout_ms, "max_retries": 2}  # report a broker that is down at once
    return common.client_options(arguments, **(given | more))


@contextmanager
def queue_client(
    arguments: argparse.Namespace, *, pull_batch: int = 32, pull_depth: int = 2, rides_out_outages: bool = False
) -> Iterator[QueueClient]:
    """Open a client that reads, under a private group."""
    from rmqio.client.client import RemotingQueueClient

    more = {"outage_timeout_ms": _TAIL_OUTAGE_MS} if rides_out_outages else {}
    client = RemotingQueueClient(attended_options(arguments, pull_batch=pull_batch, pull_depth=pull_depth, **more))
    try:
        yield client
    finally:
        client.close()


def open_admin(arguments: argparse.Namespace) -> Admin:
    """Open the admin client, a context manager."""
    from rmqio.client.admin import Admin

    return Admin(attended_options(arguments))


def require_topics(client: QueueClient, named: Mapping[str, str | None]) -> None:
    """Check that the topics exist which options name. Raises `CommandFailed` with the nearest name."""
    for option, topic in named.items():
        if topic is None:
            continue
        try:
            client.queues(topic)
        except TopicNotExist as error:
            near = did_you_mean(topic, client.topics())
            raise CommandFailed(f"{option} {topic}: the topic does not exist{near}") from error


def queues_of(client: QueueClient, topic: str, names: Sequence[QueueName] = ()) -> list[MessageQueue]:
    """Return the topic's readable queues, or those named. Raises `CommandFailed` for a missing topic or queue."""
    try:
        queues = list(client.queues(topic))
    except TopicNotExist as error:
        raise CommandFailed(missing_topic(client, topic)) from error
    if not queues:
        raise CommandFailed(f"topic {topic!r} has no readable queue: its permission forbids reading")
    chosen = set()
    brokers = sorted({queue.broker for queue in queues})
    for name in names:
        if name.broker is None and len(brokers) > 1:
            raise CommandFailed(
                f"queue {name}: topic {topic!r} is on {len(brokers)} brokers; write {brokers[0]}:{name}"
            )
        queue = MessageQueue(topic, name.broker or brokers[0], name.queue_id)
        if queue not in queues:
            there = f"{short(queues[0])} to {short(queues[-1])}"
            raise CommandFailed(f"topic {topic!r} has no queue {name}; it has {len(queues)}: {there}")
        chosen.add(queue)
    return sorted(chosen) if names else queues


def missing_topic(client: QueueClient, topic: str, *, advice: str = "") -> str:
    """Return the error message for a missing topic, with the closest existing name and what else to do."""
    try:
        topics = client.topics()
    except RmqioError:
        topics = []
    near = did_you_mean(topic, list(topics))
    if near:
        return f"topic {topic!r} does not exist{near} {advice}".rstrip()
    # A name server forgets a topic when its last broker goes down.
    return f"topic {topic!r} does not exist, or its brokers are down; {advice or '`rmqio topics` lists the topics'}"


def short(queue: MessageQueue) -> str:
    """Format a queue as `--queue` takes it."""
    return f"{queue.broker}:{queue.queue_id}"


# The contents of queues: their ends, message times, a group's position, and their messages in order of time.

S = TypeVar("S")
T = TypeVar("T")

_AT_ONCE = 8
_WAIT_MS = 1_000
"""The length of one wait; the reader itself reports a broker that is silent for too long."""


class Item(NamedTuple):
    """A stored message of a queue, whether it decodes or not. Sorts by store time, then by position."""

    time_ms: int
    """When it was stored; for a message that does not decode, when the previous one was."""
    queue: MessageQueue
    offset: int
    content: Record | CorruptMessage


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue, and a group's position in it. Times are Unix milliseconds by the broker's clock."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_ms: int | None = None
    """When the newest message was stored; None: there is none, or times were not asked for."""
    committed: int | None = None
    unread_ms: int | None = None
    """When the oldest message that the group has not read was stored."""
    error: str | None = None
    """Why the broker could not be reached; the numbers are then meaningless."""

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset

    @property
    def lag(self) -> int | None:
        """Messages that the group has yet to read and that still exist; None if it has no offset."""
        return None if self.committed is None else max(0, self.max_offset - max(self.committed, self.min_offset))

    @property
    def lost(self) -> int:
        """Messages that retention deleted before the group read them."""
        return 0 if self.committed is None else max(0, self.min_offset - self.committed)

    @property
    def beyond(self) -> int:
        """How far the group's offset lies past the queue's end: only after a topic was recreated or truncated."""
        return 0 if self.committed is None else max(0, self.committed - self.max_offset)

    def lag_ms(self, now_ms: int) -> int | None:
        """Return how long the oldest unread message has been waiting; 0 if there is none."""
        if self.lag is None:
            return None
        if self.lag == 0:
            return 0
        return None if self.unread_ms is None else max(0, now_ms - self.unread_ms)


def now_ms() -> int:
    """Return Unix milliseconds by this machine's clock."""
    return int(time.time() * 1000)


def for_all(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Do the work for all items, several at once: each takes a few round trips to a broker."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)


def states(
    client: QueueClient, queues: Sequence[MessageQueue], *, group: str | None = None, with_times: bool = True
) -> list[QueueState]:
    """Return the current state of the queues. Nothing is committed, and nobody becomes a member of the group.

    A broker that cannot be reached does not hide the answers of the others.
    """

    def look(queue: MessageQueue) -> QueueState:
        try:
            return ask(queue)
        except TransportError as error:
            return QueueState(queue, 0, 0, error=str(error))

    def ask(queue: MessageQueue) -> QueueState:
        # The group first: the end only grows meanwhile, so the offset is not found past it.
        committed = client.committed_offset(group, queue) if group else None
        low, high = client.min_offset(queue), client.max_offset(queue)
        last_ms = unread_ms = None
        if with_times and high > low:
            last_ms = time_of(client, queue, high - 1)
            if committed is not None and committed < high:
                unread_ms = time_of(client, queue, max(committed, low))
        return QueueState(queue, low, high, last_ms, committed, unread_ms)

    return for_all(look, queues)


def time_of(client: QueueClient, queue: MessageQueue, offset: int) -> int | None:
    """Return when the message at an offset, or the next existing one, was stored; None if there is none."""
    reader = client.open_reader(queue, offset, message_filter=MessageFilter())
    try:
        fetched = _next(client, reader)
    except OffsetOutOfRange:  # deleted by retention meanwhile
        return None
    finally:
        reader.close()
    return fetched.records[0].store_timestamp_ms if fetched.records else None


def resolve(client: QueueClient, queue: MessageQueue, position: Position) -> int:
    """Return the offset of a position. Raises `CommandFailed` for an offset that the queue does not have."""
    if position.kind == "earliest":
        return client.min_offset(queue)
    end = client.max_offset(queue)
    if position.kind == "latest":
        return end
    if position.kind == "time":
        return min(client.offset_for_time(queue, position.value), end)
    low = client.min_offset(queue)
    if not low <= position.value <= end:
        held = f"it holds {low} to {end - 1}, and {end} is its end" if end > low else f"it is empty, its end is {end}"
        raise CommandFailed(f"queue {short(queue)} of topic {queue.topic!r} has no offset {position.value}: {held}")
    return position.value


class Range:
    """The messages of one queue from `begin` to `end` (exclusive), which must exist. Begins to read at once.

    If retention overtakes the read, it continues with what is left.
    """

    def __init__(
        self, client: QueueClient, queue: MessageQueue, begin: int, end: int, message_filter: MessageFilter
    ) -> None:
        self._client, self._end = client, end
        self._reader = client.open_reader(queue, begin, message_filter=message_filter) if begin < end else None

    def __iter__(self) -> Iterator[Item]:
        reader = self._reader
        if reader is None:
            return
        last_ms = 0
        try:
            while reader.position < self._end:
                try:
                    fetched = _next(self._client, reader)
                except OffsetOutOfRange as error:
                    reader.seek(error.minimum)
                    continue
                for item in items_of(reader.queue, fetched, last_ms):
                    if item.offset >= self._end:
                        return
                    last_ms = item.time_ms
                    yield item
        finally:
            reader.close()


def items_of(queue: MessageQueue, fetched: FetchedBatch, last_ms: int = 0) -> list[Item]:
    """Return what was fetched in order of offsets, with the messages that do not decode."""
    items = [Item(record.store_timestamp_ms, queue, record.queue_offset, record) for record in fetched.records]
    if fetched.corrupt:
        items += [Item(0, queue, corrupt.queue_offset, corrupt) for corrupt in fetched.corrupt]
        items.sort(key=lambda item: item.offset)
        for number, item in enumerate(items):
            last_ms = item.time_ms or last_ms
            items[number] = item._replace(time_ms=last_ms)
    return items


def place_in_time(item: Item) -> tuple[int, MessageQueue, int]:
    """Return the key that sorts messages of several queues by time."""
    return item[:3]


def newest(client: QueueClient, queue: MessageQueue, number: int, message_filter: MessageFilter) -> list[Item]:
    """Return the last `number` messages of a queue that pass a filter, searching backwards in growing steps."""
    low, end = client.min_offset(queue), client.max_offset(queue)
    found: list[Item] = []
    step = number
    while end > low and len(found) < number:
        begin = max(low, end - step)
        found = [*Range(client, queue, begin, end, message_filter), *found]
        end = begin
        step = step * 4 if not message_filter.is_all else number
    return found[-number:]


def _next(client: QueueClient, reader: QueueReader) -> FetchedBatch:
    while True:
        client.wait([reader], _WAIT_MS)
        fetched = reader.poll()
        if fetched is not None:
            return fetched


# Remarks about a group's position in queues: what was lost, what is missing, what cannot be.


def remarks(states: Sequence[QueueState], group: str | None) -> list[str]:
    """Return what the numbers alone do not say."""
    if group is None:
        return []
    texts = []
    without = [state for state in states if state.committed is None]
    if without:
        held = sum(state.messages for state in without)
        texts.append(
            f"group {group!r} has no offset in {counted(len(without), 'queue')}, with {counted(held, 'message')} that"
            " the lag does not include"
        )
    for state in states:
        if state.lost:
            texts.append(
                f"{short(state.queue)}: {counted(state.lost, 'message')} from offset {state.committed} on were deleted"
                f" by retention before group {group!r} read them"
            )
        if state.beyond:
            texts.append(
                f"{short(state.queue)}: the offset {state.committed} of group {group!r} lies {state.beyond:,} past"
                " the queue's end: the topic was recreated or truncated; `rmqio offsets reset` corrects it"
            )
    return texts
