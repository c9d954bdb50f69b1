"""The start and the stop of a read: the strategies, their texts, and their resolution for many queues at once."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar

from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError, counted
from rmqio.hints import did_you_mean, nearest
from rmqio.interfaces import OffsetLookup, OffsetQuery, QueueClient
from rmqio.model import MessageQueue

# Resolves strategies for many queues at once: their queries are sent together, in as few rounds as one queue needs.
#
# A strategy is written for one queue and a blocking `OffsetLookup`. Here it gets the answers that are already known.
# When it asks for another one, it is stopped, and called again after one look-up has answered the queries of all
# queues.

T = TypeVar("T")
_MOST_ROUNDS = 10
"""A strategy needs two or three rounds; one that never finishes is a bug."""


class _Unknown(Exception):
    """The answer to this query is not known yet."""

    def __init__(self, query: OffsetQuery) -> None:
        super().__init__(query)
        self.query = query


class _Answers:
    """An `OffsetLookup` over the answers that are known so far."""

    def __init__(self) -> None:
        self.known: dict[OffsetQuery, int | RmqioError | None] = {}

    def min_offset(self, queue: MessageQueue) -> int:
        return self._number(OffsetQuery(queue, "min"))

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        return self._number(OffsetQuery(queue, "max", at_least=at_least))

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._number(OffsetQuery(queue, "time", timestamp_ms))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        return self._answer(OffsetQuery(queue, "committed", group=group))

    def _number(self, query: OffsetQuery) -> int:
        found = self._answer(query)
        assert found is not None  # only a group can have no offset
        return found

    def _answer(self, query: OffsetQuery) -> int | None:
        if query not in self.known:
            raise _Unknown(query)
        found = self.known[query]
        if isinstance(found, RmqioError):
            raise found
        return found


def resolve_all(
    queues: Iterable[MessageQueue],
    client: QueueClient,
    resolve: Callable[[MessageQueue, OffsetLookup], T],
    *,
    timeout_ms: int | None = None,
) -> dict[MessageQueue, T | RmqioError]:
    """Returns the result of `resolve` for each queue, or the `RmqioError` that it raised.

    `resolve` is called several times per queue, so it must be deterministic and have no side effects. `timeout_ms` is
    the timeout of one round (None: the client's). A broker that has not answered in one round is skipped in the next.
    """
    answers = _Answers()
    found: dict[MessageQueue, T | RmqioError] = {}
    wanted = left = list(queues)
    for _ in range(_MOST_ROUNDS):
        asked: dict[OffsetQuery, None] = {}
        waiting: list[MessageQueue] = []
        for queue in left:
            try:
                found[queue] = resolve(queue, answers)
            except _Unknown as unknown:
                asked[unknown.query] = None
                waiting.append(queue)
            except RmqioError as error:
                found[queue] = error
        if not waiting:
            return {queue: found[queue] for queue in wanted}
        queries = list(asked)
        answers.known.update(zip(queries, client.look_up(queries, timeout_ms=timeout_ms), strict=True))
        left = waiting
    raise LocalError(f"{left[0]}: its start or stop keeps asking for more offsets")


def all_or_error(found: Mapping[MessageQueue, T | RmqioError]) -> dict[MessageQueue, T]:
    """The values, if every queue has one; otherwise raises the first error."""
    known: dict[MessageQueue, T] = {}
    for queue, each in found.items():
        if isinstance(each, RmqioError):
            raise each
        known[queue] = each
    return known


# A read that ends, and begins at the end of queues: it reads nothing there, and almost nobody wants that.


def unread(
    what: str,
    queues: Sequence[MessageQueue],
    client: QueueClient,
    *,
    begins_at_end: Callable[[MessageQueue, OffsetLookup], bool],
    stop: Callable[[MessageQueue, OffsetLookup], int | None],
    group: str | None,
    advice: str,
) -> str:
    """Returns a warning if queues hold messages of which a read can read none; empty: it can, or there are none.

    A read that begins at the offsets of a group is warned of for each queue without one, since the others do not show
    that it misses messages; any other read if it can read nothing at all. Errors of brokers are left to the read.

    Args:
      begins_at_end: whether the read begins at the end of a queue since nothing says otherwise.
      stop: the first offset not to read; None: the queue is not read.
      group: the group at whose offsets the read begins; None: it uses none.
      advice: what to give to read these messages.
    """

    def skipped(queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        end_at = stop(queue, lookup)
        if end_at is None:
            return 0
        if not begins_at_end(queue, lookup) or end_at > lookup.max_offset(queue):
            return None
        return max(0, end_at - lookup.min_offset(queue))

    found = [*resolve_all(queues, client, skipped).values()]
    counts = [each for each in found if isinstance(each, int)]
    if len(counts) < len(found) and (group is None or any(isinstance(each, Exception) for each in found)):
        return ""
    return why_unread(counts, counted(len(found), "queue"), what, group, advice)


def why_unread(counts: Sequence[int], of: str, what: str, group: str | None, advice: str) -> str:
    """The warning for messages of `what` that are not read, by queue; empty: there are none.

    `of`: all queues. `group`: the group without an offset; None: the start is latest.
    """
    holding = [count for count in counts if count]
    if not holding:
        return ""
    cause = "it begins at the latest offset"
    if group is not None:
        cause = f"consumer group {group!r} has no offset there, so it begins at the end of each"
        advice = f"Check the name of the group. If it is new, or the queues are: {advice}"
    return (
        f"the read of {what} reads none of {counted(sum(holding), 'message')} in {len(holding)} of {of}: {cause}, "
        f"and it ends where it begins. {advice}"
    )


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
    found = nearest(str(queue), texts, cutoff=0.0)
    return f"the nearest of those is {found}. If broker {queue.broker!r} is down, start the read when it is back"


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


# Times and positions in queues as users write them: on command lines, in Beam YAML, in options of SQL tables.

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION: Final = re.compile(r"(\d{1,9})([smhd])")
_LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
TIME_HELP: Final = "TIME is ISO 8601 with a time zone, Unix milliseconds, or an age: 30s, 10m, 2h"
_MOST_DIGITS: Final = 18
_A_TIME: Final = "a TIME like 10m or 2026-01-31T12:00:00Z"

StartKind = Literal["earliest", "latest", "group", "group:RESET", "timestamp:TIME"]
StopKind = Literal["none", "latest", "timestamp:TIME"]


def time_of(text: str, zone: dt.tzinfo | None = None) -> int:
    """Returns a time in Unix milliseconds; see `TIME_HELP`. Raises `LocalError`.

    `zone`: of ISO 8601 without a time zone; None: refuse it.
    """
    found = _time_of(text, zone)
    if not 0 <= found <= _LATEST_MS:
        which = "before 1970" if found < 0 else "after the year 9999"
        raise LocalError(f"time {text!r} is {which}; it is ISO 8601, Unix milliseconds, or an age like 10m")
    return found


def _time_of(text: str, zone: dt.tzinfo | None) -> int:
    if text.isascii() and text.isdigit():
        return _whole(text)
    if ago := DURATION.fullmatch(text):
        return int(time.time() * 1000) - int(ago[1]) * SECONDS[ago[2]] * 1000
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise LocalError(
            f"time {text!r} is neither ISO 8601 like 2026-01-31T12:00:00+08:00, nor Unix milliseconds, nor like 10m"
        ) from None
    try:
        return to_timestamp_ms(found.replace(tzinfo=zone) if found.tzinfo is None else found)
    except LocalError:
        raise LocalError(f"time {text!r} has no time zone; add one, e.g. Z or +08:00") from None


def _whole(text: str) -> int:
    """The number. Python converts no more than 4,300 digits, and RocketMQ's numbers have 64 bits."""
    if len(text) > _MOST_DIGITS:
        raise LocalError(f"{text[:_MOST_DIGITS]}... has {len(text)} digits, and at most {_MOST_DIGITS} are allowed")
    return int(text)


class Position(NamedTuple):
    """A position in a queue: by name, by store time, by offset, or by a group's offset."""

    kind: Literal["earliest", "latest", "none", "group", "time", "offset"]
    value: int = 0
    """Unix milliseconds, or an offset."""
    reset: Reset = "earliest"
    """The start for a group that has no offset."""


def position_of(text: str, kinds: Sequence[str], *, numbers_are_offsets: bool = False) -> Position:
    """Returns a position of one of these kinds: names as in `Position`, `group:RESET`, `timestamp:TIME`.

    A TIME needs no `timestamp:` in front. With `numbers_are_offsets`, a bare number is an offset. Raises `LocalError`.
    """
    resets: dict[str, Reset] = {"": "earliest"}
    if "group:RESET" in kinds:
        resets |= {"earliest": "earliest", "latest": "latest", "error": "error"}
    kind, _, rest = text.partition(":")
    if text in ("earliest", "latest", "none") and text in kinds:
        return Position(text)  # type: ignore[arg-type]  # the three names
    if kind == "group" and "group" in kinds and rest in resets:
        return Position("group", reset=resets[rest])
    if numbers_are_offsets and text.isascii() and text.isdigit():
        return Position("offset", _whole(text))
    if "timestamp:TIME" in kinds and kind == "timestamp" and rest:
        return Position("time", time_of(rest))
    if "timestamp:TIME" in kinds and text[:1].isdigit():
        return Position("time", time_of(text))
    said = {"group:RESET": "group:earliest, group:latest, group:error", "timestamp:TIME": _A_TIME}
    *first, last = (said.get(kind, kind) for kind in kinds)
    words = [kind for kind in kinds if kind not in said]
    raise LocalError(f"{text!r} is not {', '.join(first)} or {last}{did_you_mean(text, words)}")


def start_of(text: str, kinds: Sequence[StartKind]) -> StartFrom:
    """Returns a start of one of these kinds. `group` alone is `group:earliest`. Raises `LocalError`."""
    found = position_of(text, kinds)
    if found.kind == "group":
        return StartFrom.group_offsets(reset=found.reset)
    if found.kind == "time":
        return StartFrom.timestamp(found.value)
    return StartFrom.earliest() if found.kind == "earliest" else StartFrom.latest()


def stop_of(text: str, kinds: Sequence[StopKind]) -> StopAt | None:
    """Returns a stop of one of these kinds; for `none`, None. Raises `LocalError`."""
    found = position_of(text, kinds)
    if found.kind == "time":
        return StopAt.timestamp(found.value)
    return None if found.kind == "none" else StopAt.latest()


# The start and the stop of a read: the strategies, and their resolution for many queues at once (`lookups`).

__all__ = [
    "LateQueue",
    "Reset",
    "StartFrom",
    "StartOffsetError",
    "StopAt",
    "check_named",
    "clamp_offset",
    "nearest_queue",
    "to_timestamp_ms",
]
