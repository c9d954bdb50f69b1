"""Elements of the error outputs (coordinates, raw body, reason), and the dead letters created from them."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Final, NamedTuple

import apache_beam as beam

from rmqio.dead_letters.letters import ELEMENT, STORED, Failed, make_letter
from rmqio.dead_letters.letters import ORIGIN as ORIGIN
from rmqio.errors import CorruptMessage, SerdeError, counted
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, MessageQueue, Record
from rmqio.sending.batches import FailedMessage, element_text
from rmqio.wire.batch import MAX_MESSAGE_BYTES
from rmqio.wire.properties import user_properties

_LOGGER: Final = logging.getLogger("rmqio.transforms")


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


class LogFailures:
    """An error handler that leaves messages out: it logs, once per bundle, how many, and place and reason of the first.

    For `with_error_handler` of `ReadFromRocketMQ`, `MapRecords` and others whose failures are `ReadFailure`s; they
    count them. Unlike Beam's `ErrorHandler`, it needs no `with`, and each transform has a branch of its own:
    in-process, Beam runs what follows several endless inputs only at their end.
    """

    def add_error_pcollection(self, failures: Any) -> None:
        """Called by a transform with its failures."""
        _ = failures | "Log failures" >> beam.ParDo(_LogFn())


class _LogFn(beam.DoFn):
    def start_bundle(self) -> None:
        self._first: ReadFailure | None = None
        self._count = 0

    def process(self, failure: ReadFailure) -> None:
        self._first = self._first or failure
        self._count += 1

    def finish_bundle(self) -> None:
        if self._first is not None:
            place = "{}/{}/{}, offset {}".format(*self._first)
            text = f"{counted(self._count, 'message')} left out, such as {place}: {self._first.reason}"
            _LOGGER.warning("%s", text)


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


# How dead letters are written, whichever transform they come from.

COMPRESS_OVER_BYTES: Final = MAX_MESSAGE_BYTES + 1
"""A body that arrived compressed can be larger than brokers accept; compressed again, it may be accepted."""


class WriteLetters(beam.PTransform):
    """Writes each failure as one dead letter. A letter that cannot be written raises `SerdeError`.

    Args:
      write: the `WriteToRocketMQ` for messages that are letters.
    """

    def __init__(self, write: Any) -> None:
        super().__init__()
        self._write = write

    def expand(self, failures: Any) -> Any:
        letters = failures | "To letters" >> beam.Map(_as_letter).with_output_types(Message)
        written = letters | "Write" >> self._write
        _ = written.failed | "Lose none" >> beam.Map(_refuse)
        return written.sent


def _as_letter(failure: Any) -> Message:
    return failure if isinstance(failure, Message) else dead_letter(failure)


def _refuse(failed: Any) -> None:
    raise SerdeError(
        f"a dead letter cannot be written to topic {failed.topic!r}: {failed.error}: {failed.reason}; "
        "it contains a message that failed, so the pipeline stops before that message is lost"
    )


def compressing(factory: ClientFactory | None) -> ClientFactory | None:
    """Our own factory with compression turned on; a user's factory unchanged."""
    from rmqio.client.factory import RemotingClientFactory

    if isinstance(factory, RemotingClientFactory) and factory.options.compress_over_bytes is None:
        return RemotingClientFactory(dataclasses.replace(factory.options, compress_over_bytes=COMPRESS_OVER_BYTES))
    return factory
