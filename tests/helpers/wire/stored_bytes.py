"""An encoder of the stored message layout, written from the protocol notes and independent of rmqio's own code."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any

V1 = 0xDAA320A7
V2 = 0xDAA320AB


@dataclass(frozen=True)
class Stored:
    """The fields of one stored message. None: computed, so that tests can set wrong sizes and checksums on purpose."""

    body: bytes = b"hello"
    topic: bytes = b"orders"
    properties: bytes = b""
    magic: int = V1
    crc: int | None = None
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 1_700_000_000_000
    born_host: bytes = b"\x7f\x00\x00\x01" + b"\x00\x00\x30\x39"
    store_timestamp_ms: int = 1_700_000_000_001
    store_host: bytes = b"\x7f\x00\x00\x01" + b"\x00\x00\x2a\x9f"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    total_size: int | None = None
    body_size: int | None = None
    topic_size: int | None = None
    properties_size: int | None = None

    def but(self, **changes: Any) -> Stored:
        return replace(self, **changes)

    def encode(self) -> bytes:
        crc = zlib.crc32(self.body) & 0x7FFFFFFF if self.crc is None else self.crc
        body_size = len(self.body) if self.body_size is None else self.body_size
        topic_size = len(self.topic) if self.topic_size is None else self.topic_size
        properties_size = len(self.properties) if self.properties_size is None else self.properties_size
        after_size = b"".join(
            (
                struct.pack(">I", self.magic),
                struct.pack(">I", crc),
                struct.pack(">i", self.queue_id),
                struct.pack(">i", self.flag),
                struct.pack(">q", self.queue_offset),
                struct.pack(">q", self.commit_log_offset),
                struct.pack(">i", self.sys_flag),
                struct.pack(">q", self.born_timestamp_ms),
                self.born_host,
                struct.pack(">q", self.store_timestamp_ms),
                self.store_host,
                struct.pack(">i", self.reconsume_times),
                struct.pack(">q", self.prepared_transaction_offset),
                struct.pack(">i", body_size),
                self.body,
                struct.pack(">H" if self.magic == V2 else ">B", topic_size),
                self.topic,
                struct.pack(">h", properties_size),
                self.properties,
            )
        )
        total_size = 4 + len(after_size) if self.total_size is None else self.total_size
        return struct.pack(">i", total_size) + after_size


def encode_all(*messages: Stored) -> bytes:
    """Returns the body of a pull response."""
    return b"".join(message.encode() for message in messages)


def encode_member(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """Returns one member of a batch: size, magic 0, CRC 0, flag, body size, body, properties size, properties."""
    return (
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )
