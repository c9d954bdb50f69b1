"""The layout of a stored message (MessageDecoder.java, MessageExtEncoder.java), and how to split it into its fields."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rmqio.wire.messages.bodies import BodyError

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""The topic's length takes two bytes instead of one."""
MAGIC_BLANK: Final = 0xCBD43194
"""The rest of a commit log file is empty. Never sent to clients."""

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20

# size, magic, body CRC, queue, flag, queue offset, commit log offset, system flag, born time and host, store time and
# host, reconsume times, prepared transaction offset, body size: all that comes before the body, with IPv4 hosts.
HEADER: Final = struct.Struct(">iIIiiqqiq8sq8siqi")
SIZE_AND_MAGIC: Final = struct.Struct(">iI")
BEFORE_HOSTS: Final = struct.Struct(">iIIiiqqiq")
_INT64: Final = struct.Struct(">q")
_BEFORE_BODY: Final = struct.Struct(">iqi")
_INT16: Final = struct.Struct(">h")


class Fields(NamedTuple):
    """A stored message split into its fields."""

    crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes
    size: int


def smallest(magic: int) -> int:
    """Return the minimum size of a message."""
    return HEADER.size + (1 if magic == MAGIC_V1 else 2) + _INT16.size


def cut(data: bytes, position: int, end: int, magic: int) -> Fields:
    """Split the message in data[position:end], which has room for the smallest header.

    Raises `BodyError` for impossible sizes.
    """
    _, _, crc, queue_id, flag, queue_offset, commit_log_offset, sys_flag, born = BEFORE_HOSTS.unpack_from(
        data, position
    )
    born_host_at = position + BEFORE_HOSTS.size
    stored_at = born_host_at + (20 if sys_flag & BORN_HOST_V6 else 8)
    store_host_at = stored_at + _INT64.size
    reconsumed_at = store_host_at + (20 if sys_flag & STORE_HOST_V6 else 8)
    body_at = reconsumed_at + _BEFORE_BODY.size
    topic_length_size = 1 if magic == MAGIC_V1 else 2
    if body_at + topic_length_size + _INT16.size > end:
        raise BodyError(f"size {end - position} is less than its fields take")
    (stored,) = _INT64.unpack_from(data, stored_at)
    reconsumed, prepared, body_size = _BEFORE_BODY.unpack_from(data, reconsumed_at)
    body_end = body_at + body_size
    if body_size < 0 or body_end + topic_length_size + _INT16.size > end:
        raise BodyError(f"body of {body_size} bytes in a message of {end - position} bytes")
    topic_at = body_end + topic_length_size
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    properties_at = topic_end + _INT16.size
    if properties_at > end:
        raise BodyError(f"topic of {topic_end - topic_at} bytes extends beyond the message")
    (properties_size,) = _INT16.unpack_from(data, topic_end)
    if properties_at + properties_size != end:
        raise BodyError(f"properties of {properties_size} bytes where the message has {end - properties_at}")
    return Fields(
        crc,
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag,
        born,
        data[born_host_at:stored_at],
        stored,
        data[store_host_at:reconsumed_at],
        reconsumed,
        prepared,
        data[body_at:body_end],
        data[topic_at:topic_end],
        data[properties_at:end],
        end - position,
    )
