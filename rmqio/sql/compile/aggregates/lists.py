"""LISTAGG and ARRAY_AGG: their accumulators are the values, in the order in which rows and partial results come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.rows import once, type_hint
from rmqio.sql.types import SqlType


def list_of_texts(separator: str, *, is_distinct: bool) -> Accumulator:
    """Returns how LISTAGG accumulates."""
    return Accumulator(
        "[]",
        "{acc}.append({value})",
        list[str],
        both,
        _of_some(separator.join, is_distinct),
    )


def array_of_values(argument: SqlType, *, is_distinct: bool) -> Accumulator:
    """Returns how ARRAY_AGG accumulates. NULL is an element, as in Flink."""
    hint: Any = list[type_hint(argument) | None]  # type: ignore[misc]
    return Accumulator("[]", "{acc}.append({value})", hint, both, _of_some(list, is_distinct), takes_null=True)


def both(one: list[Any], other: list[Any]) -> list[Any]:
    """Returns the values of both."""
    return [*one, *other]


def _of_some(finish: Callable[[list[Any]], Any], is_distinct: bool) -> Callable[[list[Any]], Any]:
    def result(found: list[Any]) -> Any:
        if not found:
            return None
        return finish(list(dict.fromkeys(map(once, found))) if is_distinct else found)

    return result
