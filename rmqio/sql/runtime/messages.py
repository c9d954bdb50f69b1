"""Messages of rows: what metadata columns and keys become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqio.model import Message


def message(
    body: bytes,
    topic: str | None = None,
    tags: str | None = None,
    keys: str | None = None,
    sharding_key: str | None = None,
    properties: Mapping[str, str] | None = None,
    delay_level: int | None = None,
    deliver_at_ms: int | None = None,
    key_columns: tuple[Any, ...] = (),
) -> Message:
    """Returns the message of a row. Keys are texts without spaces; NULLs are left out."""
    found = (keys or "").split() + [str(each) for each in key_columns if each is not None]
    return Message(
        body,
        topic=topic,
        tags=tags,
        keys=tuple(found),
        properties={} if properties is None else {k: v for k, v in properties.items() if v is not None},
        sharding_key=sharding_key,
        delay_level=delay_level,
        deliver_at_ms=None if deliver_at_ms is None else deliver_at_ms // 1000,
    )
