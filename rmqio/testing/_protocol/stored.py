"""Encodes messages as a broker stores and returns them (MessageExtEncoder.java), independently of our decoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from rmqio.model import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, Record

_MAGIC_V1 = -626843481
_MAGIC_V2 = -626843477
_HEAD = struct.Struct(">iiiiiqqiq")
"""Size, magic, body CRC, queue id, flag, queue offset, physical offset, system flag, born time."""
LOOPBACK = bytes((127, 0, 0, 1))


def raw_host(port: int, address: bytes = LOOPBACK) -> bytes:
    """Return address and port as in a stored message."""
    return address + port.to_bytes(4, "big")


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def raw_properties(properties: Mapping[str, str]) -> bytes:
    """Return the stored form of properties. Checks nothing: a broker stores what it is given."""
    text = "".join(f"{k}{NAME_VALUE_SEPARATOR}{v}{PROPERTY_SEPARATOR}" for k, v in properties.items())
    return text.encode("utf-8", "surrogateescape")


def stored_size(topic: str, body: bytes, properties: bytes) -> int:
    """Return the size of a message with IPv4 hosts."""
    name = len(topic.encode())
    return 88 + len(body) + (1 if name <= 127 else 2) + name + 2 + len(properties)


def encode_stored(record: Record, stored_body: bytes | None = None) -> bytes:
    """Return the bytes of one message; `stored_body` is its stored body if that differs (compressed)."""
    body = record.body if stored_body is None else stored_body
    topic = record.topic.encode()
    long_topic = len(topic) > 127
    rest = b"".join(
        (
            record.raw_born_host,
            struct.pack(">q", record.store_timestamp_ms),
            record.raw_store_host,
            struct.pack(">iqi", record.reconsume_times, record.prepared_transaction_offset, len(body)),
            body,
            struct.pack(">h" if long_topic else ">b", len(topic)),
            topic,
            struct.pack(">h", len(record.raw_properties)),
            record.raw_properties,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(rest),
        _MAGIC_V2 if long_topic else _MAGIC_V1,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.commit_log_offset,
        record.sys_flag,
        record.born_timestamp_ms,
    )
    return head + rest
