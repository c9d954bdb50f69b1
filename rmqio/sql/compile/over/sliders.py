"""Aggregates over values that come at the end and go at the beginning. NULLs never come: they do not count."""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal
from typing import Any

from rmqio.sql import types
from rmqio.sql.compile.aggregates.aggregation import accumulator
from rmqio.sql.compile.aggregates.exact_floats import merged_floats
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.rows import type_hint
from rmqio.sql.types import SqlType
from rmqio.sql.values import DECIMALS, ValueFailure, in_order


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
