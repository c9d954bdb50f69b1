"""CAST at run time: a function for each pair of types. None as a result is NULL; NULL itself never comes in."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final, NoReturn

from rmqio.sql import types, values
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure

Caster = Callable[[Any], Any]


def caster(given: SqlType, wanted: SqlType) -> Caster:
    """Returns the function that converts a value. It raises `ValueFailure` where the value does not fit."""
    if wanted.kind == given.kind and wanted.elements:
        return _elementwise(given, wanted)
    if wanted.kind == "VARCHAR":
        return _of_length(text_of(given), wanted, " ")
    if wanted.kind in BITS:
        return _to_integer(given, BITS[wanted.kind])
    match wanted.kind:
        case "FLOAT" | "DOUBLE":
            to_double: Caster = values.double_of_text if given.kind == "VARCHAR" else _double
            return (lambda value: single(to_double(value))) if wanted.kind == "FLOAT" else to_double
        case "DECIMAL":
            return _to_decimal(given, wanted)
        case "BOOLEAN":
            return values.boolean_of_text if given.kind == "VARCHAR" else bool
        case "VARBINARY":
            return _of_length(_encoded if given.kind == "VARCHAR" else _same, wanted, b"\0")
        case "DATE":
            if given.kind == "VARCHAR":
                return values.date_of_text
            return (lambda micros: _local(given, micros) // values.DAY_US) if given.kind in types.TIMESTAMPS else _same
        case "TIME":
            if given.kind == "VARCHAR":
                return lambda text: values.scaled_time(values.time_of_text(text), wanted.precision)
            return lambda micros: values.scaled_time(_local(given, micros) % values.DAY_US, wanted.precision)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _to_timestamp(given, wanted)
    return _same


def _same(value: Any) -> Any:
    return value


_MOST_FILLED: Final = 1_000_000
"""Characters or bytes that CHAR and BINARY are filled up to, as LPAD."""


def _refuse_to_fill(wanted: SqlType, value: Any) -> NoReturn:
    raise ValueFailure(f"{wanted.text} is filled up to {wanted.precision} characters; at most a million are allowed")


def _of_length(convert: Caster, wanted: SqlType, filling: str | bytes) -> Caster:
    """Cuts text or bytes to their length, and fills them up to it if they have a fixed one."""
    length = wanted.precision
    if not length:
        return convert
    if wanted.is_fixed and length > _MOST_FILLED:
        return partial(_refuse_to_fill, wanted)
    if wanted.is_fixed:
        return lambda value: convert(value)[:length].ljust(length, filling)
    return lambda value: convert(value)[:length]


def _local(given: SqlType, micros: int) -> int:
    return values.local_of_instant(micros) if given.kind == "TIMESTAMP_LTZ" else micros


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of a DECIMAL is not that large, one of a user's function can be
        return float("inf") if number > 0 else float("-inf")


def _elementwise(given: SqlType, wanted: SqlType) -> Caster:
    """Converts what an ARRAY, a MAP or a ROW is made of."""
    parts = [_of_element(*each) for each in zip(given.elements, wanted.elements, strict=True)]
    if all(part is _same for part in parts):
        return _same
    match wanted.kind:
        case "MAP":
            key, value = parts
            return lambda items: {key(k): value(v) for k, v in items.items()}
        case "ROW":
            return lambda row: tuple(convert(each) for convert, each in zip(parts, row, strict=True))
    return lambda items: [parts[0](each) for each in items]


def _of_element(given: SqlType, wanted: SqlType) -> Caster:
    """The conversion that leaves NULL as it is."""
    convert = _same if given.nullable() == wanted.nullable() else caster(given, wanted)
    return convert if convert is _same else lambda value: None if value is None else convert(value)


def single(number: float) -> float:
    """Returns the nearest number of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _to_integer(given: SqlType, bits: int) -> Caster:
    if given.kind == "VARCHAR":
        return partial(values.integer_of_text, bits=bits)
    if given.kind in types.APPROXIMATE:
        return partial(values.integer_of_double, bits=bits)
    if given.kind in BITS and BITS[given.kind] <= bits:
        return _same
    return lambda number: values.ranged(int(number), bits)


def _to_decimal(given: SqlType, wanted: SqlType) -> Caster:
    precision, scale = wanted.precision, wanted.scale
    if given.kind == "VARCHAR":
        return partial(values.decimal_of_text, precision=precision, scale=scale)
    if given.kind in types.APPROXIMATE:
        exact = _shortest if given.kind == "FLOAT" else repr
        return lambda number: (
            values.fitting(Decimal(exact(number)), precision, scale) if abs(number) < float("inf") else None
        )
    return lambda number: values.fitting(Decimal(number), precision, scale)


def _to_timestamp(given: SqlType, wanted: SqlType) -> Caster:
    precision = wanted.precision
    if given.kind == "VARCHAR":
        instant = partial(values.instant_of_text, is_local=True)
        read: Caster = values.timestamp_of_text if wanted.kind == "TIMESTAMP" else instant
        return lambda text: values.scaled_time(read(text), precision)
    if given.kind == "DATE":
        to_wanted = values.instant_of_local if wanted.kind == "TIMESTAMP_LTZ" else _same
        return lambda days: to_wanted(days * values.DAY_US)
    if given.kind != wanted.kind:
        convert: Caster = values.local_of_instant if wanted.kind == "TIMESTAMP" else values.instant_of_local
        if given.kind == "TIME":
            convert = _same
        return lambda micros: values.scaled_time(convert(micros), precision)
    if given.precision <= precision:
        return _same
    return lambda micros: values.scaled_time(micros, precision)


def _shortest(number: float) -> str:
    """The fewest digits that only this number of 32 bits has."""
    if number != number or abs(number) == float("inf"):
        return repr(number)
    return next(
        (text for digits in range(2, 10) if single(float(text := f"{number:.{digits}g}")) == number), repr(number)
    )


def _text_of_single(number: float) -> str:
    return values.text_of_double(float(_shortest(number)))


def _text_of_instant(micros: int, precision: int) -> str:
    return values.text_of_timestamp(values.local_of_instant(micros), precision)


def key_text_of(given: SqlType) -> Callable[[Any], str]:
    """Returns the function that makes text of a value as a key: -0.0 is 0.0."""
    text = text_of(given)
    return (lambda number: text(number + 0.0)) if given.kind in types.APPROXIMATE else text


def text_of(given: SqlType, *, is_shown: bool = False) -> Callable[[Any], str]:
    """Returns the function that makes text of a value: as CAST does, or as people are shown it, at any depth.

    Bytes that are shown are x'00ff', and a TIMESTAMP_LTZ has its zone.
    """
    parts = [_or_null(text_of(each, is_shown=is_shown)) for each in given.elements]
    match given.kind:
        case "VARCHAR":
            return str
        case "BOOLEAN":
            return values.text_of_boolean
        case "FLOAT":
            return _text_of_single
        case "DOUBLE":
            return values.text_of_double
        case "DECIMAL":
            return lambda number: format(number, "f")
        case "VARBINARY":
            return (lambda data: f"x'{data.hex()}'") if is_shown else (lambda data: data.decode("utf-8", "replace"))
        case "DATE":
            return values.text_of_date
        case "TIME":
            return partial(values.text_of_time, precision=given.precision)
        case "TIMESTAMP":
            return partial(values.text_of_timestamp, precision=given.precision)
        case "TIMESTAMP_LTZ":
            to_text = partial(_text_of_instant, precision=given.precision)
            return (lambda micros: f"{to_text(micros)}Z") if is_shown else to_text
        case "INTERVAL_DAY":
            return values.text_of_span
        case "INTERVAL_MONTH":
            return values.text_of_months
        case "ARRAY":
            return lambda items: f"[{', '.join(map(parts[0], items))}]"
        case "MAP":
            key, value = parts
            return lambda items: "{" + ", ".join(f"{key(k)}={value(v)}" for k, v in items.items()) + "}"
        case "ROW":
            return lambda row: "(" + ", ".join(f(v) for f, v in zip(parts, row, strict=True)) + ")"
    return str


def _or_null(to_text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "NULL" if value is None else to_text(value)
