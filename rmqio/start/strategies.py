"""The start and the stop of a read: values that an `OffsetLookup` resolves once, to one offset per queue.

This module has no client and no I/O. The five start strategies are those of RocketMQ's Flink connector.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError
from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageQueue

Reset = Literal["earliest", "latest", "error"]
Queue = TypeVar("Queue", bound=tuple[str, str, int])
"""A `MessageQueue`, or what is in one."""
QueueOffsets = Mapping[Queue, int]
TimeLike = int | float | dt.datetime

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class StartOffsetError(RmqioError):
    """A strategy without a fallback found no offset to start at."""


def to_timestamp_ms(value: TimeLike) -> int:
    """Unix milliseconds from milliseconds (int), seconds (float) or an aware datetime."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise LocalError(f"timestamp {value!r} has no time zone; use an aware datetime, e.g. with timezone.utc")
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise LocalError(f"timestamp {value!r} must be milliseconds (int), seconds (float) or an aware datetime")
    # Rounded, because 4.35 * 1000 is 4349.999..., and a start one millisecond earlier could read one message more.
    return value if isinstance(value, int) else round(value * 1000)


class LateQueue(NamedTuple):
    """Decides where to start in a queue that did not exist, or did not answer, when the read began."""

    began_ms: int
    """When the read began, in Unix milliseconds by the clock of the process that looked for queues."""
    new_queue_start: Literal["earliest", "latest"] | None
    """The start of a queue that is new since then. None: the queue existed, and only its broker did not answer."""


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The start in a queue of which nothing has been read yet. Created by the functions named after strategies.

    The strategy is not applied again on resume, restore or retry: the position is in the runner's own state.
    """

    kind: Literal["earliest", "latest", "timestamp", "group_offsets", "specific_offsets", "resolved"]
    timestamp_ms: int = 0
    reset: Reset | Literal["timestamp"] = "error"
    offsets: tuple[tuple[MessageQueue, int], ...] = ()

    @classmethod
    def earliest(cls) -> StartFrom:
        """Start at the oldest message that each queue still holds."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> StartFrom:
        """Read only messages that arrive after the pipeline has started."""
        return cls("latest")

    @classmethod
    def timestamp(cls, t: TimeLike) -> StartFrom:
        """Start at the first message stored at or after `t`: Unix ms (int), seconds (float) or an aware datetime."""
        return cls("timestamp", timestamp_ms=to_timestamp_ms(t))

    @classmethod
    def group_offsets(cls, reset: Reset = "latest") -> StartFrom:
        """Start at the consumer group's offsets. `reset` is for queues without one; "error" refuses such queues."""
        if reset not in ("earliest", "latest", "error"):
            raise LocalError(f"reset is {reset!r}; it must be 'earliest', 'latest' or 'error'")
        return cls("group_offsets", reset=reset)

    @classmethod
    def specific_offsets(cls, offsets: QueueOffsets[Queue], reset: Reset = "latest") -> StartFrom:
        """Start at the given offsets; queues that are not named start at the group's offsets (with `reset`)."""
        if reset not in ("earliest", "latest", "error"):
            raise LocalError(f"reset is {reset!r}; it must be 'earliest', 'latest' or 'error'")
        return cls("specific_offsets", reset=reset, offsets=_checked_offsets(offsets, "specific_offsets"))

    @classmethod
    def resolved(cls, queue: MessageQueue, offset: int) -> StartFrom:
        """Start one queue at the offset that another strategy resolved to, without asking the broker again."""
        return cls("resolved", offsets=((queue, offset),))

    def resumed(self, began_ms: int) -> StartFrom:
        """Start at the group's offsets; a queue without one starts where it did when the read began, at that time."""
        if self.kind == "specific_offsets" or (self.kind == "group_offsets" and self.reset != "latest"):
            return self
        if self.kind == "earliest":
            return StartFrom.group_offsets("earliest")
        return StartFrom(
            "group_offsets", self.timestamp_ms if self.kind == "timestamp" else began_ms, reset="timestamp"
        )

    @property
    def named(self) -> tuple[MessageQueue, ...]:
        """The queues that the strategy names."""
        return tuple(queue for queue, _ in self.offsets)

    @property
    def needs_group(self) -> bool:
        """Whether the strategy uses a consumer group."""
        return self.kind in ("group_offsets", "specific_offsets")

    def resolve(
        self,
        queue: MessageQueue,
        lookup: OffsetLookup,
        *,
        group: str | None,
        on_out_of_range: Literal["fail", "earliest", "latest"] = "fail",
        on_timestamp_after_end: Literal["latest", "fail"] = "latest",
        late: LateQueue | None = None,
    ) -> int:
        """The offset to start at, by the first of these rules that applies:

        1. the offset given for this queue;
        2. the offset that the group has committed for it, if the strategy uses the group;
        3. for a queue that is new since the read began, `late.new_queue_start`;
        4. the strategy, as it would have been resolved when the read began.

        A late queue is new if it is empty, or if everything ever stored in it arrived after `late.began_ms`: nothing
        else distinguishes it from a queue whose broker was unavailable. `on_timestamp_after_end` does not apply to late
        queues.

        Raises `StartOffsetError`, `OffsetOutOfRange`, `BrokerError`, `TransportError`.
        """
        if self.kind == "resolved":
            return dict(self.offsets)[queue]
        if self.needs_group:
            wanted = dict(self.offsets).get(queue)
            if wanted is None and group:
                wanted = lookup.committed_offset(group, queue)
            if wanted is not None:
                return clamp_offset(queue, wanted, lookup, on_out_of_range)
        if late is not None and late.new_queue_start and _is_new(queue, lookup, late.began_ms):
            return lookup.min_offset(queue) if late.new_queue_start == "earliest" else lookup.max_offset(queue)
        where = self.reset if self.needs_group else self.kind
        if where == "timestamp":
            is_strict = self.kind == "timestamp" and late is None
            return self._resolve_timestamp(queue, lookup, on_timestamp_after_end if is_strict else "latest")
        if where == "earliest":
            return lookup.min_offset(queue)
        if where == "latest":
            return lookup.max_offset(queue) if late is None else lookup.offset_for_time(queue, late.began_ms)
        raise StartOffsetError(
            f"consumer group {group!r} has no offset for {queue}, and reset is 'error'; "
            "commit one, or use reset='earliest' or 'latest'"
        )

    @property
    def reads_again(self) -> bool:
        """Whether a read that starts anew can emit what an earlier one has emitted."""
        return self.kind != "latest"

    @property
    def may_begin_at_end(self) -> bool:
        """Whether there can be a queue that is read from its end: see `begins_at_end`."""
        return (self.reset if self.needs_group else self.kind) == "latest"

    def begins_at_end(self, queue: MessageQueue, lookup: OffsetLookup, group: str | None) -> bool:
        """Whether a queue is read from its end: the start is latest, or the group has no offset to begin at."""
        if not self.may_begin_at_end or queue in self.named:
            return False
        return not self.needs_group or group is None or lookup.committed_offset(group, queue) is None

    def _resolve_timestamp(self, queue: MessageQueue, lookup: OffsetLookup, after_end: str) -> int:
        # The end is looked up first, so that a message stored between the two lookups is not skipped.
        end = lookup.max_offset(queue)
        found = lookup.offset_for_time(queue, self.timestamp_ms)
        if found >= end and after_end == "fail":
            raise StartOffsetError(
                f"{queue} holds no message stored at or after {self.timestamp_ms} ms; "
                "set on_timestamp_after_end='latest' to wait for one"
            )
        return min(found, end)


def _is_new(queue: MessageQueue, lookup: OffsetLookup, began_ms: int) -> bool:
    """Whether the queue was empty until that time, as far as its broker can tell."""
    return lookup.min_offset(queue) == 0 and lookup.offset_for_time(queue, began_ms) == 0


def clamp_offset(
    queue: MessageQueue, wanted: int, lookup: OffsetLookup, policy: Literal["fail", "earliest", "latest"]
) -> int:
    """`wanted` if the queue holds it (or ends there), else as the policy says, else raises `OffsetOutOfRange`."""
    # A replica that ends before `wanted` is behind its master, which does not mean that the queue was truncated.
    minimum, maximum = lookup.min_offset(queue), lookup.max_offset(queue, at_least=wanted)
    if minimum <= wanted <= maximum:
        return wanted
    if policy == "earliest":
        return minimum
    if policy == "latest":
        return maximum
    raise OffsetOutOfRange(queue, wanted, minimum, maximum)


@dataclass(frozen=True, slots=True)
class StopAt:
    """The end of a queue's read (exclusive), which makes it bounded. Resolved once, when the pipeline starts."""

    kind: Literal["latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    stops: tuple[tuple[MessageQueue, int], ...] = ()

    @classmethod
    def latest(cls) -> StopAt:
        """Read what each queue holds when the pipeline starts."""
        return cls("latest")

    @classmethod
    def timestamp(cls, t: TimeLike) -> StopAt:
        """Read the messages stored before `t`, of those that each queue holds when the pipeline starts."""
        return cls("timestamp", timestamp_ms=to_timestamp_ms(t))

    @classmethod
    def offsets(cls, offsets: QueueOffsets[Queue]) -> StopAt:
        """Read up to the given offsets (exclusive), and wait for missing messages. Other queues are not read."""
        return cls("offsets", stops=_checked_offsets(offsets, "StopAt.offsets"))

    @property
    def named(self) -> tuple[MessageQueue, ...]:
        """The queues that have a stop."""
        return tuple(queue for queue, _ in self.stops)

    def resolve(self, queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        """The first offset not to read; None: do not read this queue at all."""
        if self.kind == "latest":
            return lookup.max_offset(queue)
        if self.kind == "timestamp":
            end = lookup.max_offset(queue)
            return min(lookup.offset_for_time(queue, self.timestamp_ms), end)
        return dict(self.stops).get(queue)


def check_named(named: Iterable[MessageQueue], queues: Collection[MessageQueue], what: str) -> None:
    """Raises `LocalError` if a named queue is not among `queues`, which are read; the error names the nearest one."""
    for queue in named:
        if queue not in queues:
            hint = nearest_queue(queue, queues)
            raise LocalError(f"{what} has an offset for {queue}, which is not among the queues that are read: {hint}")


def nearest_queue(queue: MessageQueue, queues: Collection[MessageQueue]) -> str:
    """Return advice about a queue that is not among `queues`: which one the user may have meant, and what to do."""
    if not queues:
        return "there are none"
    same = [each.queue_id for each in sorted(queues) if each[:2] == queue[:2]]
    if same:
        return f"broker {queue.broker!r} has queues {same[0]} to {same[-1]} of {queue.topic!r}"
    texts = {str(each): each for each in sorted(queues)}
    nearest = texts[difflib.get_close_matches(str(queue), texts, n=1, cutoff=0.0)[0]]
    return f"the nearest of those is {nearest}. If broker {queue.broker!r} is down, start the read when it is back"


def _checked_offsets(offsets: QueueOffsets[Queue], what: str) -> tuple[tuple[MessageQueue, int], ...]:
    if not offsets:
        raise LocalError(f"{what} needs at least one queue and offset")
    checked = []
    for key, offset in offsets.items():
        queue = MessageQueue(*key)
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise LocalError(f"{what}: the offset of {queue} is {offset!r}; it must be a whole number of at least 0")
        checked.append((queue, offset))
    return tuple(sorted(checked))
