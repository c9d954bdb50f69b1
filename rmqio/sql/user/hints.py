"""Python's type hints as types of SQL."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import types as python_types
import typing
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.types import SqlType

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
    raise HintError(f"{shown(hint)} is not a type of SQL{_instead(inner)}")


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


def shown(hint: Any) -> str:
    """Returns a hint as Python writes it."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _instead(inner: Any) -> str:
    if inner in (list, tuple):
        return ": say of what, such as list[str]"
    if inner is dict:
        return ": say of what, such as dict[str, int]"
    return "; there are int, str, float, bool, bytes, Decimal, date, time, datetime, list, dict, NamedTuple, dataclass"
