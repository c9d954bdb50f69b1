"""Plans which pulls to keep in flight for one queue and interprets their answers. Pure: no I/O, no clock.

A broker returns few messages per pull (32, or 256 KiB), so the next pulls are sent before the first is answered. The
plan is a list of contiguous segments [begin, end); one pull from `begin` requests each. An answer covers
[begin, next offset). If it covers less than its segment, the rest becomes new segments before the later ones. If it
covers more, the part that belongs to the next segment is cut off. So nothing is lost, duplicated or reordered, whatever
the broker's limits are and whether or not a filter leaves gaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rmqio.errors import CorruptMessage, WireError
from rmqio.model import PullResult, PullStatus, Record
from rmqio.wire.stored import INNER_BATCH

C = TypeVar("C")

LONGEST_SPAN = 65_536
"""Maximum number of offsets that one filtered pull is expected to scan."""
_FIRST_PROBE = 8
_LAST_PROBE = 1_024


@dataclass(slots=True, eq=False)
class Segment(Generic[C]):
    """Offsets [begin, end) requested by one pull."""

    begin: int
    end: int
    max_messages: int
    is_long_poll: bool = False
    call: C | None = None
    """The pull in flight; None until it is sent."""


class Taken(NamedTuple, Generic[C]):
    """The content of an answer."""

    records: list[Record]
    corrupt: tuple[CorruptMessage, ...]
    skipped: int
    given_up: tuple[C, ...] = ()
    """Pulls in flight that would return a broken inner batch again, each from another offset in it."""


class NoProgress(WireError):
    """The answer neither contains messages nor advances, though messages exist: pull again, but not at once."""

    retriable = True


class ReadAhead(Generic[C]):
    """The plan for one queue.

    Args:
      position: the first offset to read.
      depth: maximum number of segments in flight, apart from the rests of short answers.
      batch: number of messages requested per pull.
      is_filtered: whether answers can omit messages; gaps are then not a loss.
      max_bytes: limit for answers in flight, estimated from the last answers.
    """

    def __init__(self, position: int, *, depth: int, batch: int, is_filtered: bool, max_bytes: int) -> None:
        self.position = position
        self.known_max: int | None = None
        """The queue's end according to the newest answer; None before the first."""
        self.segments: deque[Segment[C]] = deque()
        self.span = batch
        """Number of offsets that one pull is expected to cover."""
        self._depth = depth
        self._batch = batch
        self._is_filtered = is_filtered
        self._max_bytes = max_bytes
        self._answer_bytes = 1.0
        self._full_answers = 0
        self._probe_after = _FIRST_PROBE

    def __repr__(self) -> str:
        return f"<ReadAhead at {self.position} of {self.known_max}, {len(self.segments)} segments of {self.span}>"

    @property
    def head(self) -> Segment[C] | None:
        return self.segments[0] if self.segments else None

    @property
    def depth(self) -> int:
        """The number of segments in flight, given the size of the last answers."""
        return max(min(self._depth, int(self._max_bytes / self._answer_bytes)), 2)

    def restart(self, position: int) -> list[Segment[C]]:
        """Start over at an offset without a known end. Returns the abandoned segments."""
        dropped = list(self.segments)
        self.segments.clear()
        self.position = position
        self.known_max = None
        return dropped

    def plan(self) -> list[Segment[C]]:
        """Extend the plan; return all segments to send now, in order."""
        segments = self.segments
        depth = self.depth
        if not segments:
            self._begin()
        elif len(segments) > depth // 2 and segments[0].call is not None:
            return []  # refill in bulk: one write for many pulls
        if self.known_max is not None:
            end = segments[-1].end
            while len(segments) < depth and end < self.known_max:
                segments.append(self._segment(end, end + self.span))
                end += self.span
        return [segment for segment in segments if segment.call is None]

    def _begin(self) -> None:
        segment = self._segment(self.position, self.position + self.span)
        # The first pull must not be held: its answer reports the end of the queue.
        if self.known_max is not None and self.position >= self.known_max:
            segment.is_long_poll = True
            segment.max_messages = self._batch
        self.segments.append(segment)

    def _segment(self, begin: int, end: int) -> Segment[C]:
        return Segment(begin, end, self._batch if self._is_filtered else end - begin)

    def take(self, result: PullResult, body_bytes: int) -> Taken[C]:
        """Settle the first segment with its answer: found, no match, or nothing new.

        Advances `position`. Raises `NoProgress` and `WireError`; the caller must then restart the plan.
        """
        head = self.segments[0]
        begin, next_offset = head.begin, result.next_offset
        if result.status is PullStatus.NO_NEW_MESSAGE and next_offset <= begin:
            self.segments.clear()
            self.known_max = begin
            return Taken([], (), 0)
        if next_offset <= begin:
            raise NoProgress(f"a pull from offset {begin} returned next offset {next_offset} ({result.remark})")
        records, corrupt = result.records, result.corrupt
        if records and not begin <= records[0].queue_offset <= records[-1].queue_offset < next_offset:
            raise WireError(
                f"a pull from offset {begin} to {next_offset} returned offsets {records[0].queue_offset} to "
                f"{records[-1].queue_offset}"
            )
        end = next_offset
        if len(self.segments) > 1 and next_offset > head.end:
            end = head.end
            if corrupt:
                corrupt = tuple(bad for bad in corrupt if bad.queue_offset < end)
                # A pull from any offset in a broken inner batch returns all of it: report it once and skip it.
                end = max((_behind(bad, result) for bad in corrupt), default=end)
                end = min(max(end, head.end), next_offset)
            records = records[: bisect_left(records, end, key=_offset_of)]
        skipped = 0 if self._is_filtered or result.is_border else _missing(begin, end, records, corrupt)
        if skipped < 0:
            raise WireError(f"a pull from offset {begin} to {end} returned {len(records)} messages, more than possible")
        self.known_max = max(self.known_max or 0, result.max_offset)
        self._learn(head, result, body_bytes)
        self.segments.popleft()
        self.position = end
        if self.segments and end < head.end:
            self._fill(end, head.end)
        return Taken(records, corrupt, skipped, self._cut_off(end) if end > head.end else ())

    def _cut_off(self, begin: int) -> tuple[C, ...]:
        """Move the plan past the begin of its next segments; return their pulls, if sent."""
        segments = self.segments
        given_up: list[C] = []
        while segments and segments[0].begin < begin:
            segment = segments.popleft()
            if segment.call is not None:
                given_up.append(segment.call)
            if segment.end > begin:
                segments.appendleft(self._segment(begin, segment.end))
        return tuple(given_up)

    def _fill(self, begin: int, end: int) -> None:
        depth = self.depth
        room = max(depth - len(self.segments), depth // 2)
        rest: list[Segment[C]] = []
        while begin < end:
            # The last segment takes all that is left: a very short scan can follow a long one.
            until = min(begin + self.span, end) if len(rest) < room - 1 else end
            rest.append(self._segment(begin, until))
            begin = until
        self.segments.extendleft(reversed(rest))

    def _learn(self, head: Segment[C], result: PullResult, body_bytes: int) -> None:
        next_offset = result.next_offset
        self._answer_bytes += (body_bytes - self._answer_bytes) / 4
        covered = next_offset - head.begin
        if next_offset >= result.max_offset:
            return  # it ended at the queue's end, which does not reveal the broker's limits
        if self._is_filtered:
            self.span = min(max(covered, 1), LONGEST_SPAN)
        elif result.records and result.records[-1].sys_flag & INNER_BATCH:
            # A record that spans many offsets is returned whole for any of them. One pull for each part would fetch all
            # of it each time. A pull that began inside such a record covers less than the whole.
            self.span = min(max(covered, self.span), LONGEST_SPAN)
        elif covered < min(self.span, head.end - head.begin):
            self.span = covered
            self._full_answers = 0
            self._probe_after = min(self._probe_after * 2, _LAST_PROBE)
        elif self.span < self._batch:
            self._full_answers += 1
            if self._full_answers >= self._probe_after:
                self._full_answers = 0
                self.span = min(self.span * 2, self._batch)


def _offset_of(record: Record) -> int:
    return record.queue_offset


def _behind(bad: CorruptMessage, result: PullResult) -> int:
    """Return the offset after a message. An inner batch without a known length ends at the answer's next offset."""
    if bad.next_offset is not None:
        return bad.next_offset
    others = [*(record.queue_offset for record in result.records), *(other.queue_offset for other in result.corrupt)]
    return min((offset for offset in others if offset > bad.queue_offset), default=result.next_offset)


def _missing(begin: int, end: int, records: Sequence[Record], corrupt: Sequence[CorruptMessage]) -> int:
    """Return the number of missing offsets in [begin, end): without a filter they are dense, so counting is enough."""
    missing = end - begin - len(records)
    for bad in corrupt:
        missing -= min(bad.next_offset or bad.queue_offset + 1, end) - max(bad.queue_offset, begin)
    return missing
