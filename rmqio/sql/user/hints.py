"""Python's type hints as types of SQL, and decorators that state types where hints do not say enough."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import types as python_types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from rmqio.sql import types
from rmqio.sql.types import SqlType

# Decorators that state SQL types, where Python's hints do not say enough.

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


MICROSECONDS: Final = 6
DECIMAL: Final = types.decimal(types.MAX_DECIMAL, 18)
_SIMPLE: Final[dict[Any, SqlType]] = {
    int: types.BIGINT, str: types.VARCHAR, float: types.DOUBLE, bool: types.BOOLEAN, bytes: types.BYTES,
    Decimal: DECIMAL, datetime.date: types.DATE, datetime.time: SqlType("TIME", precision=MICROSECONDS),
    datetime.datetime: SqlType("TIMESTAMP", precision=MICROSECONDS),
}  # fmt: skip
_LISTS: Final = (list, collections.abc.Sequence)
_DICTS: Final = (dict, collections.abc.Mapping)
_ITERABLES: Final = (
    collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator, collections.abc.Collection,
)  # fmt: skip


class HintError(Exception):
    """A hint that is not a type of SQL; the text says which one, and what would be one."""


def without_none(hint: Any) -> tuple[Any, bool]:
    """Returns the hint without `| None`, and whether it had that."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, python_types.UnionType):
        others = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(others) == 1 and len(typing.get_args(hint)) == 2:
            return without_none(others[0])[0], True
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint, False


def sql_type(hint: Any) -> SqlType:
    """Returns the type of SQL; it can be NULL if the hint has `| None`. Raises `HintError` if there is none."""
    inner, is_nullable = without_none(hint)
    return _sql_type(inner, hint).nullable(is_nullable)


def _sql_type(inner: Any, hint: Any) -> SqlType:
    if isinstance(inner, typing.Hashable) and inner in _SIMPLE:
        return _SIMPLE[inner]
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin in _LISTS and len(arguments) == 1:
        return types.array_of(_inside(arguments[0]))
    if origin in _DICTS and len(arguments) == 2:
        return SqlType("MAP", elements=tuple(map(_inside, arguments)))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return types.array_of(_inside(arguments[0]))
    if origin is tuple and arguments:
        return row_of([(f"f{position}", each) for position, each in enumerate(arguments)])
    if (fields := fields_of(inner)) is not None:
        return row_of(fields)
    raise HintError(f"{shown_hint(hint)} is not a type of SQL{_instead(inner)}")


def _inside(hint: Any) -> SqlType:
    """Whatever is inside of an array, a map or a row can be NULL."""
    return sql_type(hint).nullable()


def row_of(fields: list[tuple[str, Any]]) -> SqlType:
    """Returns the ROW of these fields."""
    return SqlType("ROW", elements=tuple(_inside(each) for _, each in fields), names=tuple(name for name, _ in fields))


def fields_of(hint: Any) -> list[tuple[str, Any]] | None:
    """Returns names and hints of a NamedTuple or a dataclass; None: it is neither."""
    if not isinstance(hint, type):
        return None
    if dataclasses.is_dataclass(hint):
        hints = resolved_hints(hint)
        return [(each.name, hints[each.name]) for each in dataclasses.fields(hint)]
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = resolved_hints(hint)
        return [(name, hints[name]) for name in hint._fields if name in hints] or None
    return None


def row_hint(hint: Any) -> Any:
    """Returns of what a table function's result is an iterable; None: it is none."""
    inner, _ = without_none(hint)
    if typing.get_origin(inner) in _ITERABLES:
        return typing.get_args(inner)[0]
    return None


def is_iterable(hint: Any) -> bool:
    """Returns whether the hint is that of a table function: an `Iterator`, with or without its elements."""
    inner, _ = without_none(hint)
    return inner in _ITERABLES or typing.get_origin(inner) in _ITERABLES


def resolved_hints(of: Any) -> dict[str, Any]:
    """Returns the hints, those that are text evaluated. Raises `HintError` if one names nothing."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise HintError(f"its type hints cannot be resolved: {error}") from None


def shown_hint(hint: Any) -> str:
    """Returns a hint as Python writes it."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _instead(inner: Any) -> str:
    if inner in (list, tuple):
        return ": say of what, such as list[str]"
    if inner is dict:
        return ": say of what, such as dict[str, int]"
    return "; there are int, str, float, bool, bytes, Decimal, date, time, datetime, list, dict, NamedTuple, dataclass"
