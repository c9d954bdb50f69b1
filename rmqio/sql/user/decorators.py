"""Decorators that state SQL types, where Python's hints do not say enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

F = TypeVar("F")
ATTRIBUTE: Final = "__rmqio_sql__"


@dataclass(frozen=True, slots=True)
class Stated:
    """The types that a decorator states. None: the hints say it."""

    kind: str
    input_types: tuple[str, ...] | None
    result_types: tuple[str, ...] | None
    names: tuple[str, ...] | None = None
    accumulator: Any = None
    is_deterministic: bool = False


def udf(
    *, result_type: str | None = None, input_types: Sequence[str] | None = None, deterministic: bool = False
) -> Callable[[F], F]:
    """States the types of a scalar function in SQL: `@udf(result_type="DECIMAL(10, 2)")`.

    Args:
      result_type: the type of the result; None: its hint says it.
      input_types: the types of the parameters; None: their hints say them. A parameter without a hint can be NULL.
      deterministic: the function gives the same result for the same arguments: equal calls are evaluated once.
    """
    result = None if result_type is None else (result_type,)
    return _stating(Stated("scalar", _texts(input_types), result, is_deterministic=deterministic))


def udtf(
    *,
    result_types: Sequence[str] | None = None,
    input_types: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> Callable[[F], F]:
    """States the types of a table function, and that the function is one: its result can be any iterable.

    Args:
      result_types: the types of the columns; None: the hint of the result says them.
      input_types: as for `udf`.
      names: the names of the columns.
    """
    return _stating(Stated("table", _texts(input_types), _texts(result_types), _texts(names)))


def udaf(
    *, result_type: str | None = None, input_types: Sequence[str] | None = None, accumulator: Any = None
) -> Callable[[F], F]:
    """States the types of an aggregate function, which is a class.

    Args:
      result_type, input_types: as for `udf`.
      accumulator: the Python type of accumulators, such as `tuple[int, float]`; None: `create_accumulator` has a hint.
    """
    result = None if result_type is None else (result_type,)
    return _stating(Stated("aggregate", _texts(input_types), result, accumulator=accumulator))


def _texts(given: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise TypeError(f"types must be a list, not {given!r}: write [{given!r}]")
    return None if given is None else tuple(given)


def _stating(stated: Stated) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        setattr(function, ATTRIBUTE, stated)
        return function

    return decorate
