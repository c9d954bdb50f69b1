"""Messages of rows: what metadata columns and keys become."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.sql.values import ValueFailure
from rmqio.transforms.parts import check_sendable

_SEPARATOR: Final = "_"
_IN_KEY: Final = re.compile(r"[\s%]")
_IN_PART: Final = re.compile(rf"[\s%{_SEPARATOR}]")
_EMPTY: Final = "%00"
_NULL: Final = "%NULL"
"""No text becomes one of these two, as a % of a text is encoded."""


def message(
    body: bytes,
    topic: str | None = None,
    tags: str | None = None,
    keys: str | None = None,
    sharding_key: str | None = None,
    properties: Mapping[str, str] | None = None,
    delay_level: int | None = None,
    deliver_at_ms: int | None = None,
    key_columns: tuple[str | None, ...] = (),
    primary_key: tuple[str | None, ...] = (),
) -> Message:
    """Returns the message of a row. Keys that are NULL are left out. The primary key is its first key, and orders it.

    Raises `ValueFailure` for what no message can have.
    """
    found = (keys or "").split()
    if primary_key:
        row = row_key(primary_key)
        found.insert(0, row)
        sharding_key = sharding_key or row
    for each in key_columns:
        if each is not None and (not each or each.split() != [each]):
            raise ValueFailure(f"{each!r:.60} is not a message key: a key has no white space, and is not empty")
        if each is not None:
            found.append(each)
    try:
        made = Message(
            body,
            topic=topic,
            tags=tags or None,
            keys=tuple(found),
            properties={} if properties is None else {k: v for k, v in properties.items() if v is not None},
            sharding_key=sharding_key or None,
            delay_level=delay_level,
            deliver_at_ms=None if deliver_at_ms is None else deliver_at_ms // 1000,
        )
        check_sendable(made)  # here, the row is known: the write could only fail
    except LocalError as error:
        raise ValueFailure(str(error)) from error
    return made


def row_key(primary_key: tuple[str | None, ...]) -> str:
    """Returns the key of a message that says which row it is, of the texts of its primary key.

    Two rows never have the same key: one would replace or delete the other.
    """
    if len(primary_key) == 1:
        return _escaped(primary_key[0], _IN_KEY)
    return _SEPARATOR.join([_escaped(each, _IN_PART) for each in primary_key])


def _escaped(text: str | None, special: re.Pattern[str]) -> str:
    """A key of a message has no white space, and is not empty: such text is percent-encoded, as in a URL."""
    if text is None:
        return _NULL
    return special.sub(_encoded, text) or _EMPTY


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())
