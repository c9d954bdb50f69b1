"""Failures of elements that a sink refuses: the whole element, and where it comes from."""

from __future__ import annotations

import json
from typing import Any

from rmqio.connect.rows import to_json
from rmqio.errors import SerdeError
from rmqio.model import Message, MessageQueue, Record
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import failure_of_record, failure_of_value


def failure_of(value: Any, place: tuple[MessageQueue, int] | None, error: Exception) -> ReadFailure:
    """Returns the failure of an element, or of a value of a batch, whose place may be known."""
    if isinstance(value, Record):
        return failure_of_record(value, error)
    if (own := getattr(value, "to_failure", None)) is not None:
        found: ReadFailure = own(error)
        return found
    queue, offset = place or (None, -1)
    failure = failure_of_value(value, queue, offset, error)
    if isinstance(value, Message):
        return failure._replace(
            body=value.body,
            keys=" ".join(value.keys),
            tags=value.tags or "",
            sharding_key=value.sharding_key or "",
            properties=tuple(sorted(value.properties.items())),
        )
    return failure._replace(body=_whole(value) or failure.body)


def _whole(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    try:
        return to_json(value).encode("utf-8", "backslashreplace")
    except SerdeError:
        # A value that has no JSON, such as NaN: as much of it as Python can write.
        return json.dumps(value, default=repr, ensure_ascii=False, skipkeys=True).encode("utf-8", "backslashreplace")
