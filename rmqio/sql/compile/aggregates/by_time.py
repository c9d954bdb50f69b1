"""FIRST_VALUE and LAST_VALUE: the accumulator is the value with the time of its row, or None.

Rows of a group come in no order, so their times decide. Values of one time are ordered by their bytes: the result does
not depend on how rows are cut into batches.
"""

from __future__ import annotations

from typing import Any

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.rows import pack, type_hint
from rmqio.sql.types import SqlType


def value_by_time(name: str, argument: SqlType) -> Accumulator:
    """Returns how the function accumulates. The argument is ROW(value, time); a value that is NULL does not count."""
    sign = "<" if name == "FIRST_VALUE" else ">"
    wins = _is_less if name == "FIRST_VALUE" else _is_greater

    def merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        if one[1] == other[1]:
            return other if wins(other[0], one[0]) else one
        return other if (other[1] < one[1]) == (sign == "<") else one

    kind: Any = tuple[type_hint(argument.elements[0]), int]  # type: ignore[misc]
    return Accumulator(
        "None",
        "if {value}[0] is not None and ({acc} is None "
        f"or {{value}}[1] {sign} {{acc}}[1] "
        "or ({value}[1] == {acc}[1] and {wins}({value}[0], {acc}[0]))): {acc} = {value}",
        kind | None,
        merge,
        lambda acc: None if acc is None else acc[0],
        {"wins": wins},
    )


def _is_less(value: Any, other: Any) -> bool:
    return pack(value) < pack(other)


def _is_greater(value: Any, other: Any) -> bool:
    return pack(value) > pack(other)
