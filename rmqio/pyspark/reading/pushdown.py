"""Filter pushdown: how a batch read uses the filters of a query to read less."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rmqio.interfaces import OffsetLookup
from rmqio.model import MessageFilter, MessageQueue

_OF_QUEUE: Final[dict[str, tuple[type, Callable[[MessageQueue], object]]]] = {
    "topic": (str, lambda queue: queue.topic),
    "brokerName": (str, lambda queue: queue.broker),
    "queueId": (int, lambda queue: queue.queue_id),
}
_MARGIN_MS: Final = 1_000
"""Read beyond the requested times: a broker's clock may have been set back a little between two messages."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Narrowing:
    """The part of a read that pushed filters leave. Picklable."""

    queues: tuple[tuple[str, frozenset[object]], ...] = ()
    """Columns and their accepted values; all must match."""
    begin: int = 0
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Store time in Unix milliseconds, exclusive."""
    tags: frozenset[str] | None = None
    """None: all."""

    def __or__(self, other: Narrowing) -> Narrowing:
        """Returns a read that has at least what each of the two has."""
        mine, others = self._accepted(), other._accepted()
        return Narrowing(
            tuple((column, values | others[column]) for column, values in mine.items() if column in others),
            min(self.begin, other.begin),
            _outer(max, self.end, other.end),
            _outer(min, self.since_ms, other.since_ms),
            _outer(max, self.until_ms, other.until_ms),
            None if self.tags is None or other.tags is None else self.tags | other.tags,
        )

    def _accepted(self) -> dict[str, frozenset[object]]:
        found: dict[str, frozenset[object]] = {}
        for column, values in self.queues:
            found[column] = found.get(column, values) & values
        return found

    def admits(self, queue: MessageQueue) -> bool:
        """Returns whether any message of a queue can match."""
        if self.tags is not None and not self.tags:
            return False
        return all(_OF_QUEUE[column][1](queue) in values for column, values in self.queues)

    def cut(self, queue: MessageQueue, begin: int, end: int, lookup: OffsetLookup) -> tuple[int, int]:
        """Returns what is left of a range of offsets. Raises `BrokerError` and `TransportError`."""
        begin = max(begin, self.begin)
        end = end if self.end is None else min(end, self.end)
        if begin < end and self.since_ms is not None:
            begin = max(begin, lookup.offset_for_time(queue, self.since_ms))
        if begin < end and self.until_ms is not None:
            end = min(end, lookup.offset_for_time(queue, self.until_ms))
        return begin, end

    def of(self, message_filter: MessageFilter) -> MessageFilter:
        """Returns the broker's filter, by the wanted tags if there are any."""
        return MessageFilter(" || ".join(sorted(self.tags))) if self.tags else message_filter


def _outer(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    """Returns the wider of two bounds; None: there is none."""
    return None if one is None or other is None else choose(one, other)


def push(filters: Iterable[Filter], own: MessageFilter) -> Narrowing:
    """Returns what filters leave of a read. Spark must still apply each of them.

    Args:
      filters: all must match.
      own: the broker's filter that the options set. A broker takes either tags or SQL.
    """
    narrowing = Narrowing(tags=own.tag_set or None)
    for each in filters:
        narrowing = _push(each, narrowing, takes_tags=not own.sql)
    return narrowing


def _push(each: Filter, so_far: Narrowing, *, takes_tags: bool) -> Narrowing:
    """Applies one more filter. Returns the narrowed read."""
    comparisons = (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    if not isinstance(each, comparisons) or len(each.attribute) != 1:
        return so_far
    (column,) = each.attribute
    values = _values(each)
    if column in _OF_QUEUE and values is not None and _all_of(_OF_QUEUE[column][0], values):
        return dataclasses.replace(so_far, queues=(*so_far.queues, (column, values)))
    if column == "tags" and takes_tags and values is not None and all(map(_is_plain_tag, values)):
        wanted = frozenset(map(str, values))
        return dataclasses.replace(so_far, tags=wanted if so_far.tags is None else so_far.tags & wanted)
    if column == "queueOffset":
        return _push_offsets(each, so_far)
    return _push_times(each, so_far) if column == "storeTimestamp" else so_far


def _push_offsets(each: Any, so_far: Narrowing) -> Narrowing:
    low, high = _bounds(each)
    given = [bound for bound in (low, high) if bound is not None]
    if not given or not _all_of(int, given):
        return so_far
    begin, end = so_far.begin, so_far.end
    if low is not None:
        begin = max(begin, low + isinstance(each, GreaterThan))
    if high is not None:
        stop = high + (not isinstance(each, LessThan))
        end = stop if end is None else min(end, stop)
    return dataclasses.replace(so_far, begin=begin, end=end)


def _push_times(each: Any, so_far: Narrowing) -> Narrowing:
    bounds = _bounds(each)
    if not all(bound is None or (isinstance(bound, dt.datetime) and bound.tzinfo is not None) for bound in bounds):
        return so_far
    low, high = (None if bound is None else (bound - _EPOCH) // dt.timedelta(milliseconds=1) for bound in bounds)
    since, until = so_far.since_ms, so_far.until_ms
    if low is not None:
        since = max(0, since or 0, low - _MARGIN_MS)
    if high is not None:
        stop = max(0, high + 1 + _MARGIN_MS)
        until = stop if until is None else min(until, stop)
    return dataclasses.replace(so_far, since_ms=since, until_ms=until)


def _values(each: Any) -> frozenset[object] | None:
    """Returns the values that an equality permits; None for another comparison. Null equals nothing."""
    if isinstance(each, In):
        return frozenset(value for value in each.value if value is not None)
    if isinstance(each, (EqualTo, EqualNullSafe)) and each.value is not None:
        return frozenset([each.value])
    return None


def _bounds(each: Any) -> tuple[Any, Any]:
    """Returns the lowest and the highest value, as far as a comparison bounds them."""
    if isinstance(each, In):
        values = _values(each)
        return (min(values), max(values)) if values and len({type(value) for value in values}) == 1 else (None, None)  # type: ignore[type-var]
    if isinstance(each, (EqualTo, EqualNullSafe)):
        return each.value, each.value
    return (each.value, None) if isinstance(each, (GreaterThan, GreaterThanOrEqual)) else (None, each.value)


def _all_of(kind: type, values: Iterable[object]) -> bool:
    return all(type(value) is kind for value in values)


def _is_plain_tag(value: object) -> bool:
    """Returns whether a filter expression can name this tag, and no other text looks like it in the column."""
    if type(value) is not str or not value or value.strip() != value:
        return False
    return value != "*" and "|" not in value and "\ufffd" not in value
