"""FIRST_VALUE and LAST_VALUE: the accumulator is the value with the time of its row, or None.

Rows of a group come in no order, so their times decide. Values of one time are in the order of their queue, if the rows
have offsets, and then of their bytes: the result does not depend on how rows are cut into batches.
"""

from __future__ import annotations

from typing import Any

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.rows import pack, type_hint
from rmqio.sql.types import SqlType


def value_by_time(name: str, argument: SqlType) -> Accumulator:
    """Returns how the function accumulates. The argument is ROW(value, time, offset), or has no offset.

    A value that is NULL does not count.
    """
    sign = "<" if name == "FIRST_VALUE" else ">"
    wins = _is_less if name == "FIRST_VALUE" else _is_greater

    def merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        if one[1] == other[1]:
            return other if wins(other, one) else one
        return other if (other[1] < one[1]) == (sign == "<") else one

    kind: Any = tuple[tuple(map(type_hint, argument.elements))]  # type: ignore[misc]
    return Accumulator(
        "None",
        "if {value}[0] is not None and ({acc} is None "
        f"or {{value}}[1] {sign} {{acc}}[1] "
        "or ({value}[1] == {acc}[1] and {wins}({value}, {acc}))): {acc} = {value}",
        kind | None,
        merge,
        lambda acc: None if acc is None else acc[0],
        {"wins": wins},
    )


def _is_less(row: Any, other: Any) -> bool:
    return _order(row) < _order(other)


def _is_greater(row: Any, other: Any) -> bool:
    return _order(row) > _order(other)


def _order(row: Any) -> tuple[Any, bytes]:
    return row[2:], pack(row[0])
