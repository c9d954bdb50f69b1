"""Values of Python as values of SQL, and back. Type hints promise nothing: what does not fit them is a bad row."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql import values
from rmqio.sql.compile.expressions.casts import single
from rmqio.sql.transform.row_types import row_type
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure, shown_value, well_formed

Convert = Callable[[Any], Any]
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
                if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
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
            return _row(kind)
        case "DECIMAL":
            return _decimal(kind)
    read = _SCALARS[kind.kind]
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
    is_number = isinstance(value, (int, np.integer, np.floating)) and not isinstance(value, bool)
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
    return well_formed(str(value)) if isinstance(value, str) else None


def _bytes(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else None


def _instant(value: Any) -> int | None:
    if isinstance(value, Timestamp):
        return values.in_years(int(value.micros))
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        try:
            return values.micros_of(value.astimezone(dt.UTC).replace(tzinfo=None))
        except OverflowError:
            raise ValueFailure(f"{value} is not in the years 1 to 9999 of UTC") from None
    return None


def _timestamp(value: Any) -> int | None:
    is_local = isinstance(value, dt.datetime) and value.tzinfo is None
    return values.micros_of(value) if is_local else None


def _date(value: Any) -> int | None:
    return values.days_of(value) if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _time(value: Any) -> int | None:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        return None
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


_SCALARS: Final[dict[str, Convert]] = {
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


def _row(kind: SqlType) -> Convert:
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
