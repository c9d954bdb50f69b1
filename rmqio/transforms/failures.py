"""Elements of the error outputs (coordinates, raw body, reason), and the dead letters created from them."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqio.dead_letters.letters import ELEMENT, STORED, Failed, make_letter
from rmqio.dead_letters.letters import ORIGIN as ORIGIN
from rmqio.errors import CorruptMessage, SerdeError
from rmqio.model import Message, MessageQueue, Record
from rmqio.sending.batches import FailedMessage, element_text
from rmqio.wire.properties import user_properties


class ReadFailure(NamedTuple):
    """A message that could not be decoded. The read continues after it."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    """Empty if the message itself is corrupt."""
    keys: str
    tags: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    error: str
    """The class name of the error."""
    reason: str
    body: bytes
    """The body, or the stored bytes if the message itself is corrupt."""
    properties: tuple[tuple[str, str], ...] = ()
    """The sender's own properties, sorted by name."""
    sharding_key: str = ""
    kind: str = ""
    """`ELEMENT` if the body is the text of a decoded value, because the message itself is no longer known."""


def failure_of_value(value: Any, queue: MessageQueue | None, queue_offset: int, error: Exception) -> ReadFailure:
    """The failure for a value that was decoded before. Without a place, its coordinates are empty."""
    topic, broker, queue_id = queue or ("", "", -1)
    text = element_text(value).encode("utf-8", "backslashreplace")
    name = type(error).__name__
    return ReadFailure(topic, broker, queue_id, queue_offset, "", "", "", 0, 0, name, str(error), text, kind=ELEMENT)


def failure_of_record(record: Record, error: Exception) -> ReadFailure:
    """The failure for a body that cannot be deserialized, or a record without a timestamp."""
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
        record.sharding_key or "",
    )


def failure_of_corrupt(error: CorruptMessage) -> ReadFailure:
    """The failure for stored bytes that are not a message."""
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


def dead_letter(failure: ReadFailure | FailedMessage) -> Message:
    """The message for a dead-letter topic; `rmqio.dead_letters.letter_id` returns the id to write it with."""
    if isinstance(failure, FailedMessage):
        return make_letter(failed_of(failure))
    return make_letter(
        Failed(
            failure.body,
            failure.error,
            failure.reason,
            origin=MessageQueue(failure.topic, failure.broker, failure.queue_id) if failure.queue_offset >= 0 else None,
            queue_offset=failure.queue_offset,
            message_id=failure.message_id,
            born_timestamp_ms=failure.born_timestamp_ms,
            store_timestamp_ms=failure.store_timestamp_ms,
            tags=failure.tags,
            keys=tuple(failure.keys.split()),
            sharding_key=failure.sharding_key,
            properties=failure.properties,
            kind=failure.kind or (STORED if failure.error == CorruptMessage.__name__ else ""),
        )
    )


def letter_of_element(
    element: Any, failure: FailedMessage, message_id: str | None, place: tuple[MessageQueue, int] | None = None
) -> Message:
    """The dead letter of an element that can never be written.

    A `Record` that could not be converted to a message is kept like one that could not be read, so that replay sends
    it back to where it came from.

    Args:
      message_id: the stable id that it would have had.
      place: the queue and offset that a value of a `Batch` comes from.
    """
    if not isinstance(element, Record):
        failed = failed_of(failure)._replace(sink_message_id=message_id or "")
        if place is not None:
            failed = failed._replace(origin=place[0], queue_offset=place[1])
        if failure.message is None and isinstance(element, bytes):
            failed = failed._replace(body=element)
        return make_letter(failed)
    if failure.message is None:
        read = failure_of_record(element, SerdeError(failure.reason))
        return dead_letter(read._replace(error=failure.error))
    return make_letter(
        failed_of(failure)._replace(
            sink_message_id=message_id or "",
            origin=element.queue,
            queue_offset=element.queue_offset,
            message_id=element.message_id,
            born_timestamp_ms=element.born_timestamp_ms,
            store_timestamp_ms=element.store_timestamp_ms,
        )
    )


def failed_of(failure: FailedMessage) -> Failed:
    """The content of the letter of an element that could not be written."""
    message = failure.message
    if message is None:
        text = failure.element.encode("utf-8", "backslashreplace")
        return Failed(text, failure.error, failure.reason, kind=ELEMENT, sink_topic=failure.topic or "")
    return Failed(
        message.body,
        failure.error,
        failure.reason,
        tags=message.tags or "",
        keys=message.keys,
        sharding_key=message.sharding_key or "",
        properties=tuple(sorted(message.properties.items())),
        sink_topic=failure.topic or "",
        delay_level=message.delay_level,
        deliver_at_ms=message.deliver_at_ms,
    )
