"""Transforms of a join, chosen by what bounds it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BooleanCoder, BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.compile.description import Fragment, FromRows, Route, Step, Target, Timing, ToKeys, ToRows
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import Interval, Join, SameWindow
from rmqio.sql.planning.watermarks import bucket_us, delay_us, kept_us
from rmqio.sql.runtime.matching import KeptRows, Matcher, MatchSpec, Rows
from rmqio.sql.runtime.outputs import Computing

# Interval joins: the rows of a key meet in windows of Beam, and are forgotten when the watermark passes their ends.

BY_LEFT: Final = b"l"
BY_RIGHT: Final = b"r"
"""Before the key: by which side's times the windows are. Every row of that side is in one of them, with all its
partners; a row of the other side is in each that can have partners of it."""
_MOST_PLACES: Final = 100_000
"""Keys and windows of a bundle whose timer is known to be set."""

Element = tuple[bytes, tuple[int, list[bytes]]]


class IntervalJoinFn(beam.DoFn):
    """Joins the rows of a key and a window. A pair comes out when its second row comes.

    The state of a key is read and decoded once in a bundle, and not once for each element.
    """

    LEFT = BagStateSpec("left", BytesCoder())
    RIGHT = BagStateSpec("right", BytesCoder())

    def __init__(self, spec: MatchSpec) -> None:
        self._spec = spec
        self._pairs_by = BY_RIGHT if spec.kind == "RIGHT" else BY_LEFT

    def setup(self) -> None:
        self._matcher = Matcher(self._spec)

    def start_bundle(self) -> None:
        self._kept = KeptRows()

    def process(
        self,
        element: Element,
        left: Any = beam.DoFn.StateParam(LEFT),
        right: Any = beam.DoFn.StateParam(RIGHT),
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        yield from self._process(element, (left, right), window)

    def _process(self, element: Element, states: tuple[Any, Any], window: Any) -> Iterator[Any]:
        key, (side, packed) = element
        for row in packed:
            states[side].add(row)
        rows = self._matcher.rows(side, packed)
        kept = self._kept.of((key, window))
        if (own := kept[side]) is not None:
            self._matcher.add(own, rows)
            self._kept.count += len(packed)
        if key[:1] != self._pairs_by:
            return
        partners = kept[1 - side]
        if partners is None:
            partners = kept[1 - side] = self._matcher.rows(1 - side, list(states[1 - side].read()))
            self._kept.count += len(partners.rows)
        for pairs in self._matcher.pairs(side, rows, partners):
            yield from self._matcher.outputs(pairs)
        yield from self._matcher.letters()


class OuterIntervalJoinFn(IntervalJoinFn):
    """Also emits the rows of outer sides that have no partner when their window is over."""

    END = TimerSpec("end", TimeDomain.WATERMARK)

    def start_bundle(self) -> None:
        super().start_bundle()
        self._waiting: set[tuple[bytes, Any]] = set()

    def process(
        self,
        element: Element,
        left: Any = beam.DoFn.StateParam(IntervalJoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(IntervalJoinFn.RIGHT),
        window: Any = beam.DoFn.WindowParam,
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        place = element[0], window
        if place not in self._waiting:
            end.set(window.max_timestamp())
            if len(self._waiting) > _MOST_PLACES:
                self._waiting.clear()
            self._waiting.add(place)
        yield from self._process(element, (left, right), window)

    @on_timer(END)
    def finish(
        self,
        key: Any = beam.DoFn.KeyParam,
        left: Any = beam.DoFn.StateParam(IntervalJoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(IntervalJoinFn.RIGHT),
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        """Emits the rows that found no partner, and empties the state."""
        self._kept.forget((key, window))
        self._waiting.discard((key, window))
        side = int(key[:1] == BY_RIGHT)
        own = self._matcher.rows(side, list((left, right)[side].read()))
        partners = self._matcher.rows(1 - side, list((right, left)[side].read()))
        left.clear()
        right.clear()
        if alone := self._matcher.unmatched(side, own, partners):
            yield from self._matcher.outputs(alone)


# Joins of all rows of a key at one time: those of a window, or of inputs that have ended.


class GroupedJoinFn(beam.DoFn):
    """Joins what GroupByKey has brought together: (key, [(side, rows)])."""

    def __init__(self, spec: MatchSpec) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._matcher = Matcher(self._spec)

    def process(self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]]) -> Iterator[Any]:
        sides: tuple[list[bytes], list[bytes]] = [], []
        for side, rows in element[1]:
            sides[side].extend(rows)
        left, right = self._matcher.rows(0, sides[0]), self._matcher.rows(1, sides[1])
        for found in self._matcher.joined(left, right):
            if found:
                yield from self._matcher.outputs(found)
        yield from self._matcher.letters()


# Until when a join keeps a row: in front of the bytes of each.

EXPIRY: Final = struct.Struct(">q")
"""Milliseconds since 1970, or `FOR_EVER`."""
FOR_EVER: Final = (1 << 63) - 1


# The join of two streams: each row waits for its partners as long as its time to live.


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Describes a join.

    Attributes:
      match: the inner join, without an interval.
      ttl_ms: how long a row is kept, in milliseconds of processing time.
      kept: whether the rows of the left and of the right are kept for ever: their input ends.
    """

    match: MatchSpec
    ttl_ms: int
    kept: tuple[bool, bool] = (False, False)


class JoinFn(beam.DoFn):
    """Joins the rows of a key, of inputs that end. Elements are (key, (side, rows)); the output is lists of messages.

    Every row is kept until the end: no row is removed before its partners come. The state of a key is read and decoded
    once in a bundle, and not once for each element.
    """

    LEFT = BagStateSpec("left", BytesCoder())
    RIGHT = BagStateSpec("right", BytesCoder())

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._matcher = Matcher(self._spec.match)

    def start_bundle(self) -> None:
        self._kept = KeptRows()

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        left: Any = beam.DoFn.StateParam(LEFT),
        right: Any = beam.DoFn.StateParam(RIGHT),
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        key, (side, packed) = element
        own, other = (right, left) if side else (left, right)
        for row in packed:
            own.add(row)
        kept = self._kept.of(key)
        partners = kept[1 - side]
        if partners is None:
            partners = kept[1 - side] = self._matcher.rows(1 - side, list(other.read()))
            self._kept.count += len(partners.rows)
        if partners.rows or kept[side] is not None:
            yield from self._joined(side, self._matcher.rows(side, packed), kept, partners, timestamp.micros)

    def _joined(self, side: int, rows: Rows, kept: list[Rows | None], partners: Rows, time_us: int) -> Iterator[Any]:
        """Yields what becomes of the pairs of new rows, which are added to the decoded ones of their key."""
        if (own := kept[side]) is not None:
            self._matcher.add(own, rows)
            self._kept.count += len(rows.rows)
        for pairs in self._matcher.pairs(side, rows, partners):
            yield from self._matcher.outputs(pairs, time_us)


class ExpiringJoinFn(JoinFn):
    """Joins the rows of a key, of inputs without end: a row is kept for the time to live after it came.

    State is by key. A timer of processing time removes the rows that are over their time. It is set once until it
    fires: if each row put it off, a key that always gets rows would keep all of them.
    """

    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)
    IS_SET = ReadModifyWriteStateSpec("is_set", BooleanCoder())

    def process(
        self,
        element: tuple[bytes, tuple[int, list[bytes]]],
        left: Any = beam.DoFn.StateParam(JoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(JoinFn.RIGHT),
        timestamp: Any = beam.DoFn.TimestampParam,
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> Iterator[Any]:
        key, (side, packed) = element
        own, other = (right, left) if side else (left, right)
        now_ms = time.time_ns() // 1_000_000
        is_kept = self._spec.kept[side]
        until_ms = FOR_EVER if is_kept else now_ms + self._spec.ttl_ms
        until = EXPIRY.pack(until_ms)
        for row in packed:
            own.add(until + row)
        if not is_kept and not is_set.read():
            expiry.set(until_ms / 1000)
            is_set.write(True)
        kept = self._kept.of(key)
        partners = kept[1 - side]
        if partners is None:
            partners = kept[1 - side] = self._decoded(1 - side, list(other.read()))
            self._kept.count += len(partners.rows)
        if partners.rows or kept[side] is not None:
            rows = self._matcher.rows(side, packed)
            rows.times = [until_ms] * len(packed)
            yield from self._joined(side, rows, kept, self._living(1 - side, partners, now_ms), timestamp.micros)

    def _decoded(self, side: int, kept: list[bytes]) -> Rows:
        """The rows of a side. Their times are those until which they are kept."""
        rows = self._matcher.rows(side, [row[EXPIRY.size :] for row in kept])
        rows.times = [EXPIRY.unpack_from(row)[0] for row in kept]
        return rows

    def _living(self, side: int, rows: Rows, now_ms: int) -> Rows:
        """The rows that are not over their time."""
        if self._spec.kept[side] or all(each > now_ms for each in rows.times):
            return rows
        return Rows([row for row, until_ms in zip(rows.rows, rows.times, strict=True) if until_ms > now_ms])

    @on_timer(EXPIRY)
    def expire(
        self,
        left: Any = beam.DoFn.StateParam(JoinFn.LEFT),
        right: Any = beam.DoFn.StateParam(JoinFn.RIGHT),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> None:
        """Removes the rows that are over their time."""
        now_ms = time.time_ns() // 1_000_000
        next_ms = 0
        for state, is_kept in zip((left, right), self._spec.kept, strict=True):
            if is_kept:
                continue
            kept = [row for row in state.read() if EXPIRY.unpack_from(row)[0] > now_ms]
            state.clear()
            for row in kept:
                state.add(row)
                expiry_ms = EXPIRY.unpack_from(row)[0]
                next_ms = min(next_ms or expiry_ms, expiry_ms)
        if next_ms:
            expiry.set(next_ms / 1000)
        else:
            is_set.clear()


_MILLISECOND_US = 1000
_WINDOW_END_US = -_MILLISECOND_US
"""`window_end` is the first millisecond after a window."""


def key_targets(join: Join) -> tuple[ToKeys, ToKeys]:
    """Returns what the rows of the left and of the right input become."""
    timings = _timings(join)
    outer = ("LEFT", "FULL"), ("RIGHT", "FULL")
    left, right = (
        ToKeys(
            tuple(pair[side] for pair in join.keys),
            timings[side],
            side if join.kind in outer[side] else None,
            kinds=tuple(given.fields[pair[side]].type for pair in join.keys),
        )
        for side, given in enumerate(join.inputs())
    )
    return left, right


def _timings(join: Join) -> tuple[Timing | None, Timing | None]:
    match join.bound:
        case Interval() as bound:
            size, shift = bucket_us(join.kind, bound), kept_us(join.kind, bound) + delay_us(join.left, join.right)
            lower, upper = bound.lower_us, bound.upper_us
            ways = {
                BY_LEFT: (Route(BY_LEFT), Route(BY_LEFT, -upper, -lower)),
                BY_RIGHT: (Route(BY_RIGHT, lower, upper), Route(BY_RIGHT)),
            }
            used = {"RIGHT": [BY_RIGHT], "FULL": [BY_LEFT, BY_RIGHT]}.get(join.kind, [BY_LEFT])
            left, right = (tuple(ways[each][side] for each in used) for side in (0, 1))
            return (
                Timing(bound.left_time, size, 0, shift, left),
                Timing(bound.right_time, size, 0, shift, right),
            )
        case SameWindow(window, left_end, right_end):
            # A window is the piece of time that ends with it: the key has its start.
            route = (Route(b"", _WINDOW_END_US, _WINDOW_END_US),)
            delay = delay_us(join.left, join.right)
            left_timing = Timing(left_end, window.slide_us, window.offset_us, delay, route)
            if window.local_zone is not None:
                left_timing = Timing(left_end, _MILLISECOND_US, 0, delay, (Route(),), window.local_zone)
            return left_timing, replace(left_timing, time=right_end)
    return None, None


class JoinRows(beam.PTransform[Any, Any]):
    """Joins rows by key: of both sides, in one PCollection.

    Args:
      join: the join.
      steps, target, side: what happens to its rows.
      computing: adds the DoFns.
    """

    def __init__(self, join: Join, steps: tuple[Any, ...], target: Target, side: int, computing: Computing) -> None:
        super().__init__()
        self._join, self._steps, self._target, self._side = join, steps, target, side
        self._computing = computing

    def expand(self, both: Any) -> Any:
        match self._join.bound:
            case Interval():
                fn = IntervalJoinFn if self._join.kind == "INNER" else OuterIntervalJoinFn
                joined = self._computing.add(self._windowed(both), "Match", fn(self._spec()))
            case SameWindow():
                joined = self._grouped(self._windowed(both) | "Group" >> beam.GroupByKey())
            case _:
                joined = self._grouped(both | "Group" >> beam.GroupByKey())
        return joined | "All times" >> beam.WindowInto(GlobalWindows())

    def _windowed(self, both: Any) -> Any:
        timing, _ = _timings(self._join)
        assert timing is not None
        offset = Timestamp(micros=(timing.origin_us + timing.shift_us) % timing.size_us)
        return both | "Windows" >> beam.WindowInto(FixedWindows(Duration(micros=timing.size_us), offset))

    def _grouped(self, both: Any) -> Any:
        return self._computing.add(both, "Match", GroupedJoinFn(self._spec()))

    def _spec(self) -> MatchSpec:
        join = self._join
        interval = join.bound if isinstance(join.bound, Interval) else None
        source = FromRows(named_fields(join))
        residual = None if join.residual is None else Fragment(source, (Step(join.residual, ()),), ToRows())
        fragment = Fragment(source, self._steps, self._target)
        return MatchSpec(join.left.fields, join.right.fields, join.kind, interval, residual, fragment, self._side)


def waiting_join(
    join: Join, steps: tuple[Any, ...], target: Target, side: int, ends: tuple[bool, bool]
) -> JoinFn | None:
    """Returns the DoFn of an inner join that nothing bounds but the time to live; None: it is no such join.

    `ends`: whether the left and the right end.
    """
    if join.bound is not None:
        return None
    if join.kind != "INNER":
        return None
    if join.residual is not None:
        steps = (Step(join.residual, tuple(InputRef(each.type, i) for i, each in enumerate(join.fields))), *steps)
    fragment = Fragment(FromRows(named_fields(join)), steps, target)
    match = MatchSpec(join.left.fields, join.right.fields, join.kind, None, None, fragment, side)
    spec = JoinSpec(match, join.ttl_ms, ends)
    return JoinFn(spec) if all(ends) else ExpiringJoinFn(spec)
