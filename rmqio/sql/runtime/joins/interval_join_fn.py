"""Interval joins: the rows of a key meet in windows of Beam, and are forgotten when the watermark passes their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer

from rmqio.sql.runtime.joins.matching import KeptRows, Matcher, MatchSpec

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
