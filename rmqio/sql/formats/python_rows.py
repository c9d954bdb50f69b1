"""Rows that are not bytes: dicts of Python's values, as Parquet files and SQL databases give them.

A database can keep dates, numbers and truth as text or numbers (SQLite does), so text is converted as in CSV. A
timestamp with a zone is an instant, and a time with one becomes UTC; a timestamp without a zone is UTC where the column
is TIMESTAMP_LTZ.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.casts import single
from rmqio.sql.formats import texts
from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, reason_of, required, whole
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, ValueFailure, shown_value

_MICROSECOND: Final = dt.timedelta(microseconds=1)
_ZONE: Final = re.compile(r"(?:Z|:\d\d(?:\.\d+)?[+-]\d\d:?\d\d)\s*$")


class RowDecoder:
    """See `formats.base.Decoder`. A body is a dict of the row's values by name."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._converters = [_or_null(converter(each.type)) for each in fields]
        self.columns: Sequence[str] = [
            "{}" + f"[{each.name!r}]".replace("{", "{{").replace("}", "}}") for each in fields
        ]
        self.converters: Sequence[Convert | None] = [
            required(each.type, convert) for each, convert in zip(fields, self._converters, strict=True)
        ]
        self._nullable = all(each.type.is_nullable for each in fields)

    def fast(self, body: Any) -> Any:
        """Returns the row. Raises `ValueError` if a column that is NOT NULL is NULL there."""
        if not self._nullable and any(body[each.name] is None for each in self._fields if not each.type.is_nullable):
            raise ValueError
        return body

    def exact(self, body: Any) -> tuple[Any, ...]:
        """Returns the SQL values of any row. Raises `RowFailure`."""
        row = []
        for each, convert in zip(self._fields, self._converters, strict=True):
            given = body[each.name]
            try:
                value = convert(given)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), each.name) from None
            if value is None and not each.type.is_nullable:
                why = "is NULL" if given is None else f"does not fit: {shown_value(given, str)}"
                raise RowFailure(f"it is NOT NULL, but {why}", each.name)
            row.append(value)
        return tuple(row)


def converter(kind: SqlType) -> Convert:
    """Returns what makes the SQL value of a value of Python that is not None. It raises `ValueFailure`."""
    if kind.kind in BITS:
        bits = BITS[kind.kind]
        return lambda given: _integer(given, bits)
    match kind.kind:
        case "VARCHAR":
            return _text
        case "BOOLEAN":
            return _boolean
        case "DOUBLE":
            return _double
        case "FLOAT":
            return lambda given: single(_double(given))
        case "DECIMAL":
            return _decimal(kind)
        case "VARBINARY":
            return _bytes
        case "DATE":
            return _date
        case "TIME":
            return lambda given: values.scaled_time(_time(given), kind.precision)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return lambda given: values.scaled_time(_timestamp(given, kind), kind.precision)
    return _nested(kind)


def _nested(kind: SqlType) -> Convert:
    parts = [_or_null(converter(each)) for each in kind.elements]
    match kind.kind:
        case "ARRAY" | "MULTISET":
            return lambda given: [parts[0](each) for each in _sequence(given)]
        case "MAP":
            return lambda given: {parts[0](key): parts[1](each) for key, each in _pairs(given)}
        case "ROW":
            names = kind.names
            return lambda given: tuple(part(_mapping(given).get(name)) for name, part in zip(names, parts, strict=True))
    raise ValueFailure(f"{kind.text} cannot be read from here")


def _or_null(convert: Convert) -> Callable[[Any], Any]:
    return lambda given: None if given is None else convert(given)


def _not(given: Any, wanted: str) -> ValueFailure:
    return ValueFailure(f"{shown_value(given, str)!r} is not {wanted}")


def _integer(given: Any, bits: int) -> int:
    if isinstance(given, int):
        return whole(int(given), bits)
    if isinstance(given, (float, Decimal)) and Decimal(given).is_finite() and given == int(given):
        return whole(int(given), bits)
    if isinstance(given, str):
        return texts.integer_of_text(given, bits)
    raise _not(given, "a whole number")


def _text(given: Any) -> str:
    if isinstance(given, str):
        return values.well_formed(str.__str__(given))
    if isinstance(given, (dict, list)):  # a column of JSON
        return values.well_formed(json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    if isinstance(given, (bytes, bytearray, memoryview)):
        try:
            return bytes(given).decode()
        except UnicodeDecodeError:
            raise ValueFailure("these bytes are not UTF-8 text: declare the column BYTES") from None
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Decimal):
        return format(given, "f")
    try:
        return str(given)
    except ValueError:  # Python writes no more than 4,300 digits
        raise _not(given, "a text: it has too many digits") from None


def _boolean(given: Any) -> bool:
    if type(given) is bool:
        return given
    if isinstance(given, str):
        return texts.boolean_of_text(given)
    with contextlib.suppress(TypeError, ArithmeticError):  # some values compare with none, as Decimal("sNaN")
        if given in (0, 1, b"\0", b"\1"):
            return given in (1, b"\1")
    raise _not(given, "a boolean")


def _double(given: Any) -> float:
    if isinstance(given, (int, float, Decimal)):
        try:
            return float(given)
        except (OverflowError, ValueError):  # of hundreds of digits, sNaN
            raise ValueFailure(f"{shown_value(given, str)} is out of range of DOUBLE") from None
    if isinstance(given, str):
        return values.double_of_text(given)
    raise _not(given, "a number")


def _decimal(kind: SqlType) -> Convert:
    make, read = texts.decimal_maker(kind), texts.decimal_reader(kind)

    def of(given: Any) -> Decimal | None:
        if isinstance(given, str):
            return read(given)
        if isinstance(given, (float, Decimal)) and not Decimal(given).is_finite():  # PostgreSQL's NaN
            raise ValueFailure(f"{given} does not fit into {kind.text}")
        if isinstance(given, float):
            given = repr(float(given))
        if isinstance(given, (int, Decimal, str)):
            return make(given)
        raise _not(given, "a number")

    return of


def _bytes(given: Any) -> bytes:
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, uuid.UUID):
        return given.bytes
    if isinstance(given, str):
        return given.encode()
    raise _not(given, "bytes")


def _date(given: Any) -> int:
    if isinstance(given, dt.datetime):
        return _timestamp(given, None) // DAY_US
    if isinstance(given, dt.date):
        return values.days_of(given)
    if isinstance(given, str):
        return texts.date_of_text(given)
    raise _not(given, "a date")


def _time(given: Any) -> int:
    if isinstance(given, dt.time):
        micros = ((given.hour * 60 + given.minute) * 60 + given.second) * 1_000_000 + given.microsecond
        if given.tzinfo is None:
            return micros
        offset = given.utcoffset()
        if offset is None:
            raise _not(given, f"a time of day in UTC: {given.tzinfo} has no offset without a date")
        return (micros - offset // _MICROSECOND) % DAY_US
    if isinstance(given, dt.timedelta):  # MySQL's
        micros = given // _MICROSECOND
        if not 0 <= micros < DAY_US:
            raise _not(given, "a time of day")
        return micros
    if isinstance(given, str):
        return values.time_of_text(given)
    raise _not(given, "a time of day")


def _timestamp(given: Any, kind: SqlType | None) -> int:
    moment = values.plain_datetime(given) if isinstance(given, dt.datetime) else None
    if moment is not None:
        return values.micros_of(moment) if moment.tzinfo is None else values.instant_of(moment)
    if isinstance(given, dt.date) and not isinstance(given, dt.datetime):
        return values.days_of(given) * DAY_US
    if isinstance(given, str):
        has_zone = kind is not None and kind.kind == "TIMESTAMP_LTZ" and _ZONE.search(given) is not None
        return values.instant_of_text(given) if has_zone else texts.timestamp_of_text(given)
    raise _not(given, "a timestamp")


def _sequence(given: Any) -> Sequence[Any]:
    if isinstance(given, str):
        given = _parsed(given)
    if not isinstance(given, (list, tuple)):
        raise _not(given, "an array")
    return given


def _pairs(given: Any) -> Any:
    if isinstance(given, str):
        given = _parsed(given)
    return given.items() if isinstance(given, dict) else _sequence(given)


def _mapping(given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):
        given = _parsed(given)
    if not isinstance(given, dict):
        raise _not(given, "a row")
    return given


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _not(text, "JSON") from None
