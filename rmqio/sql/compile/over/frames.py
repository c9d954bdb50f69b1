"""OVER: functions over the rows before a row, of one partition whose rows come in order of time.

Each call keeps for the next what later frames need: the last rows for frames that move, and an aggregate for frames
that begin with the first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from rmqio.sql.compile.over.sliders import Slider, slider
from rmqio.sql.planning.plan import Field
from rmqio.sql.planning.relations import OverCall
from rmqio.sql.rows import pack, type_hint

Row = tuple[Any, ...]


class Frames:
    """The functions of one OVER for one partition.

    Args:
      calls: the functions.
      time: the position of the time.
      fields: the columns of the rows.
      kept: what `kept` gave; empty: there are no rows before.
    """

    def __init__(self, calls: Sequence[OverCall], time: int, fields: Sequence[Field], kept: bytes = b"") -> None:
        self._time = time
        self._calls = [_Call(each, fields, 1 + i) for i, each in enumerate(calls)]
        self._items: list[Row] = []
        self._states = [each.slider for each in self._calls if each.grows and each.slider is not None]
        if kept:
            self._restore(kept)

    def _hint(self) -> Any:
        hints: Any = (int, *(each.hint for each in self._calls))
        items: Any = tuple[hints]
        states = tuple[tuple(each.hint for each in self._states)] if self._states else tuple[()]  # type: ignore[misc]
        return tuple[list[items], states]  # type: ignore[valid-type]

    def _restore(self, kept: bytes) -> None:
        self._items, states = msgspec.msgpack.Decoder(self._hint()).decode(kept)
        for one, state in zip(self._states, states, strict=True):
            one.restore(state)
        for each in self._calls:
            each.begin(self._items)

    def kept(self) -> bytes:
        """Returns what frames of later rows need."""
        first = min((each.needed(self._items) for each in self._calls), default=len(self._items))
        moves = [True, *(not each.grows for each in self._calls)]
        items = [
            tuple(value if is_kept else None for value, is_kept in zip(item, moves, strict=True))
            for item in self._items[first:]
        ]
        states = [each.saved() for each in self._states]
        try:
            return pack((items, states))
        except OverflowError:  # a sum of more than 64 bits
            return pack((items, [_as_text(each) for each in states]))

    def advance(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the results for each row, in order: a `ValueFailure` where there is none.

        The rows are ordered by time, and later than all before.
        """
        found: list[Row] = []
        for _, peers in groupby(rows, key=lambda row: row[self._time]):
            group = list(peers)
            items = [(row[self._time], *(each.value(row) for each in self._calls)) for row in group]
            start = len(self._items)
            self._items += items
            columns = [each.results(self._items, start, group) for each in self._calls]
            found += zip(*columns, strict=True)
        return found


class _Call:
    """One function: its aggregate, and where its frame begins in the list of rows."""

    def __init__(self, over: OverCall, fields: Sequence[Field], place: int) -> None:
        call = over.call
        self._over, self._place = over, place
        self._is_lag = call.name == "LAG"
        self._counts = call.name == "COUNT"
        self.grows = over.preceding is None
        argument = None if call.argument is None else fields[call.argument].type
        self.slider: Slider | None = None if self._is_lag else slider(call, argument, grows=self.grows)
        self.hint: Any = None
        if not self.grows:
            self.hint = bool | None if argument is None or self._counts else type_hint(argument) | None
        self._begin = 0

    def value(self, row: Row) -> Any:
        """Returns what of a row counts; None: nothing."""
        call = self._over.call
        if call.condition is not None and not row[call.condition]:
            return None
        found = True if call.argument is None else row[call.argument]
        return None if found is None else True if self._counts else found

    def begin(self, items: list[Row]) -> None:
        """Adds the rows that were kept: all of them that a later frame can have."""
        if not self.grows and not self._is_lag:
            self._begin = self.needed(items)
            for each in items[self._begin :]:
                self._add(each)

    def needed(self, items: list[Row]) -> int:
        """Returns the position of the first row that a later frame can have."""
        size = self._over.preceding
        if size is None or not items:
            return len(items)
        if self._over.unit == "ROWS":
            return max(0, len(items) - size)
        least = items[-1][0] - size
        first = self._begin
        while first < len(items) and items[first][0] < least:
            first += 1
        return first

    def results(self, items: list[Row], start: int, group: list[Row]) -> list[Any]:
        """Returns the results for rows of one time, which are the items from `start` on."""
        if self._is_lag:
            return [self._lagged(items, start + i, row) for i, row in enumerate(group)]
        assert self.slider is not None
        size = self._over.preceding
        if self._over.unit == "RANGE":
            for each in items[start:]:
                self._add(each)
            while size is not None and items[self._begin][0] < items[-1][0] - size:
                self._remove(items)
            return [self.slider.result_or_failure()] * len(group)
        found = []
        for at in range(start, len(items)):
            self._add(items[at])
            while size is not None and at - self._begin > size:
                self._remove(items)
            found.append(self.slider.result_or_failure())
        return found

    def _lagged(self, items: list[Row], at: int, row: Row) -> Any:
        distance = self._over.preceding or 0
        if at >= distance:
            return items[at - distance][self._place]
        return None if self._over.default is None else row[self._over.default]

    def _add(self, item: Row) -> None:
        assert self.slider is not None
        if item[self._place] is not None:
            self.slider.add(item[self._place])

    def _remove(self, items: list[Row]) -> None:
        assert self.slider is not None
        value = items[self._begin][self._place]
        if value is not None:
            self.slider.remove(value)
        self._begin += 1


def _as_text(state: Any) -> Any:
    """The state with numbers of more than 64 bits as text."""
    if isinstance(state, (list, tuple)):
        return [_as_text(each) for each in state]
    is_long = isinstance(state, int) and not -(1 << 63) <= state < 1 << 64
    return str(state) if is_long else state
