"""OVER: functions over the rows of a partition, before a row as they come in order of time, or of all its rows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import msgspec

from rmqio.sql import types
from rmqio.sql.compile.accumulators import merged_floats
from rmqio.sql.compile.aggregation import accumulator
from rmqio.sql.planning.plan import AggregateCall, Field
from rmqio.sql.planning.relations import AnalyticCall, OverCall
from rmqio.sql.rows import pack, type_hint
from rmqio.sql.types import SqlType
from rmqio.sql.values import DECIMALS, ValueFailure, in_order

# Aggregates over values that come at the end and go at the beginning. NULLs never come: they do not count.


class Slider:
    """One aggregate.

    Attributes:
      state: what it holds. Small, if no value is ever removed.
      hint: the type of what is saved of it, for msgspec.
    """

    state: Any
    hint: Any

    def add(self, value: Any) -> None:
        """Adds a value at the end."""
        raise NotImplementedError

    def remove(self, value: Any) -> None:
        """Removes the first value, which is this one."""
        raise NotImplementedError

    def result(self) -> Any:
        """Returns the result. Raises `ValueFailure` if it is out of range."""
        raise NotImplementedError

    def result_or_failure(self) -> Any:
        """Returns the result, or why there is none: other rows of the partition have theirs."""
        try:
            return self.result()
        except ValueFailure as failure:
            return failure

    def saved(self) -> Any:
        """Returns what `restore` takes, of an aggregate that grows."""
        return self.state

    def restore(self, state: Any) -> None:
        """Goes on with what was saved."""
        self.state = state


def slider(call: AggregateCall, argument: SqlType | None, *, grows: bool) -> Slider:
    """Returns the aggregate of a call. `grows`: no value is ever removed."""
    if call.name == "COUNT" or argument is None:
        return _Count()
    if call.name in ("SUM", "AVG"):
        kind = _Floats if argument.kind in types.APPROXIMATE else _Exact
        return kind(call, argument)
    return _Place(call.name, argument, grows=grows)


class _Count(Slider):
    hint = int

    def __init__(self) -> None:
        self.state = 0

    def add(self, value: Any) -> None:
        self.state += 1

    def remove(self, value: Any) -> None:
        self.state -= 1

    def result(self) -> int:
        return int(self.state)


class _Exact(Slider):
    """SUM and AVG of whole numbers and decimals."""

    def __init__(self, call: AggregateCall, argument: SqlType) -> None:
        self._finish = accumulator(call, argument).finish
        self._is_average = call.name == "AVG"
        self._is_decimal = argument.kind == "DECIMAL"
        self.state = [0, Decimal(0) if self._is_decimal else 0]
        self.hint = tuple[int, Decimal] if self._is_decimal else tuple[int, int | str]

    def add(self, value: Any) -> None:
        count, total = self.state
        self.state = [count + 1, DECIMALS.add(total, value) if self._is_decimal else int(total) + value]

    def remove(self, value: Any) -> None:
        count, total = self.state
        self.state = [count - 1, DECIMALS.subtract(total, value) if self._is_decimal else int(total) - value]

    def result(self) -> Any:
        count, total = self.state
        if self._is_average:
            return self._finish([count, total])
        return self._finish(total if count else None)


class _Floats(Slider):
    """SUM and AVG of floats: the sum is exact, so that a value can be taken away. NaN and infinities are counted."""

    hint = tuple[int, list[float], list[int]]

    def __init__(self, call: AggregateCall, argument: SqlType) -> None:
        self._finish = accumulator(call, argument).finish
        self._is_average = call.name == "AVG"
        self.state = [0, [], [0, 0, 0]]

    def add(self, value: Any) -> None:
        self._change(value, 1)

    def remove(self, value: Any) -> None:
        self._change(value, -1)

    def _change(self, value: float, by: int) -> None:
        count, partials, odd = self.state
        if math.isfinite(value):
            partials = merged_floats(list(partials), [value * by])
        else:
            odd[_ODD.index(str(value))] += by
        self.state = [count + by, partials, odd]

    def result(self) -> Any:
        count, partials, odd = self.state
        if not count:
            return None
        numbers = [*partials, *(float(each) for each, times in zip(_ODD, odd, strict=True) if times)]
        return self._finish([count, numbers] if self._is_average else numbers)


_ODD = ("nan", "inf", "-inf")


class _Place(Slider):
    """MIN, MAX, FIRST_VALUE and LAST_VALUE: values that can still be the result, each with its number."""

    def __init__(self, name: str, argument: SqlType, *, grows: bool) -> None:
        self._name, self._grows = name, grows
        self._come = self._gone = 0
        self.state: deque[tuple[int, Any]] = deque()
        self.hint = list[tuple[int, type_hint(argument)]]  # type: ignore[misc]

    def add(self, value: Any) -> None:
        if self._name in ("MIN", "MAX"):
            while self.state and self._replaces(value, self.state[-1][1]):
                self.state.pop()
        elif self._name == "LAST_VALUE":
            self.state.clear()
        if not self._grows or not self.state:
            self.state.append((self._come, value))
        self._come += 1

    def _replaces(self, value: Any, before: Any) -> bool:
        if not value or value != value or before != before:  # 0.0 and -0.0, NaN
            value, before = in_order(value), in_order(before)
        return bool(value < before if self._name == "MIN" else value > before)

    def remove(self, value: Any) -> None:
        self._gone += 1
        if self.state and self.state[0][0] < self._gone:
            self.state.popleft()

    def result(self) -> Any:
        return self.state[0][1] if self.state else None

    def saved(self) -> Any:
        return list(self.state)

    def restore(self, state: Any) -> None:
        self.state = deque(state)
        self._come = state[-1][0] + 1 if state else 0


# Functions over the rows of a partition that has all its rows, in order.


class Peers:
    """The rows of a partition that are equal in its order.

    Attributes:
      first, end: by row, the position of its first peer, and the one after the last.
      number: by row, how many groups of peers stand before its own.
    """

    def __init__(self, keys: Sequence[Any]) -> None:
        self.first, self.end, self.number = [], [], []  # type: list[int], list[int], list[int]
        start = 0
        while start < len(keys):
            end = start + 1
            while end < len(keys) and keys[end] == keys[start]:
                end += 1
            number = self.number[-1] + 1 if self.number else 0
            self.first += [start] * (end - start)
            self.end += [end] * (end - start)
            self.number += [number] * (end - start)
            start = end


def results(given: AnalyticCall, fields: Sequence[Field], rows: Sequence[Row], peers: Peers) -> list[Any]:
    """Returns the result for each row: a `ValueFailure` if a sum is out of range."""
    name = given.call.name
    if name in _RANKS:
        return _RANKS[name](peers)
    if name == "NTILE":
        return _tiles(len(rows), given.number)
    if name in ("LAG", "LEAD"):
        return _shifted(given, rows)
    return _framed(given, fields, rows, peers)


def _percent(peers: Peers) -> list[float]:
    count = len(peers.first)
    return [first / (count - 1) if count > 1 else 0.0 for first in peers.first]


_RANKS: dict[str, Callable[[Peers], list[Any]]] = {
    "ROW_NUMBER": lambda peers: list(range(1, len(peers.first) + 1)),
    "RANK": lambda peers: [each + 1 for each in peers.first],
    "DENSE_RANK": lambda peers: [each + 1 for each in peers.number],
    "PERCENT_RANK": _percent,
    "CUME_DIST": lambda peers: [each / len(peers.end) for each in peers.end],
}


def _tiles(count: int, groups: int) -> list[int]:
    """The first groups have a row more than the others."""
    size, more = divmod(count, groups)
    found: list[int] = []
    for number in range(1, min(groups, count) + 1):
        found += [number] * (size + (number <= more))
    return found


def _shifted(given: AnalyticCall, rows: Sequence[Row]) -> list[Any]:
    assert given.call.argument is not None
    by = -given.number if given.call.name == "LAG" else given.number
    found = []
    for position, row in enumerate(rows):
        at = position + by
        if 0 <= at < len(rows):
            found.append(rows[at][given.call.argument])
        else:
            found.append(None if given.default is None else row[given.default])
    return found


def _framed(given: AnalyticCall, fields: Sequence[Field], rows: Sequence[Row], peers: Peers) -> list[Any]:
    call = given.call
    argument = None if call.argument is None else fields[call.argument].type
    aggregate = slider(call, argument, grows=False)
    values = [_value(given, row) for row in rows]
    found = []
    begin = end = 0
    for position in range(len(rows)):
        first, last = _bounds(given, position, len(rows), peers)
        for each in values[end:last]:
            if each is not None:
                aggregate.add(each)
        for each in values[begin:first]:
            if each is not None:
                aggregate.remove(each)
        begin, end = max(begin, first), max(end, last)
        found.append(aggregate.result_or_failure())
    return found


def _value(given: AnalyticCall, row: Row) -> Any:
    call = given.call
    if call.condition is not None and not row[call.condition]:
        return None
    found = True if call.argument is None else row[call.argument]
    return None if found is None else True if call.name == "COUNT" else found


def _bounds(given: AnalyticCall, position: int, count: int, peers: Peers) -> tuple[int, int]:
    """The position of the first row of a frame, and the one after its last."""
    if given.unit == "RANGE":
        return 0 if given.start is None else peers.first[position], count if given.end is None else peers.end[position]
    first = 0 if given.start is None else min(max(position + given.start, 0), count)
    last = count if given.end is None else min(max(position + given.end + 1, 0), count)
    return first, last


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
