"""`KafkaRecord`: a message of Kafka, its coder, and what it is as a message of RocketMQ."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from apache_beam.coders import Coder, registry

from rmqio.errors import SerdeError, WireError
from rmqio.model import TOMBSTONE, Message, Record
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import copy_of, is_reserved

_HEAD: Final = struct.Struct(">BiqqII")
_NULL: Final = 0xFFFFFFFF
_VERSION: Final = 1


class KafkaRecord(NamedTuple):
    """A message of Kafka. To write one, only the value is needed."""

    value: bytes | None
    """None: a tombstone of a compacted topic."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = ""
    """For a write: the topic, if it is not that of the transform."""
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    """Milliseconds since 1970; -1: unknown, and for a write the time of the broker or client."""

    @property
    def body(self) -> bytes:
        """The value. Raises `SerdeError` for a tombstone."""
        if self.value is None:
            raise SerdeError("the message of Kafka has no value: it is a tombstone")
        return self.value

    def to_failure(self, error: Exception) -> ReadFailure:
        """Returns the element of an output `failed`. Its properties say where it comes from."""
        place = (
            ("kafka.offset", str(self.offset)),
            ("kafka.partition", str(self.partition)),
            ("kafka.topic", self.topic),
        )
        headers = tuple(
            (f"kafka.header.{name}", (value or b"").decode(errors="replace")) for name, value in self.headers
        )
        key = () if self.key is None else (("kafka.key", self.key.decode(errors="backslashreplace")),)
        return ReadFailure(
            "", "", -1, -1, "", "", "", 0, 0, type(error).__name__, str(error), self.value or b"",
            tuple(sorted(place + headers + key)),
        )  # fmt: skip


class KafkaRecordCoder(Coder):
    """A version, fixed fields, then texts and bytes with their lengths."""

    def encode(self, value: KafkaRecord) -> bytes:
        topic = value.topic.encode()
        parts = [
            _HEAD.pack(_VERSION, value.partition, value.offset, value.timestamp_ms, len(topic), len(value.headers))
        ]
        parts += [topic, *_blob(value.key), *_blob(value.value)]
        for name, content in value.headers:
            parts += [*_blob(name.encode("utf-8", "surrogatepass")), *_blob(content)]
        return b"".join(parts)

    def decode(self, encoded: bytes) -> KafkaRecord:
        try:
            version, partition, offset, timestamp_ms, length, count = _HEAD.unpack_from(encoded)
            if version != _VERSION:
                raise WireError(f"a Kafka record of version {version}; this rmqio reads version {_VERSION}")
            reader = _Reader(encoded, _HEAD.size)
            topic = reader.take(length).decode()
            key, value = reader.blob(), reader.blob()
            headers = tuple(
                ((reader.blob() or b"").decode("utf-8", "surrogatepass"), reader.blob()) for _ in range(count)
            )
        except struct.error as error:
            raise WireError(f"a Kafka record is truncated: {error}") from error
        return KafkaRecord(value, key, headers, topic, partition, offset, timestamp_ms)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return KafkaRecord

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) != length:
            raise struct.error(f"{length} bytes at {self._at} of {len(self._data)}")
        self._at += length
        return found

    def blob(self) -> bytes | None:
        (length,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4
        return None if length == _NULL else self.take(length)


def _blob(value: bytes | None) -> tuple[bytes, bytes]:
    return (struct.pack(">I", _NULL), b"") if value is None else (struct.pack(">I", len(value)), value)


registry.register_coder(KafkaRecord, KafkaRecordCoder)


# Messages of Kafka as messages of RocketMQ, and back, with equal keys and headers.
#
# Keys, properties' names and their values are text in RocketMQ, which reserves names, takes none that is empty, and
# keeps no order of properties. What does not come back by itself is encoded, in properties that say so.

KEY: Final = "rmqio.kafka.key"
"""The property that says that the key is `0x` and hexadecimal digits."""
HEADERS: Final = "rmqio.kafka.headers"
"""The property that has all headers: JSON, a list of pairs of a name and Base64 or null."""
_OURS: Final = (KEY, HEADERS, TOMBSTONE)
_HEX: Final = "hex"
Headers = tuple[tuple[str, bytes | None], ...]


def message_of(record: KafkaRecord) -> Message:
    """Returns the message of RocketMQ. Its key orders and finds it, as in Kafka. Raises `SerdeError`."""
    properties = {name: text for name, value in record.headers if (text := _text(value)) and _is_name(name)}
    if headers_of(properties) != record.headers:
        pairs = [(name, None if value is None else base64.b64encode(value).decode()) for name, value in record.headers]
        properties[HEADERS] = json.dumps(pairs, separators=(",", ":"))
    key = _text(record.key)
    if record.key is not None and (key is None or key.split() != [key]):
        key, properties[KEY] = f"0x{record.key.hex()}", _HEX
    if record.value is None:
        if key is None:
            raise SerdeError("a tombstone of Kafka needs a key: it deletes what the key names")
        properties[TOMBSTONE] = "true"
    keys = () if key is None else (key,)
    return Message(record.value or b"", keys=keys, sharding_key=key, properties=properties)


def record_of(message: Message, timestamp_ms: int = -1) -> KafkaRecord:
    """Returns the message of Kafka, which is the one of `message_of` again. Raises `SerdeError`."""
    text = message.sharding_key or (message.keys[0] if message.keys else None)
    key = None if text is None else text.encode()
    if text is not None and message.properties.get(KEY) == _HEX:
        try:
            key = bytes.fromhex(text.removeprefix("0x"))
        except ValueError as error:
            raise SerdeError(f"the property {KEY} is {_HEX!r}, but the key {text!r:.60} is not hexadecimal") from error
    if message.is_tombstone and key is None:
        raise SerdeError("a tombstone needs a key: it deletes what the key names")
    value = None if message.is_tombstone else message.body
    return KafkaRecord(value, key, headers_of(message.properties), timestamp_ms=timestamp_ms)


def deleted_key(element: Any) -> str | None:
    """Returns the key that a tombstone deletes, of Kafka or RocketMQ; None: it is none. Raises `SerdeError`."""
    if isinstance(element, Record):
        if element.body:  # the usual case
            return None
        element = copy_of(element)
    if isinstance(element, Message):
        if not element.is_tombstone:
            return None
        element = record_of(element)
    if not isinstance(element, KafkaRecord) or element.value is not None:
        return None
    try:
        return (element.key or b"").decode()
    except UnicodeDecodeError as error:
        raise SerdeError(f"the key of a tombstone is not UTF-8: {element.key!r:.60}") from error


def headers_of(properties: Mapping[str, str]) -> Headers:
    """Returns the headers that properties stand for: those of `HEADERS` first, then others by name."""
    listed: list[tuple[str, bytes | None]] = []
    try:
        for name, value in json.loads(properties.get(HEADERS, "[]")):
            listed.append((str(name), None if value is None else base64.b64decode(value, validate=True)))
    except (ValueError, TypeError) as error:
        raise SerdeError(f"the property {HEADERS} is not a list of headers: {error}") from error
    known = {*_OURS, *(name for name, _ in listed)}
    return *listed, *((name, properties[name].encode()) for name in sorted(properties) if name not in known)


def _text(value: bytes | None) -> str | None:
    """Returns what can be a text of RocketMQ. None: it is another one, or nothing."""
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return None
    return text if text and "\x01" not in text and "\x02" not in text else None


def _is_name(name: str) -> bool:
    return _text(name.encode("utf-8", "surrogatepass")) is not None and not is_reserved(name) and name not in _OURS
