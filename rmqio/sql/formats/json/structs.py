"""Structs of msgspec for the columns of JSON bodies, and what makes SQL values of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec

from rmqio.sql.formats.base import Convert, Fields, required
from rmqio.sql.formats.json import values as json_values
from rmqio.sql.formats.json.values import Literal
from rmqio.sql.types import BITS, SqlType


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
            return Part(float, json_values.converter(kind))
        case "DECIMAL":
            return Part(Any, required(kind, json_values.converter(kind)))
        case "ARRAY":
            return _array(part(kind.elements[0], fails_if_missing))
        case "MAP":
            return _map(kind, part(kind.elements[1], fails_if_missing))
        case "ROW":
            return _row(kind, fails_if_missing)
    return Part(str, json_values.converter(kind))


def _array(item: Part) -> Part:
    hint, convert = list[item.hint | None], item.convert  # type: ignore[name-defined]
    if convert is None:
        return Part(hint, None)
    return Part(hint, lambda items: [None if each is None else convert(each) for each in items])


def _map(kind: SqlType, item: Part) -> Part:
    hint, convert = dict[str, item.hint | None], item.convert  # type: ignore[name-defined]
    key = None if kind.elements[0].kind == "VARCHAR" else json_values.converter(kind.elements[0])
    if key is None and convert is None:
        return Part(hint, None)
    make_key, make = key or _same, convert or _same
    return Part(hint, lambda items: {make_key(k): None if v is None else make(v) for k, v in items.items()})


def _row(kind: SqlType, fails_if_missing: bool) -> Part:
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
