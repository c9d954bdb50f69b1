"""Decodes stored messages as one broker's, and the golden bytes of one message."""

from __future__ import annotations

from rmqio.errors import CorruptMessage
from rmqio.model import Record
from rmqio.wire.stored import Decoded, decode_records
from tests.helpers.wire.stored_bytes import Stored

IPV6 = bytes.fromhex("20010db8000000000000000000000001") + b"\x00\x00\x2a\x9f"
GOLDEN = b"".join(
    (
        b"\x00\x00\x00\x69",  # total size: 105
        b"\xda\xa3\x20\xa7",  # magic, version 1
        b"\x36\x10\xa6\x86",  # CRC-32 of the body: 907060870
        b"\x00\x00\x00\x03",  # queue id
        b"\x00\x00\x00\x07",  # flag
        b"\x00\x00\x00\x00\x00\x00\x00\x2a",  # queue offset: 42
        b"\x00\x00\x00\x01\x00\x00\x00\x00",  # commit log offset: 2**32
        b"\x00\x00\x00\x00",  # system flag
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x00",  # born: 1700000000000
        b"\x0a\x00\x00\x01",  # born host 10.0.0.1
        b"\x00\x00\x30\x39",  # its port 12345
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x01",  # stored: 1700000000001
        b"\x7f\x00\x00\x01",  # store host 127.0.0.1
        b"\x00\x00\x2a\x9f",  # its port 10911
        b"\x00\x00\x00\x02",  # reconsume times
        b"\xff\xff\xff\xff\xff\xff\xff\xff",  # prepared transaction offset: -1
        b"\x00\x00\x00\x05",  # body size
        b"hello",
        b"\x02",  # topic size
        b"a1",
        b"\x00\x07",  # size of properties
        b"TAGS\x01t\x02",
    )
)
GOLDEN_RECORD = Record(
    topic="a1",
    broker="broker-a",
    queue_id=3,
    queue_offset=42,
    body=b"hello",
    born_timestamp_ms=1_700_000_000_000,
    store_timestamp_ms=1_700_000_000_001,
    raw_properties=b"TAGS\x01t\x02",
    reconsume_times=2,
    sys_flag=0,
    flag=7,
    commit_log_offset=2**32,
    prepared_transaction_offset=-1,
    raw_born_host=b"\x0a\x00\x00\x01\x00\x00\x30\x39",
    raw_store_host=b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
    body_crc=907060870,
    stored_size=105,
)


def decode(data: bytes | memoryview, **options: object) -> Decoded:
    return decode_records(data, broker="broker-a", **options)  # type: ignore[arg-type]


def only_corrupt(data: bytes, **options: object) -> CorruptMessage:
    records, corrupt = decode(data, **options)
    assert records == []
    (error,) = corrupt
    return error


def inner_batch(*members: bytes, **fields: object) -> Stored:
    properties = b"INNER_NUM\x01%d\x02INNER_BASE\x01100\x02" % len(members)
    return Stored(body=b"".join(members), sys_flag=0xC0, queue_offset=100, properties=properties).but(**fields)


JAVA_TEXT = b"hello rocketmq " * 50
