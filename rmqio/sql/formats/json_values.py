"""Values of JSON, and the SQL values of them by Flink's rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec

from rmqio.sql import values
from rmqio.sql.casts import single
from rmqio.sql.formats.base import Convert, Fields, bounded, required, whole
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


# Structs of msgspec for the columns of JSON bodies, and what makes SQL values of what they hold.


class Part(NamedTuple):
    """How a type is decoded.

    Attributes:
      hint: what msgspec accepts and checks.
      convert: what makes the SQL value of it; None: it is that value.
    """

    hint: Any
    convert: Convert | None


def row_decoder(fields: Fields, parts: Sequence[Part], fails_if_missing: bool) -> Callable[[bytes], Any]:
    """Returns the function that decodes bodies to structs, whose attributes c0, c1, ... are the columns.

    Raises ValueError for names that msgspec does not have.
    """
    optional = [each.type.is_nullable for each in fields]
    struct = _struct([each.name for each in fields], [each.hint for each in parts], optional, fails_if_missing)
    return msgspec.json.Decoder(struct, float_hook=Literal).decode


def part(kind: SqlType, fails_if_missing: bool) -> Part:
    """Returns how a column or a part of it is decoded. Raises ValueError for names that msgspec does not have."""
    if kind.kind in BITS:
        limit = 1 << (BITS[kind.kind] - 1)
        return Part(Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)], None)
    match kind.kind:
        case "VARCHAR":
            return Part(str, None)
        case "BOOLEAN":
            return Part(bool, None)
        case "DOUBLE":
            return Part(float, None)
        case "FLOAT":
            return Part(float, converter(kind))
        case "DECIMAL":
            return Part(Any, required(kind, converter(kind)))
        case "ARRAY":
            return _array_part(part(kind.elements[0], fails_if_missing))
        case "MAP":
            return _map_part(kind, part(kind.elements[1], fails_if_missing))
        case "ROW":
            return _row_part(kind, fails_if_missing)
    return Part(str, converter(kind))


def _array_part(item: Part) -> Part:
    hint, convert = list[item.hint | None], item.convert  # type: ignore[name-defined]
    if convert is None:
        return Part(hint, None)
    return Part(hint, lambda items: [None if each is None else convert(each) for each in items])


def _map_part(kind: SqlType, item: Part) -> Part:
    hint, convert = dict[str, item.hint | None], item.convert  # type: ignore[name-defined]
    key = None if kind.elements[0].kind == "VARCHAR" else converter(kind.elements[0])
    if key is None and convert is None:
        return Part(hint, None)
    make_key, make = key or _same, convert or _same
    return Part(hint, lambda items: {make_key(k): None if v is None else make(v) for k, v in items.items()})


def _row_part(kind: SqlType, fails_if_missing: bool) -> Part:
    parts = [part(each, fails_if_missing) for each in kind.elements]
    struct = _struct(kind.names, [each.hint for each in parts], [True] * len(parts), fails_if_missing)
    names = [f"c{position}" for position in range(len(parts))]
    converters = [each.convert for each in parts]
    if len(names) > 1 and not any(converters):
        return Part(struct, attrgetter(*names))

    def of(row: Any) -> tuple[Any, ...]:
        found = []
        for name, convert in zip(names, converters, strict=True):
            value = getattr(row, name)
            found.append(value if convert is None or value is None else convert(value))
        return tuple(found)

    return Part(struct, of)


def _struct(names: Sequence[str], hints: Sequence[Any], optional: Sequence[bool], fails_if_missing: bool) -> Any:
    members: list[tuple[Any, ...]] = []
    for position, (hint, is_optional) in enumerate(zip(hints, optional, strict=True)):
        wanted = hint | None if is_optional else hint
        has_default = is_optional and not fails_if_missing
        members.append((f"c{position}", wanted, None) if has_default else (f"c{position}", wanted))
    members.sort(key=len)  # those without a default come first
    renamed = {f"c{position}": name for position, name in enumerate(names)}
    return msgspec.defstruct("Row", members, rename=renamed, gc=False)


def _same(value: Any) -> Any:
    return value
