"""Keys of dimension tables: as Python's values, and as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from rmqio.sql.lookup.definition import Row
from rmqio.sql.rows import pack
from rmqio.sql.types import APPROXIMATE, SqlType


def key_maker(kinds: Sequence[SqlType], positions: Sequence[int]) -> Callable[[Row], Any]:
    """Returns the function from a row to its key of these types; None if a column of it is NULL or NaN."""
    if len(positions) == 1 and kinds[0].kind not in APPROXIMATE:
        (place,) = positions
        return lambda row: row[place]

    def of(row: Row) -> Any:
        found = [row[each] for each in positions]
        if any(each is None or each != each for each in found):
            return None
        return tuple(found) if len(found) > 1 else found[0]

    return of


def packed_key(key: Any) -> bytes:
    """Returns the bytes of a key: the same for keys that are equal, also if one has an integer and one a float.

    Raises `UnicodeEncodeError` for text with half of a surrogate pair.
    """
    kind = type(key)
    if kind is int or kind is str:
        try:
            return pack(key)
        except OverflowError:
            return pack(str(key))
    return pack(tuple(map(_plain, key)) if kind is tuple else _plain(key))


def _plain(value: Any) -> Any:
    """A value of which equal ones have the same bytes. No text is compared with a number."""
    if isinstance(value, (float, Decimal)):
        try:
            top, bottom = value.as_integer_ratio()
        except (OverflowError, ValueError):  # infinite
            return str(float(value))
        if bottom != 1:
            return f"{top}/{bottom}"
        value = top
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value
