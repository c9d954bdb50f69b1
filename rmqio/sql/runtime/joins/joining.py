"""Transforms of a join, chosen by what bounds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.utils.timestamp import Duration, Timestamp

from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToKeys, ToRows
from rmqio.sql.compile.timing import Route, Timing
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import Interval, Join, SameWindow
from rmqio.sql.planning.watermarks import bucket_us, delay_us, kept_us
from rmqio.sql.runtime.joins.grouped_join_fn import GroupedJoinFn
from rmqio.sql.runtime.joins.interval_join_fn import BY_LEFT, BY_RIGHT, IntervalJoinFn, OuterIntervalJoinFn
from rmqio.sql.runtime.joins.join_fn import ExpiringJoinFn, JoinFn, JoinSpec
from rmqio.sql.runtime.joins.matching import MatchSpec
from rmqio.sql.runtime.rows.failed_rows import Computing

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
