"""The form of a dead letter: a message whose properties say where it comes from, what failed, and how to undo it.

`rmqio.transforms` writes letters, `rmqio.replay` reads them without Beam. One property a coordinate, since consoles
show properties and SQL92 filters compare them: `RMQIO_TOPIC = 'orders' AND RMQIO_QUEUE_OFFSET > 100`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqio.model import Message, MessageQueue, Record
from rmqio.wire.batch import MAX_MESSAGE_BYTES
from rmqio.wire.properties import MAX_PROPERTIES_BYTES, is_reserved, user_properties

PREFIX: Final = "RMQIO_"
USER_PREFIX: Final = "RMQIO_USER_"
"""Stands for `RMQIO_` in names of the sender's own that begin so: its `RMQIO_TENANT` is `RMQIO_USER_TENANT`."""

TOPIC: Final = "RMQIO_TOPIC"
BROKER: Final = "RMQIO_BROKER"
QUEUE_ID: Final = "RMQIO_QUEUE_ID"
QUEUE_OFFSET: Final = "RMQIO_QUEUE_OFFSET"
MESSAGE_ID: Final = "RMQIO_MESSAGE_ID"
BORN_TIMESTAMP_MS: Final = "RMQIO_BORN_TIMESTAMP_MS"
STORE_TIMESTAMP_MS: Final = "RMQIO_STORE_TIMESTAMP_MS"
ORIGIN: Final = "RMQIO_ORIGIN"
"""`topic/broker/queue/offset`, in one."""

SINK_TOPIC: Final = "RMQIO_SINK_TOPIC"
"""Of a letter from a write: the topic that the body, a message for it, could not be written to."""
SINK_MESSAGE_ID: Final = "RMQIO_SINK_MESSAGE_ID"
"""The stable id that it would have had there."""
DELAY_LEVEL: Final = "RMQIO_DELAY_LEVEL"
DELIVER_AT_MS: Final = "RMQIO_DELIVER_AT_MS"
"""When it would have been delivered there."""

ERROR: Final = "RMQIO_ERROR"
"""`class: reason`, in one."""
ERROR_CLASS: Final = "RMQIO_ERROR_CLASS"
ERROR_REASON: Final = "RMQIO_ERROR_REASON"

BODY: Final = "RMQIO_BODY"
"""What the letter's body is, where it is not the message's: one of the next three."""
EMPTY: Final = "empty"
"""The message had an empty body; a broker takes no such message by itself, so one zero byte stands for it."""
STORED: Final = "stored"
"""The stored bytes of a message that is itself broken; at most the first 4 MiB of them."""
ELEMENT: Final = "element"
"""An element that gave no message: bytes as they are, of others the beginning of their `repr`."""

DROPPED_PROPERTIES: Final = "RMQIO_DROPPED_PROPERTIES"
"""How many of the sender's properties are left out: they found no room, or are not text."""
DROPPED_KEYS: Final = "RMQIO_DROPPED_KEYS"
DROPPED_TAGS: Final = "RMQIO_DROPPED_TAGS"
DROPPED_SHARDING_KEY: Final = "RMQIO_DROPPED_SHARDING_KEY"

_MAX_REASON: Final = 1_000
_MAX_TEXT: Final = 300
"""Characters of our other values."""
_ROOM_FOR_ID: Final = 64
_NATIVE_NAME: Final = 16
"""About what RocketMQ's own names of tags, keys and sharding key take."""
_NUMBER: Final = re.compile("[0-9]{1,18}")


class Failed(NamedTuple):
    """What a letter is made of; texts are empty where nothing is known."""

    body: bytes
    error: str
    """The error's class name."""
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
    """The sender's own."""
    kind: str = ""
    """`STORED` or `ELEMENT` where the body is not the message's."""
    sink_topic: str = ""
    sink_message_id: str = ""
    delay_level: int | None = None
    deliver_at_ms: int | None = None


def make_letter(failed: Failed) -> Message:
    """The message for a dead-letter topic: as it was sent, with coordinates and reason as further properties.

    It can always be sent, unless its body is larger than a broker takes: what would make it illegal (bytes that are no
    text) or too large is left out, and counted in a property.
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
            # 0: a message that is itself broken does not tell
            BORN_TIMESTAMP_MS: str(failed.born_timestamp_ms or ""),
            STORE_TIMESTAMP_MS: str(failed.store_timestamp_ms or ""),
        }
    return {name: _legal(value) for name, value in values.items() if value}


def _escaped(name: str) -> str:
    """A name of the sender's that is none of ours; `_unescaped` undoes it."""
    return USER_PREFIX + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name


def _unescaped(name: str) -> str:
    return PREFIX + name.removeprefix(USER_PREFIX) if name.startswith(USER_PREFIX) else name


def _size(name: str, value: str) -> int:
    return len(name.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass")) + 2


def _is_legal(text: str) -> bool:
    """Whether a broker stores it as it is: what was no UTF-8 has become lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return bool(text) and "\x01" not in text and "\x02" not in text


def _legal(text: str) -> str:
    """Legal, and as legible as can be."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x01", " ").replace("\x02", " ")


def letter_id(letter: Message) -> str:
    """The unique id for a letter: of the same failure the same, so that a bundle that is run again makes duplicates
    that can be recognised.

    It follows from where the message comes from. Where that is not known, from what failed: all of the letter but the
    text of the error, which may differ from try to try. Equal messages that fail so have one id, though they are
    several; `read_letter` therefore tells those apart by their places.
    """
    return identity(letter.properties) or _content_id(letter)


def _content_id(letter: Message) -> str:
    said = sorted(item for item in letter.properties.items() if item[0] not in (ERROR, ERROR_REASON))
    fields = letter.topic, letter.tags, letter.keys, letter.sharding_key, letter.delay_level, letter.deliver_at_ms, said
    digest = hashlib.blake2b(ascii(fields).encode(), digest_size=16)  # ascii: no \x00, and legal whatever is in it
    digest.update(b"\x00" + letter.body)
    return digest.hexdigest().upper()


def identity(properties: Mapping[str, str]) -> str | None:
    """32 hexadecimal digits that depend on where a letter comes from only; None: that is not known."""
    if ORIGIN not in properties and SINK_MESSAGE_ID not in properties:
        return None
    names = (ORIGIN, MESSAGE_ID, SINK_TOPIC, SINK_MESSAGE_ID)
    return _digest("dead letter", *(properties.get(name, "") for name in names))


def _digest(*parts: str) -> str:
    joined = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=16).hexdigest().upper()


class DeadLetter(NamedTuple):
    """A letter, read again."""

    record: Record
    topic: str
    """Where it would go back to: the topic that it was read from, or could not be written to; empty: not known."""
    error: str
    """The error's class name."""
    reason: str
    message: Message | None
    """As it was sent the first time; None when that is not known."""
    message_id: str
    """For the message when it is sent back: the same each time. Letters of one failure have the same, if they have
    coordinates; of others each has its own. Not the id of the first time, by which whoever drops duplicates knows it
    already, unless it never got to its topic."""
    why_not: str = ""
    """Why there is no message."""
    is_whole: bool = True
    """Whether nothing had to be left out of the letter."""


def read_letter(record: Record) -> DeadLetter:
    """What a record of a dead-letter topic says; one that is no letter has no error, and is a message as it is."""
    properties = record.properties
    said = properties if ERROR in properties else {}  # what is no letter may have properties named like ours
    error, _, reason = said.get(ERROR, "").partition(": ")
    error = said.get(ERROR_CLASS, error)
    topic = said.get(SINK_TOPIC) or said.get(TOPIC)
    if topic is None:
        topic = said.get(ORIGIN, "").rsplit("/", 3)[0]
    # The id of a letter without coordinates may be that of an equal one: its place is its own.
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
            return f"its {name} is {properties[name]!r}, which is no number"
    if kind == STORED or (kind is None and error == "CorruptMessage"):
        return "the stored message was itself broken; its body is not known"
    if kind == ELEMENT:
        return "the element gave no message; the letter holds the element, or the beginning of its text"
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
