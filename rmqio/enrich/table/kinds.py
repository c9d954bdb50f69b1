"""The types that a table can have: how their values lie in memory, and what they are in Python."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqio.errors import LocalError

_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_UTC_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EXACT: Final = decimal.Context(prec=100)
_FRACTIONS: Final = (float, np.floating, decimal.Decimal)


class Layout(IntEnum):
    """The ways in which the values of a column lie in memory. `_look.h` has the same numbers."""

    BITS = 0
    INTS = 1
    UNSIGNED = 2
    FLOATS = 3
    TEXTS = 4
    BYTES = 5
    FIXED = 6
    CODES = 7
    OTHERS = 8


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type with which a column is stored: of the types with the same values, one."""
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is(kind, "is_string_view"):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _is(kind, "is_binary_view"):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _is(kind: pa.DataType, test: str) -> bool:
    """Views of texts are newer than the oldest pyarrow."""
    found = getattr(pa.types, test, None)
    return found is not None and bool(found(kind))


def stored(column: pa.Array) -> pa.Array:
    """Returns a column with its stored type. Nanoseconds are cut to microseconds: Python's own times have no more."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    wanted = stored_type(column.type)
    if column.type.equals(wanted):
        return column
    is_time = pa.types.is_timestamp(wanted) or pa.types.is_time64(wanted)
    return column.cast(wanted, safe=not is_time)


def cut_at(values: Sequence[Any], kind: pa.DataType) -> int | None:
    """Returns the position of the first value that Arrow would cut to a whole number without an error; None: of none.

    A float is refused even if it is whole: the next one is not.
    """
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return None
    if not any(issubclass(each, _FRACTIONS) for each in set(map(type, values))):
        return None
    for place, each in enumerate(values):
        if isinstance(each, decimal.Decimal):
            if not each.is_finite() or each != each.to_integral_value():
                return place
        elif isinstance(each, _FRACTIONS):
            return place
    return None


def shown_fraction(value: Any) -> str:
    """Returns what a value that `cut_at` has found is called in a message."""
    return f"the {'decimal' if isinstance(value, decimal.Decimal) else 'float'} {value}"


def layout_of(kind: pa.DataType) -> tuple[Layout, int]:
    """Returns the layout of a stored type, and the bytes of a value; 0: they vary."""
    if pa.types.is_boolean(kind):
        return Layout.BITS, 0
    if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return Layout.INTS, kind.bit_width // 8
    if pa.types.is_unsigned_integer(kind):
        return Layout.UNSIGNED, kind.bit_width // 8
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return Layout.FLOATS, kind.bit_width // 8
    if pa.types.is_string(kind):
        return Layout.TEXTS, 0
    if pa.types.is_binary(kind):
        return Layout.BYTES, 0
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal128(kind):
        return Layout.FIXED, kind.byte_width if pa.types.is_fixed_size_binary(kind) else 16
    if pa.types.is_dictionary(kind):
        return Layout.CODES, kind.index_type.bit_width // 8
    return Layout.OTHERS, 0


def converter_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns the function from the number or the bytes in a column to the value. None: they are the value."""
    if pa.types.is_date32(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _Times(kind.tz)
    if pa.types.is_decimal128(kind):
        return _Decimals(kind.scale)
    return None


def _date(days: int) -> datetime.date:
    return datetime.date.fromordinal(_EPOCH_DAY + days)


class _Times:
    def __init__(self, zone: str | None) -> None:
        self._zone = None if zone is None else _zone(zone)
        self._epoch = _EPOCH if zone is None else _UTC_EPOCH

    def __call__(self, microseconds: int) -> datetime.datetime:
        found = self._epoch + datetime.timedelta(microseconds=microseconds)
        return found if self._zone is None else found.astimezone(self._zone)


def _zone(name: str) -> datetime.tzinfo:
    import zoneinfo

    if name[:1] in "+-":
        hours, minutes = name[1:].split(":")
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        return datetime.timezone(-offset if name[0] == "-" else offset)
    return datetime.UTC if name == "UTC" else zoneinfo.ZoneInfo(name)


class _Decimals:
    def __init__(self, scale: int) -> None:
        self._scale = scale

    def __call__(self, data: bytes) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(data, "little", signed=True)).scaleb(-self._scale, _EXACT)


# ---- keys -----------------------------------------------------------------------------------------------------------

MAX_KEYS: Final = 8


class NotOfType:
    """Stands for a value whose type is not that of the key. No key is equal to it."""


WRONG: Final = NotOfType()


def require_key(name: str, kind: pa.DataType) -> None:
    """Raises `LocalError` if a column of this type cannot be a key."""
    if pa.types.is_null(kind):  # all of its rows are left out
        return
    layout, _ = layout_of(kind)
    if layout in (Layout.FLOATS, Layout.CODES, Layout.OTHERS) or pa.types.is_timestamp(kind):
        raise LocalError(
            f"the column {name} is {kind}, which cannot be a key: keys are text, bytes, integers, booleans, dates and "
            "decimals; cast it in the source"
        )


def encoder_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns the function from a value to what a look-up takes; None: it takes the value itself."""
    if pa.types.is_date32(kind):
        return _day
    if pa.types.is_decimal128(kind):
        return _Unscaled(kind.scale)
    return None


def _day(value: Any) -> Any:
    if type(value) is not datetime.date:
        return value if value is None else WRONG
    return value.toordinal() - _EPOCH_DAY


class _Unscaled:
    def __init__(self, scale: int) -> None:
        self._scale = scale

    def __call__(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, decimal.Decimal) or not value.is_finite():
            return WRONG
        scaled = value.scaleb(self._scale, _EXACT)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**38:
            return None  # no value of the column has so many digits
        return int(scaled).to_bytes(16, "little", signed=True)


def name_of(kind: pa.DataType) -> str:
    """Returns what a key's type is called in a message."""
    names = {Layout.BITS: "a boolean", Layout.TEXTS: "text", Layout.BYTES: "bytes", Layout.FIXED: f"{kind}"}
    layout, _ = layout_of(kind)
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_date32(kind):
        return "a date"
    if pa.types.is_decimal(kind):
        return "a decimal.Decimal"
    return names.get(layout, "an integer")
