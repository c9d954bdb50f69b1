"""The form of a dead letter: a message whose properties say where it comes from, what failed, and how to undo it.

`rmqio.transforms` writes letters, and `rmqio.replay` reads them without Beam. Each coordinate is one property, because
consoles show properties and SQL92 filters compare them: `RMQIO_TOPIC = 'orders' AND RMQIO_QUEUE_OFFSET > 100`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rmqio.errors import CorruptMessage, OffsetOutOfRange
from rmqio.interfaces import QueueClient, QueueReader
from rmqio.model import Message, MessageFilter, MessageQueue, Record
from rmqio.start import StartFrom, StopAt
from rmqio.wire.batch import MAX_MESSAGE_BYTES
from rmqio.wire.properties import MAX_PROPERTIES_BYTES, is_reserved, user_properties

# Reads the letters of a dead-letter topic from a start to an end that is fixed in advance, all queues in turn.

_WAIT_MS: Final = 1_000


class Part(NamedTuple):
    """Consecutive messages of one queue."""

    queue: MessageQueue
    begin: int
    """The offset at which it starts, even if there is no message."""
    records: list[Record]
    corrupt: list[CorruptMessage]
    next_offset: int
    skipped: int
    """Offsets that are lost on the broker, as in `FetchedBatch.skipped`; some may be after `next_offset`."""


def ranges_of(
    client: QueueClient, topic: str, start: StartFrom, stop: StopAt, group: str | None
) -> dict[MessageQueue, range]:
    """The range to read of each queue. It includes offsets after the group's that retention has deleted, to count them.

    Raises `OffsetOutOfRange` for a start after the end.
    """
    found = {}
    for queue in client.queues(topic):
        end = stop.resolve(queue, client)
        if end is None:
            continue
        try:
            begin = start.resolve(queue, client, group=group)
        except OffsetOutOfRange as error:
            if error.wanted > error.maximum:  # beyond the end: everything in the recreated topic would be sent again
                raise
            begin = min(error.wanted, error.minimum)
        found[queue] = range(begin, max(begin, end))
    return found


def read_ranges(client: QueueClient, ranges: Mapping[MessageQueue, range]) -> Iterator[Part]:
    """Reads everything in the ranges. Offsets that retention has deleted are a part with only `skipped`.

    Raises `RmqioError` after the retries that the client's options permit.
    """
    readers = {
        queue: client.open_reader(queue, each.start, message_filter=MessageFilter())
        for queue, each in ranges.items()
        if each
    }
    try:
        while readers:
            is_idle = True
            for queue, reader in list(readers.items()):
                part = _next_part(reader, ranges[queue].stop)
                if part is None:
                    continue
                is_idle = False
                yield part
                if part.next_offset >= ranges[queue].stop:
                    readers.pop(queue).close()
            if is_idle:
                client.wait(readers.values(), _WAIT_MS)
    finally:
        for reader in readers.values():
            reader.close()


def _next_part(reader: QueueReader, stop: int) -> Part | None:
    begin = reader.position
    try:
        fetched = reader.poll()
    except OffsetOutOfRange as error:
        if error.minimum <= begin:  # beyond the end: the topic was recreated, and nothing is ahead
            raise
        reader.seek(error.minimum)
        target = min(error.minimum, stop)
        return Part(reader.queue, begin, [], [], target, target - begin)
    if fetched is None:
        return None
    return Part(
        reader.queue,
        begin,
        [record for record in fetched.records if record.queue_offset < stop],
        [error for error in fetched.corrupt if error.queue_offset < stop],
        min(fetched.next_offset, stop),
        fetched.skipped,
    )


PREFIX: Final = "RMQIO_"
USER_PREFIX: Final = "RMQIO_USER_"
"""Replaces `RMQIO_` in the sender's own names: its `RMQIO_TENANT` becomes `RMQIO_USER_TENANT`."""

TOPIC: Final = "RMQIO_TOPIC"
BROKER: Final = "RMQIO_BROKER"
QUEUE_ID: Final = "RMQIO_QUEUE_ID"
QUEUE_OFFSET: Final = "RMQIO_QUEUE_OFFSET"
MESSAGE_ID: Final = "RMQIO_MESSAGE_ID"
BORN_TIMESTAMP_MS: Final = "RMQIO_BORN_TIMESTAMP_MS"
STORE_TIMESTAMP_MS: Final = "RMQIO_STORE_TIMESTAMP_MS"
ORIGIN: Final = "RMQIO_ORIGIN"
"""`topic/broker/queue/offset` in one text."""

SINK_TOPIC: Final = "RMQIO_SINK_TOPIC"
"""The topic of a letter from a write: the one that the message could not be written to."""
SINK_MESSAGE_ID: Final = "RMQIO_SINK_MESSAGE_ID"
"""The stable id that the message would have had there."""
DELAY_LEVEL: Final = "RMQIO_DELAY_LEVEL"
DELIVER_AT_MS: Final = "RMQIO_DELIVER_AT_MS"
"""When the message would have been delivered there."""

ERROR: Final = "RMQIO_ERROR"
"""`class: reason` in one text."""
ERROR_CLASS: Final = "RMQIO_ERROR_CLASS"
ERROR_REASON: Final = "RMQIO_ERROR_REASON"

BODY: Final = "RMQIO_BODY"
"""The content of the letter's body if it is not the message's body: one of the next three."""
EMPTY: Final = "empty"
"""The message had an empty body. A broker does not accept such a message, so the letter has one zero byte."""
STORED: Final = "stored"
"""The stored bytes of a corrupt message, or their first 4 MiB."""
ELEMENT: Final = "element"
"""An element without a message: bytes as they are; for others, the beginning of their `repr`."""

DROPPED_PROPERTIES: Final = "RMQIO_DROPPED_PROPERTIES"
"""How many of the sender's properties are left out because they do not fit, or are not text."""
DROPPED_KEYS: Final = "RMQIO_DROPPED_KEYS"
DROPPED_TAGS: Final = "RMQIO_DROPPED_TAGS"
DROPPED_SHARDING_KEY: Final = "RMQIO_DROPPED_SHARDING_KEY"

_MAX_REASON: Final = 1_000
_MAX_TEXT: Final = 300
"""Maximum number of characters of our other values."""
_ROOM_FOR_ID: Final = 64
_NATIVE_NAME: Final = 16
"""Approximate size of RocketMQ's own names of tags, keys and sharding key."""
_NUMBER: Final = re.compile("[0-9]{1,18}")


class Failed(NamedTuple):
    """The content of a letter; texts are empty if unknown."""

    body: bytes
    error: str
    """The class name of the error."""
    reason: str
    origin: MessageQueue | None = None
    """The queue that the message was read from."""
    queue_offset: int = -1
    message_id: str = ""
    born_timestamp_ms: int = 0
    store_timestamp_ms: int = 0
    tags: str = ""
    keys: tuple[str, ...] = ()
    sharding_key: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    """The sender's own properties."""
    kind: str = ""
    """`STORED` or `ELEMENT` if the body is not the message's."""
    sink_topic: str = ""
    sink_message_id: str = ""
    delay_level: int | None = None
    deliver_at_ms: int | None = None


def make_letter(failed: Failed) -> Message:
    """The message for a dead-letter topic: as it was sent, with coordinates and reason as further properties.

    It can always be sent, unless its body is larger than a broker accepts: everything that would make it illegal (bytes
    that are not text) or too large is left out, and counted in a property.
    """
    ours = _ours(failed)
    room = MAX_PROPERTIES_BYTES - _ROOM_FOR_ID - sum(_size(name, value) for name, value in ours.items())
    room -= 4 * (len(DROPPED_SHARDING_KEY) + 8)  # the counts below
    tags, keys, sharding_key = failed.tags, failed.keys, failed.sharding_key
    is_one_word_each = all(key.split() == [key] for key in keys)
    for value, count, is_legal, dropped in (
        (tags, 1, _is_legal(tags), DROPPED_TAGS),
        (sharding_key, 1, _is_legal(sharding_key), DROPPED_SHARDING_KEY),
        (" ".join(keys), len(keys), is_one_word_each and _is_legal(" ".join(keys)), DROPPED_KEYS),
    ):
        if not value:
            continue
        size = _NATIVE_NAME + _size("", value)
        if is_legal and size <= room:
            room -= size
        else:
            ours[dropped] = str(count)
    kept: dict[str, str] = {}
    for own_name, value in failed.properties:
        name = _escaped(own_name)
        size = _size(name, value)
        if size <= room and _is_legal(name) and _is_legal(value) and not is_reserved(name):
            kept[name] = value
            room -= size
    if len(kept) < len(failed.properties):
        ours[DROPPED_PROPERTIES] = str(len(failed.properties) - len(kept))
    body = failed.body[:MAX_MESSAGE_BYTES] if failed.kind == STORED else failed.body
    return Message(
        body or b"\x00",  # a broker refuses an empty body
        tags=None if DROPPED_TAGS in ours else tags or None,
        keys=() if DROPPED_KEYS in ours else keys,
        sharding_key=None if DROPPED_SHARDING_KEY in ours else sharding_key or None,
        properties=kept | ours,
    )


def _ours(failed: Failed) -> dict[str, str]:
    reason = failed.reason[:_MAX_REASON]
    values = {
        ERROR: f"{failed.error}: {reason}",
        ERROR_CLASS: failed.error,
        ERROR_REASON: reason,
        MESSAGE_ID: failed.message_id[:_MAX_TEXT],
        SINK_TOPIC: failed.sink_topic[:_MAX_TEXT],
        SINK_MESSAGE_ID: failed.sink_message_id[:_MAX_TEXT],
        DELAY_LEVEL: str(failed.delay_level or ""),
        DELIVER_AT_MS: str(failed.deliver_at_ms or ""),
        BODY: failed.kind or ("" if failed.body else EMPTY),
    }
    if failed.origin is not None:
        topic, broker, queue_id = failed.origin
        values |= {
            ORIGIN: f"{topic}/{broker}/{queue_id}/{failed.queue_offset}",
            TOPIC: topic,
            BROKER: broker,
            QUEUE_ID: str(queue_id),
            QUEUE_OFFSET: str(failed.queue_offset),
            # 0: unknown for a corrupt message
            BORN_TIMESTAMP_MS: str(failed.born_timestamp_ms or ""),
            STORE_TIMESTAMP_MS: str(failed.store_timestamp_ms or ""),
        }
    return {name: _legal(value) for name, value in values.items() if value}


def _escaped(name: str) -> str:
    """A sender's name that cannot be one of ours; `_unescaped` is the inverse."""
    return USER_PREFIX + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name


def _unescaped(name: str) -> str:
    return PREFIX + name.removeprefix(USER_PREFIX) if name.startswith(USER_PREFIX) else name


def _size(name: str, value: str) -> int:
    return len(name.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass")) + 2


def _is_legal(text: str) -> bool:
    """Whether a broker stores the text unchanged: bytes that were not UTF-8 are lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return bool(text) and "\x01" not in text and "\x02" not in text


def _legal(text: str) -> str:
    """A legal text that is as readable as possible."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x01", " ").replace("\x02", " ")


def letter_id(letter: Message) -> str:
    """The unique id of a letter. It is the same for the same failure, so that copies from a bundle that is run again
    can be recognised.

    The id is derived from the origin of the message. If that is unknown, it is derived from the whole letter except the
    text of the error, which can differ from try to try. Several equal messages that fail then have one id;
    `read_letter` therefore distinguishes them by their places.
    """
    return identity(letter.properties) or _content_id(letter)


def _content_id(letter: Message) -> str:
    said = sorted(item for item in letter.properties.items() if item[0] not in (ERROR, ERROR_REASON))
    fields = letter.topic, letter.tags, letter.keys, letter.sharding_key, letter.delay_level, letter.deliver_at_ms, said
    digest = hashlib.blake2b(ascii(fields).encode(), digest_size=16)  # ascii: no \x00, and legal for any content
    digest.update(b"\x00" + letter.body)
    return digest.hexdigest().upper()


def identity(properties: Mapping[str, str]) -> str | None:
    """32 hexadecimal digits that depend only on the origin of a letter; None if that is unknown."""
    if ORIGIN not in properties and SINK_MESSAGE_ID not in properties:
        return None
    names = (ORIGIN, MESSAGE_ID, SINK_TOPIC, SINK_MESSAGE_ID)
    return _digest("dead letter", *(properties.get(name, "") for name in names))


def _digest(*parts: str) -> str:
    joined = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=16).hexdigest().upper()


class DeadLetter(NamedTuple):
    """A letter that has been read."""

    record: Record
    topic: str
    """The topic to send it back to: that it was read from, or could not be written to; empty: unknown."""
    error: str
    """The class name of the error."""
    reason: str
    message: Message | None
    """The message as it was sent the first time; None if unknown."""
    message_id: str
    """The id for sending the message back: the same each time. Letters of one failure have the same id if they have
    coordinates; otherwise each has its own. It is not the id of the first time, which would make the message a
    duplicate, unless the message never reached its topic."""
    why_not: str = ""
    """Why there is no message."""
    is_whole: bool = True
    """Whether the letter is complete: nothing had to be left out."""


def read_letter(record: Record) -> DeadLetter:
    """The letter in a record of a dead-letter topic. A record that is not a letter is a message without an error."""
    properties = record.properties
    said = properties if ERROR in properties else {}  # other messages can have properties with our names
    error, _, reason = said.get(ERROR, "").partition(": ")
    error = said.get(ERROR_CLASS, error)
    topic = said.get(SINK_TOPIC) or said.get(TOPIC)
    if topic is None:
        topic = said.get(ORIGIN, "").rsplit("/", 3)[0]
    # Equal letters without coordinates can have the same id, but each has its own place.
    place = f"{record.topic}/{record.broker}/{record.queue_id}/{record.queue_offset}"
    message_id = said.get(SINK_MESSAGE_ID) or _digest("replay", identity(said) or place)
    why_not = _why_not(said, error)
    return DeadLetter(
        record,
        topic,
        error,
        said.get(ERROR_REASON, reason),
        None if why_not else _message_of(record, properties),
        message_id,
        why_not,
        not said.keys() & {DROPPED_PROPERTIES, DROPPED_KEYS, DROPPED_TAGS, DROPPED_SHARDING_KEY},
    )


def _why_not(properties: Mapping[str, str], error: str) -> str:
    kind = properties.get(BODY)
    for name in (DELAY_LEVEL, DELIVER_AT_MS):
        if not _NUMBER.fullmatch(properties.get(name) or "0"):
            return f"its {name} is {properties[name]!r}, which is not a number"
    if kind == STORED or (kind is None and error == "CorruptMessage"):
        return "the stored message was itself corrupt; its body is unknown"
    if kind == ELEMENT:
        return "the element had no message; the letter contains the element, or the beginning of its text"
    return "the message had an empty body, which no producer here sends" if kind == EMPTY else ""


def _message_of(record: Record, properties: Mapping[str, str]) -> Message:
    own = user_properties(properties)
    delay_level = deliver_at_ms = None
    if ERROR in properties:
        delay_level, deliver_at_ms = properties.get(DELAY_LEVEL), properties.get(DELIVER_AT_MS)
        ours = {name for name in own if name.startswith(PREFIX) and not name.startswith(USER_PREFIX)}
        own = {_unescaped(name): value for name, value in own.items() if name not in ours}
    return Message(
        record.body,
        tags=record.tags or None,
        keys=record.keys,
        properties=own,
        sharding_key=record.sharding_key or None,
        delay_level=int(delay_level) if delay_level else None,
        deliver_at_ms=int(deliver_at_ms) if deliver_at_ms else None,
    )
