"""Messages of rows: what metadata columns and keys become."""

from __future__ import annotations

from collections.abc import Mapping

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.sql.values import ValueFailure


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
    primary_key: tuple[str, ...] = (),
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
        return Message(
            body,
            topic=topic,
            tags=tags or None,
            keys=tuple(found),
            properties={} if properties is None else {k: v for k, v in properties.items() if v is not None},
            sharding_key=sharding_key or None,
            delay_level=delay_level,
            deliver_at_ms=None if deliver_at_ms is None else deliver_at_ms // 1000,
        )
    except LocalError as error:
        raise ValueFailure(str(error)) from error


def row_key(primary_key: tuple[str, ...]) -> str:
    """Returns the key of a message that says which row it is, of the texts of its primary key."""
    return "_".join(map(_escaped, primary_key))


def _escaped(text: str) -> str:
    """A key of a message has no white space, and is not empty: such text is percent-encoded."""
    if text and text.split() == [text]:
        return text
    return "".join(f"%{ord(each):02X}" if each.isspace() else each for each in text) or "%00"
