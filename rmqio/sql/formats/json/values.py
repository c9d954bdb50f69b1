"""Values of JSON, and the SQL values of them by Flink's rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from rmqio.sql import values
from rmqio.sql.compile.expressions.casts import single
from rmqio.sql.formats.base import Convert, bounded, whole
from rmqio.sql.formats.texts import (
    boolean_of_text,
    bytes_of_text,
    decimal_maker,
    decimal_reader,
    integer_of_text,
    time_reader,
)
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure, well_formed


class Literal(str):
    """The text of a number that has a fraction or an exponent."""

    __slots__ = ()


def kind_of(value: Any) -> str:
    """Returns the kind of a value, for a message."""
    return _KINDS.get(type(value), "a number")


_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def text_of(value: Any) -> str:
    """Returns the text of a value: a string as it is, anything else as JSON, without blanks, with numbers as given."""
    kind = type(value)
    if kind is str or kind is Literal:
        return str(value)
    if kind is dict:
        return f"{{{','.join([f'{_quoted(name)}:{_nested(each)}' for name, each in value.items()])}}}"
    if kind is list:
        return f"[{','.join(map(_nested, value))}]"
    return str(value) if kind is int else "null" if value is None else "true" if value else "false"


def _nested(value: Any) -> str:
    return _quoted(value) if type(value) is str else text_of(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def converter(kind: SqlType, fails_if_missing: bool = False) -> Convert:
    """Returns what makes the SQL value of a value that is not null. It raises `ValueFailure`."""
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
            return _of_string(bytes_of_text, kind)
        case "ARRAY":
            return _array(converter(kind.elements[0], fails_if_missing))
        case "MAP":
            return _map(converter(kind.elements[0]), converter(kind.elements[1], fails_if_missing))
        case "ROW":
            return _row(kind, fails_if_missing)
    return _of_string(time_reader(kind), kind)


def _not(given: Any, wanted: str) -> ValueFailure:
    return ValueFailure(f"{bounded(_nested(given))} is not {wanted}")


def _integer(given: Any, bits: int) -> int:
    if type(given) is int:
        return whole(given, bits)
    if type(given) is str:
        return integer_of_text(given, bits)
    if type(given) is not Literal:
        raise _not(given, "a whole number")
    try:
        return whole(int(float(given)), bits)
    except OverflowError:
        raise ValueFailure(f"{bounded(given)} is out of range of an integer of {bits} bits") from None


def _text(given: Any) -> str:
    return well_formed(text_of(given))


def _boolean(given: Any) -> bool:
    if type(given) is bool:
        return given
    if type(given) is str:
        return boolean_of_text(given)
    raise _not(given, "a boolean")


def _double(given: Any) -> float:
    if type(given) is float or type(given) is Literal:
        return float(given)
    if type(given) is str:
        return values.double_of_text(given)
    if type(given) is not int:
        raise _not(given, "a number")
    try:
        return float(given)
    except OverflowError:
        return float("inf") if given > 0 else float("-inf")


def _decimal(kind: SqlType) -> Convert:
    make, read = decimal_maker(kind), decimal_reader(kind)

    def of(given: Any) -> Decimal | None:
        if type(given) is Literal or type(given) is int:
            return make(given)
        if type(given) is str:
            return read(given)
        raise _not(given, "a number")

    return of


def _of_string(read: Callable[[str], Any], kind: SqlType) -> Convert:
    def convert(given: Any) -> Any:
        if type(given) is not str:
            raise _not(given, f"a string, as {kind.text} is in JSON")
        return read(given)

    return convert


def _array(convert: Convert) -> Convert:
    def of(given: Any) -> list[Any]:
        if type(given) is not list:
            raise _not(given, "an array")
        return [None if each is None else convert(each) for each in given]

    return of


def _map(key: Convert, convert: Convert) -> Convert:
    def of(given: Any) -> dict[Any, Any]:
        if type(given) is not dict:
            raise _not(given, "an object")
        return {key(name): None if each is None else convert(each) for name, each in given.items()}

    return of


def _row(kind: SqlType, fails_if_missing: bool) -> Convert:
    parts = [(name, converter(each, fails_if_missing)) for name, each in zip(kind.names, kind.elements, strict=True)]

    def of(given: Any) -> tuple[Any, ...]:
        if type(given) is not dict:
            raise _not(given, "an object")
        if fails_if_missing and (missing := [name for name, _ in parts if name not in given]):
            raise ValueFailure(f"the field {missing[0]} is missing")
        found = []
        for name, convert in parts:
            value = given.get(name)
            try:
                found.append(None if value is None else convert(value))
            except ValueFailure as error:
                raise ValueFailure(f"field {name}: {error}") from None
        return tuple(found)

    return of
