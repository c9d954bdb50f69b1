"""Messages of Kafka as messages of RocketMQ, and back, with equal keys and headers.

Keys, properties' names and their values are text in RocketMQ, which reserves names, takes none that is empty, and keeps
no order of properties. What does not come back by itself is encoded, in properties that say so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from rmqio.connect.kafka.records import KafkaRecord
from rmqio.errors import SerdeError
from rmqio.model import TOMBSTONE, Message, Record
from rmqio.transforms.parts import copy_of, is_reserved

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
