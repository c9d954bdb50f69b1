"""Types of Python as types of SQL, and back: the schema of a PCollection as columns, and columns as a NamedTuple."""

from __future__ import annotations

import contextlib
import datetime
import keyword
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, Optional

import numpy as np
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql import types
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Field
from rmqio.sql.transform.beam import fields_of, typing_type
from rmqio.sql.types import SqlType

_SCALARS: Final[dict[Any, SqlType]] = {
    bool: types.BOOLEAN, np.bool_: types.BOOLEAN, int: types.BIGINT, np.int64: types.BIGINT, np.int32: types.INTEGER,
    np.int16: types.SMALLINT, np.int8: types.TINYINT, float: types.DOUBLE, np.float64: types.DOUBLE,
    np.float32: types.FLOAT, str: types.VARCHAR, bytes: types.BYTES, Decimal: types.decimal(38, 18),
    Timestamp: SqlType("TIMESTAMP_LTZ", precision=6), datetime.datetime: SqlType("TIMESTAMP", precision=6),
    datetime.date: types.DATE, datetime.time: SqlType("TIME", precision=6),
}  # fmt: skip
_PYTHON: Final[dict[str, Any]] = {
    "BOOLEAN": bool, "TINYINT": np.int8, "SMALLINT": np.int16, "INTEGER": np.int32, "BIGINT": int, "FLOAT": np.float32,
    "DOUBLE": float, "VARCHAR": str, "VARBINARY": bytes, "DECIMAL": Decimal, "TIMESTAMP": Timestamp,
    "TIMESTAMP_LTZ": Timestamp, "DATE": datetime.date, "TIME": str,
}  # fmt: skip


class NoType(Exception):
    """A type of Python that SQL does not have."""


def columns_of(element_type: Any, table: str) -> list[tuple[str, SqlType]]:
    """Returns the columns of elements with a schema. Raises `Refusal` if they have none."""
    row = _row_of(element_type)
    if row is None:
        raise Refusal(
            f"the elements of {table} have no schema: they are {_shown(element_type)}. Make them beam.Row(...), or a "
            "NamedTuple that is given with .with_output_types(...)",
            None,
        )
    columns = []
    for name, kind in row:
        try:
            columns.append((name, sql_type(kind)))
        except NoType as error:
            raise Refusal(f"the column {name} of {table} is {error}", None) from None
    if not columns:
        raise Refusal(f"the elements of {table} have no columns", None)
    return columns


def _row_of(kind: Any) -> list[tuple[str, Any]] | None:
    found = kind if isinstance(kind, RowTypeConstraint) else None
    if found is None and isinstance(kind, type):
        found = RowTypeConstraint.from_user_type(kind)
    if found is None:
        return None
    declared = fields_of(found)
    fields = dict(declared)
    if any(
        isinstance(each, (str, typing.ForwardRef)) for each in fields.values()
    ):  # `from __future__ import annotations`
        with contextlib.suppress(NameError, TypeError):  # a name that is only known where the class is
            fields |= typing.get_type_hints(found.user_type)
    return [(name, fields[name]) for name, _ in declared]


def sql_type(kind: Any) -> SqlType:
    """Returns the type of SQL, NOT NULL unless it is Optional. Raises `NoType` if there is none."""
    row = _row_of(kind)
    if row is not None:
        elements = tuple(sql_type(each) for _, each in row)
        return SqlType("ROW", False, elements=elements, names=tuple(name for name, _ in row))
    kind = typing_type(kind)
    if isinstance(kind, typing.NewType):
        return sql_type(kind.__supertype__)
    if found := _SCALARS.get(kind) if not isinstance(kind, RowTypeConstraint) else None:
        return found.nullable(False)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, getattr(__import__("types"), "UnionType", None)):
        others = [each for each in arguments if each is not type(None)]
        if len(others) == 1 and len(others) < len(arguments):
            return sql_type(others[0]).nullable()
        raise NoType(f"{_shown(kind)}: a column of SQL has one type")
    if origin in (list, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        return types.array_of(sql_type(arguments[0]), False)
    if origin in (dict, Mapping):
        return SqlType("MAP", False, elements=(sql_type(arguments[0]), sql_type(arguments[1])))
    if kind in (Any, typing.Any, object):
        raise NoType("of type Any: declare its type, for example in a NamedTuple for .with_output_types(...)")
    known = "bool, int, float, str, bytes, Decimal, Timestamp, date, datetime, time, Sequence, Mapping and rows"
    raise NoType(f"{_shown(kind)}, which SQL does not have; it has {known}")


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)


def python_type(kind: SqlType) -> Any:
    """Returns the type of Python for values of a column. Raises `NoType` if there is none."""
    match kind.kind:
        case "ARRAY":
            found: Any = Sequence[python_type(kind.elements[0])]  # type: ignore[misc]
        case "MAP":
            key = kind.elements[0].nullable(False)
            found = Mapping[python_type(key), python_type(kind.elements[1])]  # type: ignore[misc]
        case "ROW":
            for name in kind.names:
                require_name(name, f"the field {name}")
            found = row_type(tuple(zip(kind.names, kind.elements, strict=True)))
        case _ if kind.kind in _PYTHON:
            found = _PYTHON[kind.kind]
        case _:
            raise NoType(f"{kind.text}, which has no type in Python: use CAST")
    return Optional[found] if kind.is_nullable else found  # noqa: UP045 - Beam looks for it


def require_names(fields: Sequence[Field]) -> None:
    """Raises `Refusal` unless each column has a name that Python can use, and a type that it has."""
    seen: set[str] = set()
    for position, each in enumerate(fields, 1):
        if each.name.startswith("EXPR$"):
            raise Refusal(f"column {position} of the result has no name: give it one with AS", None)
        if each.name in seen:
            raise Refusal(f"the result has two columns {each.name}: give one another name with AS", None)
        seen.add(each.name)
        try:
            require_name(each.name, f"the column {each.name}")
            python_type(each.type)
        except NoType as error:
            raise Refusal(f"the column {each.name} is {error}", None) from None


def require_name(name: str, what: str) -> None:
    """Raises `Refusal` unless the name can be the field of a NamedTuple."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise Refusal(f"{what} has no name that a field in Python can have: give it another one with AS", None)


Spec = tuple[tuple[str, SqlType], ...]


@lru_cache(maxsize=500)
def row_type(spec: Spec) -> Any:
    """Returns the NamedTuple of rows with these columns."""
    fields = [(name, python_type(kind)) for name, kind in spec]
    made: Any = NamedTuple("SqlRow", fields)  # type: ignore[misc]
    # The class is nowhere to be imported from.
    made.__reduce__ = lambda row: _reduced(spec, row)  # type: ignore[method-assign, assignment]
    return made


def _reduced(spec: Spec, row: Any) -> tuple[Any, ...]:
    return _row, (spec, tuple(row))


def _row(spec: Spec, values: tuple[Any, ...]) -> Any:
    return row_type(spec)(*values)
