"""Rows between the steps of a pipeline: tuples as bytes, typed by the columns; and keys as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final
from zlib import crc32

import msgspec

from rmqio.sql.planning.plan import Field
from rmqio.sql.types import APPROXIMATE, BITS, SqlType
from rmqio.sql.values import DECIMALS, ValueFailure

pack: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""A row to bytes."""


def pack_group(keys: tuple[Any, ...], accumulators: Sequence[Any]) -> bytes:
    """Returns the bytes of a group. Sums of more than 64 bits are text there."""
    try:
        return pack((keys, accumulators))
    except OverflowError:
        pass
    try:
        return pack((keys, [_fitting(each) for each in accumulators]))
    except OverflowError:  # in an accumulator of the user's own
        raise ValueFailure("an accumulator holds an integer of more than 64 bits, which cannot travel") from None


def _fitting(accumulator: Any) -> Any:
    if isinstance(accumulator, (list, tuple)):
        return [_fitting(each) for each in accumulator]
    is_long = isinstance(accumulator, int) and not -(1 << 63) <= accumulator < 1 << 64
    return str(accumulator) if is_long else accumulator


def unpacker(fields: Sequence[Field]) -> Callable[[bytes], tuple[Any, ...]]:
    """Returns the function from bytes to a row of these columns."""
    hint = tuple[tuple(type_hint(each.type) | None for each in fields)] if fields else tuple[()]  # type: ignore[misc]
    return msgspec.msgpack.Decoder(hint).decode


def type_hint(kind: SqlType) -> Any:
    """Returns the type of a column's values, for msgspec."""
    if kind.kind in BITS or kind.kind in (
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMP_LTZ",
        "INTERVAL_DAY",
        "INTERVAL_MONTH",
    ):
        return int
    match kind.kind:
        case "BOOLEAN":
            return bool
        case "FLOAT" | "DOUBLE":
            return float
        case "DECIMAL":
            return Decimal
        case "VARCHAR":
            return str
        case "VARBINARY":
            return bytes
        case "ARRAY" | "MULTISET":
            return list[type_hint(kind.elements[0]) | None]  # type: ignore[misc]
        case "MAP":
            return dict[type_hint(kind.elements[0]) | None, type_hint(kind.elements[1]) | None]  # type: ignore[misc]
        case "ROW":
            return tuple[tuple(type_hint(each) | None for each in kind.elements)]  # type: ignore[misc]
    return type(None)


def key_bytes(values: tuple[Any, ...]) -> bytes:
    """Returns the bytes of a key: equal for values that SQL takes as equal."""
    return pack(tuple(map(_plain, values)))


def null_key(side: int, row: bytes) -> bytes:
    """Returns one of 64 keys for a row of a side whose key has a NULL. `key_bytes` gives none that is equal."""
    return b"\xc0%c%c" % (side, crc32(row) % 64)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0 if value == value else "NaN"  # -0.0 is 0.0
    if isinstance(value, Decimal):
        return format(DECIMALS.plus(value.normalize(DECIMALS)), "f")
    if isinstance(value, (tuple, list)):
        return list(map(_plain, value))
    return sorted(map(key_bytes, value.items())) if isinstance(value, dict) else value  # a map has no order


_NAN: Final = float("nan")


def once(value: Any) -> Any:
    """Returns the value that a set has for equal ones: -0.0 is 0.0, and there is one NaN, also in other values."""
    if isinstance(value, float):
        return value + 0.0 if value == value else _NAN
    if isinstance(value, (tuple, list)):
        return type(value)(map(once, value))
    return {once(key): once(each) for key, each in value.items()} if isinstance(value, dict) else value


def with_distinct_nans(value: Any) -> Any:
    """Returns the value in which each NaN is an object of its own, so that none is equal to another one for Python."""
    if isinstance(value, float):
        return value if value == value else float("nan")
    if isinstance(value, (tuple, list)):
        return type(value)(map(with_distinct_nans, value))
    return (
        {with_distinct_nans(key): with_distinct_nans(each) for key, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def has_floats(kind: SqlType) -> bool:
    """Returns whether equal values of the type can differ (see `once`), and a value can be equal to nothing."""
    return kind.kind in APPROXIMATE or any(map(has_floats, kind.elements))
