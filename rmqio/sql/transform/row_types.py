"""Types and values of Python as those of SQL, and back. Hints promise nothing: what does not fit them is a bad row."""

from __future__ import annotations

import contextlib
import datetime
import datetime as dt
import keyword
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, Optional

import numpy as np
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql import types, values
from rmqio.sql.casts import single
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Field
from rmqio.sql.transform.beam import fields_of, typing_type
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure, shown_value, well_formed

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


# Values of Python as values of SQL, and back. Type hints promise nothing: what does not fit them is a bad row.

Convert = Callable[[Any], Any]
_NO_NUMBERS: Final = (bool, np.timedelta64)
"""Integers to Python or NumPy, which are no numbers of SQL."""
_NAMES: Final = {
    "BOOLEAN": "bool", "FLOAT": "float", "DOUBLE": "float", "VARCHAR": "str", "VARBINARY": "bytes",
    "DECIMAL": "Decimal", "TIMESTAMP": "datetime without a zone", "TIMESTAMP_LTZ": "Timestamp", "DATE": "date",
    "TIME": "time", "ARRAY": "sequence", "MAP": "mapping", "ROW": "row",
}  # fmt: skip


def reader(kind: SqlType) -> Convert:
    """Returns what makes the SQL value of one of Python, which is not None. It raises `ValueFailure`."""
    if kind.kind in BITS:
        bits = BITS[kind.kind]

        def whole(value: Any) -> int:
            if type(value) is not int:
                if isinstance(value, _NO_NUMBERS) or not isinstance(value, (int, np.integer)):
                    raise _wrong(value, f"int of {bits} bits")
                value = int(value)
            return values.ranged(value, bits)

        return whole
    match kind.kind:
        case "ARRAY":
            return _array(kind)
        case "MAP":
            return _map(kind)
        case "ROW":
            return _row_reader(kind)
        case "DECIMAL":
            return _decimal(kind)
    read = _READERS[kind.kind]
    name = _NAMES[kind.kind]

    def of(value: Any) -> Any:
        found = read(value)
        if found is None:
            raise _wrong(value, name)
        return found

    return of


def _wrong(value: Any, wanted: str) -> ValueFailure:
    return ValueFailure(f"{shown_value(value)} is not a valid {wanted}")


def _boolean(value: Any) -> bool | None:
    return bool(value) if isinstance(value, (bool, np.bool_)) else None


def _double(value: Any) -> float | None:
    if isinstance(value, float):
        return float(value)
    is_number = isinstance(value, (int, np.integer, np.floating)) and not isinstance(value, _NO_NUMBERS)
    try:
        return float(value) if is_number else None
    except OverflowError:
        raise ValueFailure(f"{shown_value(value)} is out of range of DOUBLE") from None


def _float(value: Any) -> float | None:
    found = _double(value)
    if found is None:
        return None
    rounded = single(found)
    if math.isinf(rounded) and not math.isinf(found):
        raise ValueFailure(f"{found} is out of range of FLOAT")
    return rounded


def _text(value: Any) -> str | None:
    return well_formed(str.__str__(value)) if isinstance(value, str) else None  # an Enum's `__str__` is its name


def _bytes(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else None


def _instant(value: Any) -> int | None:
    if isinstance(value, Timestamp):
        return values.in_years(int(value.micros))
    moment = values.plain_datetime(value) if isinstance(value, dt.datetime) else None
    return None if moment is None or moment.tzinfo is None else values.instant_of(moment)


def _timestamp(value: Any) -> int | None:
    moment = values.plain_datetime(value) if isinstance(value, dt.datetime) else None
    return None if moment is None or moment.tzinfo is not None else values.micros_of(moment)


def _date(value: Any) -> int | None:
    return values.days_of(value) if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _time(value: Any) -> int | None:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        return None
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


_READERS: Final[dict[str, Convert]] = {
    "BOOLEAN": _boolean, "DOUBLE": _double, "FLOAT": _float, "VARCHAR": _text, "VARBINARY": _bytes, "DATE": _date,
    "TIME": _time, "TIMESTAMP": _timestamp, "TIMESTAMP_LTZ": _instant,
}  # fmt: skip


def _decimal(kind: SqlType) -> Convert:
    def of(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise _wrong(value, "Decimal")
        number = Decimal(value)
        found = values.rounded(number, kind.precision, kind.scale) if number.is_finite() else None
        if found is None:
            raise ValueFailure(f"{shown_value(value, str)} does not fit into {kind.text}")
        return found

    return of


def _optional(kind: SqlType) -> Convert:
    read = reader(kind)
    if kind.is_nullable:
        return lambda value: None if value is None else read(value)

    def of(value: Any) -> Any:
        if value is None:
            raise ValueFailure("it contains None, which its type does not allow")
        return read(value)

    return of


def _array(kind: SqlType) -> Convert:
    read = _optional(kind.elements[0])

    def of(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
            raise _wrong(value, "sequence")
        return [read(each) for each in value]

    return of


def _map(kind: SqlType) -> Convert:
    key, item = map(_optional, kind.elements)

    def of(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(value, "mapping")
        return {key(name): item(each) for name, each in value.items()}

    return of


def _row_reader(kind: SqlType) -> Convert:
    readers = [(name, _optional(each)) for name, each in zip(kind.names, kind.elements, strict=True)]

    def of(value: Any) -> tuple[Any, ...]:
        try:
            return tuple([read(getattr(value, name)) for name, read in readers])
        except AttributeError:
            raise _wrong(value, f"row with {', '.join(kind.names)}") from None

    return of


# ---- SQL to Python --------------------------------------------------------------------------------------------------


def writer(kind: SqlType) -> Convert | None:
    """Returns what makes the value of Python of one of SQL, which is not NULL; None: it is the same."""
    match kind.kind:
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return lambda micros: Timestamp(micros=micros)
        case "DATE":
            return values.date_of
        case "TIME":
            precision = kind.precision
            return lambda micros: values.text_of_time(micros, precision)
        case "ARRAY":
            inner = writer(kind.elements[0])
            return None if inner is None else lambda found: [None if each is None else inner(each) for each in found]
        case "MAP":
            return _map_writer(kind)
        case "ROW":
            return _row_writer(kind)
    return None


def _map_writer(kind: SqlType) -> Convert | None:
    key, item = map(writer, kind.elements)
    if key is None and item is None:
        return None
    key, item = key or _same, item or _same
    return lambda found: {key(name): None if each is None else item(each) for name, each in found.items()}


def _row_writer(kind: SqlType) -> Convert:
    made = row_type(tuple(zip(kind.names, kind.elements, strict=True)))
    writers = [writer(each) or _same for each in kind.elements]
    return lambda row: made(*[None if each is None else write(each) for write, each in zip(writers, row, strict=True)])


def _same(value: Any) -> Any:
    return value
