"""What goes to the error output of a read: the coordinates, the raw body and the reason."""

from __future__ import annotations

from typing import NamedTuple

from rmqio.errors import CorruptMessage
from rmqio.model import Message, Record
from rmqio.wire.properties import user_properties


class ReadFailure(NamedTuple):
    """A message that could not be decoded. The read goes on behind it."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    """Empty when the message itself is broken."""
    keys: str
    tags: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    error: str
    """The error's class name."""
    reason: str
    body: bytes
    """The body, or the stored bytes of a message that is itself broken."""
    properties: tuple[tuple[str, str], ...] = ()
    """The sender's own, by name."""


def failure_of_record(record: Record, error: Exception) -> ReadFailure:
    """For a body that does not deserialize, or has no timestamp."""
    return ReadFailure(
        record.topic,
        record.broker,
        record.queue_id,
        record.queue_offset,
        record.message_id,
        " ".join(record.keys),
        record.tags or "",
        record.born_timestamp_ms,
        record.store_timestamp_ms,
        type(error).__name__,
        str(error),
        record.body,
        tuple(sorted(user_properties(record.properties).items())),
    )


def failure_of_corrupt(error: CorruptMessage) -> ReadFailure:
    """For stored bytes that are no message."""
    return ReadFailure(
        error.topic or "",
        error.broker or "",
        error.queue_id,
        error.queue_offset,
        "",
        "",
        "",
        0,
        0,
        type(error).__name__,
        error.reason,
        error.raw,
    )


ORIGIN = "RMQIO_ORIGIN"
ERROR = "RMQIO_ERROR"
DROPPED = "RMQIO_DROPPED_PROPERTIES"
_MAX_REASON = 1_000
_MAX_PROPERTIES = 8_000
"""Characters; a message has room for 32,767 bytes of properties, and ours must fit in any case."""


def dead_letter(failure: ReadFailure) -> Message:
    """The message for a dead-letter topic: as it was sent, with coordinates and reason as further properties."""
    origin = f"{failure.topic}/{failure.broker}/{failure.queue_id}/{failure.queue_offset}"
    reason = f"{failure.error}: {failure.reason}"[:_MAX_REASON].replace("\x01", " ").replace("\x02", " ")
    properties = dict(failure.properties)
    if sum(len(name) + len(value) for name, value in failure.properties) > _MAX_PROPERTIES:
        properties = {DROPPED: str(len(properties))}
    return Message(
        failure.body or b"\x00",  # a broker refuses an empty body
        tags=failure.tags or None,
        keys=tuple(failure.keys.split()),
        properties=properties | {ORIGIN: origin, ERROR: reason},
    )
