"""Pairs of a join: which rows of a key belong together, and which have no partner."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Field, Interval
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.outputs import FailedRows, outputs

Row = tuple[Any, ...]
_MOST_ROWS: Final = 100_000
"""Rows that a bundle keeps decoded."""
_PAIRS: Final = 1000
"""Pairs that are in memory at one time: a key with many rows has many times as many pairs."""
LONG_AGO_US: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """Describes a join that the watermark or the end of the input bounds.

    Attributes:
      left, right: the columns of the inputs.
      kind: INNER, LEFT, RIGHT or FULL.
      interval: bounds the times of a pair; None: equal keys are enough.
      residual: another condition, as a fragment that lets pairs through; None: there is none.
      fragment: what happens to a pair, or to a row without a partner beside NULLs.
      side: if the rows go into another join, which input of it they are.
    """

    left: tuple[Field, ...]
    right: tuple[Field, ...]
    kind: str
    interval: Interval | None
    residual: Fragment | None
    fragment: Fragment
    side: int = 0

    def is_outer(self, side: int) -> bool:
        """Returns whether rows of that side come out without a partner."""
        return self.kind in (("LEFT", "FULL"), ("RIGHT", "FULL"))[side]


@dataclass(slots=True)
class Rows:
    """Rows of one side of a key, by time if the join has an interval."""

    rows: list[Row] = field(default_factory=list)
    times: list[int] = field(default_factory=list)


class KeptRows:
    """The decoded rows of the keys of a bundle. None: that side of the key is not decoded.

    Attributes:
      count: how many they are: whoever adds some counts them.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, list[Rows | None]] = {}
        self.count = 0

    def of(self, key: Any) -> list[Rows | None]:
        """Returns the rows of the left and the right of a key."""
        found = self._kept.get(key)
        if found is None:
            if self.count > _MOST_ROWS:  # of other keys: those of one are as many as its state has
                self._kept.clear()
                self.count = 0
            found = self._kept[key] = [None, None]
            self.count += 1
        return found

    def forget(self, key: Any) -> None:
        """Forgets a key."""
        self._kept.pop(key, None)


class Matcher:
    """Finds the pairs of a key, some at a time."""

    def __init__(self, spec: MatchSpec) -> None:
        self._spec = spec
        self._failed_rows = FailedRows(spec.fragment)
        self._letters: list[Any] = []
        self._run = compiled(spec.fragment)
        self._unpack = unpacker(spec.left), unpacker(spec.right)
        self._test = None if spec.residual is None else compiled(spec.residual)
        interval = spec.interval
        self._times = (interval.left_time, interval.right_time) if interval else None
        self._within = (
            ((interval.lower_us, interval.upper_us), (-interval.upper_us, -interval.lower_us)) if interval else ()
        )
        self._nulls = (None,) * len(spec.left), (None,) * len(spec.right)

    def rows(self, side: int, packed: list[bytes]) -> Rows:
        """Returns the rows of a side."""
        found = list(map(self._unpack[side], packed))
        if self._times is None:
            return Rows(found)
        time = self._times[side]
        found.sort(key=lambda row: row[time])
        return Rows(found, [row[time] for row in found])

    def add(self, kept: Rows, more: Rows) -> None:
        """Adds rows of the same side."""
        if self._times is None or not kept.times or not more.times or more.times[0] >= kept.times[-1]:
            kept.rows += more.rows
            kept.times += more.times
            return
        for row, time in zip(more.rows, more.times, strict=True):
            at = bisect_right(kept.times, time)
            kept.times.insert(at, time)
            kept.rows.insert(at, row)

    def pairs(self, side: int, own: Rows, partners: Rows) -> Iterator[list[Any]]:
        """Yields lists of pairs, as rows of both, of rows of a side with those of the other one."""
        if partners.rows:
            for pairs, _ in self._pairs(side, own, partners):
                yield pairs

    def unmatched(self, side: int, own: Rows, partners: Rows) -> list[Row]:
        """Returns the rows of a side that have no partner, with NULL in the columns of the other one."""
        if not partners.rows:
            alone = own.rows
        elif self._test is None:
            spans = (self._span(side, own, i, partners) for i in range(len(own.rows)))
            alone = [row for row, (first, last) in zip(own.rows, spans, strict=True) if first == last]
        else:
            matched = {i for _, found in self._pairs(side, own, partners, again=True) for i in found}
            alone = [row for i, row in enumerate(own.rows) if i not in matched]
        nulls = self._nulls[1 - side]
        return [nulls + row if side else row + nulls for row in alone]

    def joined(self, own: Rows, partners: Rows) -> Iterator[list[Row]]:
        """Yields all that comes out of a left and a right side that are complete."""
        spec = self._spec
        matched: tuple[set[int], set[int]] = set(), set()
        if own.rows and partners.rows:
            for pairs, lefts in self._pairs(0, own, partners):
                matched[0].update(lefts)
                yield pairs
        if spec.is_outer(0) and own.rows:
            yield [row + self._nulls[1] for i, row in enumerate(own.rows) if i not in matched[0]]
        if spec.is_outer(1) and partners.rows:
            yield self.unmatched(1, partners, own)

    def _span(self, side: int, own: Rows, at: int, partners: Rows) -> tuple[int, int]:
        """Positions of the partners that a row has by its time."""
        if self._times is None:
            return 0, len(partners.rows)
        time = own.times[at]
        first, last = self._within[side]
        return bisect_left(partners.times, time + first), bisect_right(partners.times, time + last)

    def _pairs(
        self, side: int, own: Rows, partners: Rows, *, again: bool = False
    ) -> Iterator[tuple[list[Row], list[int]]]:
        """Yields pairs, and the positions of the side's own rows that have some.

        Args:
          again: they were yielded before, so that what failed was said.
        """
        pairs: list[Row] = []
        places: list[int] = []
        for place, row in enumerate(own.rows):
            first, last = self._span(side, own, place, partners)
            while first < last:
                found = partners.rows[first : min(last, first + _PAIRS)]
                first += len(found)
                pairs += [partner + row for partner in found] if side else [row + partner for partner in found]
                places += [place] * len(found)
                if len(pairs) >= _PAIRS:
                    yield self._tested(pairs, places, again)
                    pairs, places = [], []
        if pairs:
            yield self._tested(pairs, places, again)

    def _tested(self, pairs: list[Row], places: list[int], again: bool) -> tuple[list[Row], list[int]]:
        if self._test is None:
            return pairs, places
        tested = self._test(pairs)
        if (tested.failed or tested.nulls) and not again:
            self._letters += self._failed_rows.outputs(pairs, tested.failed, tested.nulls)
        # A row is not without a partner if nobody knows: a pair that fails counts as one.
        found = [places[each] for each in (*tested.positions, *tested.failed)]
        return [pairs[each] for each in tested.positions], found

    def letters(self) -> list[Any]:
        """Returns the dead letters of pairs whose condition failed since the last call."""
        found, self._letters = self._letters, []
        return found

    def outputs(self, rows: list[Row], time_us: int = LONG_AGO_US) -> Iterator[Any]:
        """Yields the elements that the fragment makes of rows of both, and the dead letters of rows that fail.

        Args:
          time_us: the time of the element that they come from.
        """
        yield from self.letters()
        mapped = self._run(rows)
        if mapped.failed or mapped.nulls:
            yield from self._failed_rows.outputs(rows, mapped.failed, mapped.nulls)
        if mapped.values:
            yield from outputs(self._spec.fragment.target, mapped.values, self._spec.side, time_us)
