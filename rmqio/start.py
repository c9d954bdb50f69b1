"""Where a read starts and where it stops: values, resolved to an offset per queue once, given an `OffsetLookup`.

Pure: no client is seen here. The five start strategies are those of RocketMQ's Flink connector.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError
from rmqio.model import MessageQueue
from rmqio.seams import OffsetLookup

Reset = Literal["earliest", "latest", "error"]
QueueOffsets = Mapping[MessageQueue | tuple[str, str, int], int]
TimeLike = int | float | dt.datetime

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class StartOffsetError(RmqioError):
    """A strategy that may not fall back found nothing to start at."""


def to_timestamp_ms(value: TimeLike) -> int:
    """Unix milliseconds of a whole number of milliseconds, seconds as a float, or an aware datetime."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise LocalError(f"timestamp {value!r} has no time zone; use an aware datetime, e.g. with timezone.utc")
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise LocalError(f"timestamp {value!r} must be milliseconds (int), seconds (float) or an aware datetime")
    # Rounded: 4.35 * 1000 is 4349.999..., and a millisecond less could read one message more.
    return value if isinstance(value, int) else round(value * 1000)


@dataclass(frozen=True, slots=True)
class StartFrom:
    """Where a queue is read from when nothing has been read of it yet. Made by the functions named after strategies.

    On resume, restore or retry the strategy is not asked again: the position is in the runner's own state.
    """

    kind: Literal["earliest", "latest", "timestamp", "group_offsets", "specific_offsets"]
    timestamp_ms: int = 0
    reset: Reset = "error"
    offsets: tuple[tuple[MessageQueue, int], ...] = ()

    @classmethod
    def earliest(cls) -> StartFrom:
        """The oldest message that each queue still holds."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> StartFrom:
        """Only what comes after the pipeline has started."""
        return cls("latest")

    @classmethod
    def timestamp(cls, t: TimeLike) -> StartFrom:
        """The first message stored at or after `t`: Unix milliseconds (int), seconds (float) or an aware datetime."""
        return cls("timestamp", timestamp_ms=to_timestamp_ms(t))

    @classmethod
    def group_offsets(cls, reset: Reset = "latest") -> StartFrom:
        """Where the consumer group has got to; `reset` for queues it has no offset of, "error" to refuse those."""
        if reset not in ("earliest", "latest", "error"):
            raise LocalError(f"reset is {reset!r}; it must be 'earliest', 'latest' or 'error'")
        return cls("group_offsets", reset=reset)

    @classmethod
    def specific_offsets(cls, offsets: QueueOffsets, reset: Reset = "latest") -> StartFrom:
        """The offsets given, by queue; the group's offsets (with `reset`) for queues that are not named."""
        if reset not in ("earliest", "latest", "error"):
            raise LocalError(f"reset is {reset!r}; it must be 'earliest', 'latest' or 'error'")
        return cls("specific_offsets", reset=reset, offsets=_checked_offsets(offsets, "specific_offsets"))

    @property
    def needs_group(self) -> bool:
        """Whether the strategy asks for a consumer group."""
        return self.kind in ("group_offsets", "specific_offsets")

    def resolve(
        self,
        queue: MessageQueue,
        lookup: OffsetLookup,
        *,
        group: str | None,
        on_out_of_range: Literal["fail", "earliest", "latest"] = "fail",
        on_timestamp_after_end: Literal["latest", "fail"] = "latest",
    ) -> int:
        """The offset to start at. Raises `StartOffsetError`, `OffsetOutOfRange`, `BrokerError`, `TransportError`."""
        if self.kind == "earliest":
            return lookup.min_offset(queue)
        if self.kind == "latest":
            return lookup.max_offset(queue)
        if self.kind == "timestamp":
            return self._resolve_timestamp(queue, lookup, on_timestamp_after_end)
        wanted = dict(self.offsets).get(queue) if self.kind == "specific_offsets" else None
        if wanted is None:
            wanted = lookup.committed_offset(group, queue) if group else None
        if wanted is None:
            return self._reset(queue, lookup, group)
        return clamp_offset(queue, wanted, lookup, on_out_of_range)

    def _resolve_timestamp(self, queue: MessageQueue, lookup: OffsetLookup, after_end: str) -> int:
        # The end first: a message stored between the two lookups must not be jumped over.
        end = lookup.max_offset(queue)
        found = lookup.offset_for_time(queue, self.timestamp_ms)
        if found >= end and after_end == "fail":
            raise StartOffsetError(
                f"{queue} holds no message stored at or after {self.timestamp_ms} ms; "
                "set on_timestamp_after_end='latest' to wait for one"
            )
        return min(found, end)

    def _reset(self, queue: MessageQueue, lookup: OffsetLookup, group: str | None) -> int:
        if self.reset == "earliest":
            return lookup.min_offset(queue)
        if self.reset == "latest":
            return lookup.max_offset(queue)
        raise StartOffsetError(
            f"consumer group {group!r} has no offset of {queue}, and reset is 'error'; "
            "commit one, or use reset='earliest' or 'latest'"
        )


def clamp_offset(
    queue: MessageQueue, wanted: int, lookup: OffsetLookup, policy: Literal["fail", "earliest", "latest"]
) -> int:
    """`wanted` if the queue holds it (its end counts), else what the policy says, else `OffsetOutOfRange`."""
    minimum, maximum = lookup.min_offset(queue), lookup.max_offset(queue)
    if minimum <= wanted <= maximum:
        return wanted
    if policy == "earliest":
        return minimum
    if policy == "latest":
        return maximum
    raise OffsetOutOfRange(queue, wanted, minimum, maximum)


@dataclass(frozen=True, slots=True)
class StopAt:
    """Where reading a queue ends, exclusive; makes the read bounded. Resolved once, when the pipeline starts."""

    kind: Literal["latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    stops: tuple[tuple[MessageQueue, int], ...] = ()

    @classmethod
    def latest(cls) -> StopAt:
        """What each queue holds when the pipeline starts."""
        return cls("latest")

    @classmethod
    def timestamp(cls, t: TimeLike) -> StopAt:
        """Messages stored before `t`, of those that each queue holds when the pipeline starts."""
        return cls("timestamp", timestamp_ms=to_timestamp_ms(t))

    @classmethod
    def offsets(cls, offsets: QueueOffsets) -> StopAt:
        """Up to the offsets given, exclusive; waits for messages not yet there. Queues not named are not read."""
        return cls("offsets", stops=_checked_offsets(offsets, "StopAt.offsets"))

    def resolve(self, queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        """The first offset not to read; None: do not read this queue at all."""
        if self.kind == "latest":
            return lookup.max_offset(queue)
        if self.kind == "timestamp":
            end = lookup.max_offset(queue)
            return min(lookup.offset_for_time(queue, self.timestamp_ms), end)
        return dict(self.stops).get(queue)


def _checked_offsets(offsets: QueueOffsets, what: str) -> tuple[tuple[MessageQueue, int], ...]:
    if not offsets:
        raise LocalError(f"{what} needs at least one queue and offset")
    checked = []
    for key, offset in offsets.items():
        queue = MessageQueue(*key)
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise LocalError(f"{what}: the offset of {queue} is {offset!r}; it must be a whole number of at least 0")
        checked.append((queue, offset))
    return tuple(sorted(checked))
