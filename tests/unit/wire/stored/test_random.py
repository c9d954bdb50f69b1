"""Properties of the decoder: what is encoded is decoded, and garbage gives `CorruptMessage` and nothing else."""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import CorruptMessage
from rmqio.model import Record
from tests.helpers.wire.stored_bytes import V2, Stored, encode_all, encode_member
from tests.helpers.wire.stored_decoding import IPV6, JAVA_TEXT, decode, inner_batch

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
host_v4 = st.binary(min_size=8, max_size=8)
stored_messages = st.builds(
    Stored,
    body=st.binary(max_size=200),
    topic=st.text("abcXYZ-_%|é", min_size=1, max_size=60).map(str.encode),
    properties=st.binary(max_size=100),
    magic=st.sampled_from([0xDAA320A7, V2]),
    queue_id=int32,
    flag=int32,
    queue_offset=int64,
    commit_log_offset=int64,
    sys_flag=st.sampled_from([0, 2, 4, 8, 12]),
    born_timestamp_ms=int64,
    born_host=host_v4,
    store_timestamp_ms=int64,
    store_host=host_v4,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


@given(st.lists(stored_messages, max_size=5), st.booleans())
def test_what_is_encoded_is_decoded(messages: list[Stored], check_crc: bool) -> None:
    records, corrupt = decode(encode_all(*messages), check_crc=check_crc)
    assert corrupt == ()
    assert records == [
        Record(
            message.topic.decode(),
            "broker-a",
            message.queue_id,
            message.queue_offset,
            message.body,
            message.born_timestamp_ms,
            message.store_timestamp_ms,
            message.properties,
            message.reconsume_times,
            message.sys_flag,
            message.flag,
            message.commit_log_offset,
            message.prepared_transaction_offset,
            message.born_host,
            message.store_host,
            zlib.crc32(message.body) & 0x7FFFFFFF,
            len(message.encode()),
        )
        for message in messages
    ]


def decode_garbage(data: bytes, check_crc: bool) -> None:
    """Nothing but CorruptMessage comes out, and every byte is accounted for otherwise."""
    try:
        records, corrupt = decode(data, check_crc=check_crc, max_body_bytes=1 << 16)
    except CorruptMessage:
        return
    assert not data or records or corrupt
    for record in records:
        assert len(record.body) <= max(1 << 16, len(data))
        assert isinstance(record.topic, str)


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_give_nothing_but_corrupt_message(data: bytes, check_crc: bool) -> None:
    decode_garbage(data, check_crc)
    decode_garbage(struct.pack(">iI", len(data) + 8, 0xDAA320A7) + data, check_crc)
    decode_garbage(struct.pack(">iI", len(data) + 8, V2) + data, check_crc)


SEEDS = [
    Stored(properties=b"KEYS\x01a\x02"),
    Stored(magic=V2, sys_flag=0x30, born_host=IPV6, store_host=IPV6),
    Stored(body=zlib.compress(JAVA_TEXT), sys_flag=0x301),
    Stored(body=lz4.frame.compress(JAVA_TEXT), sys_flag=0x101),
    Stored(body=zstandard.ZstdCompressor().compress(JAVA_TEXT), sys_flag=0x201),
    Stored(body=zstandard.ZstdCompressor(write_content_size=False).compress(JAVA_TEXT), sys_flag=0x201),
    inner_batch(encode_member(b"one", b"KEYS\x01a\x02"), encode_member(b"two")),
    inner_batch(encode_member(zlib.compress(b"one")), encode_member(zlib.compress(b"two")), sys_flag=0xC1),
]


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_mutated_messages_give_nothing_but_corrupt_message(
    seeds: list[Stored], changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(encode_all(*seeds))
    for position, value in changes:
        data[position % len(data)] = value
    # Without the CRC check the mutation reaches the decompressors and the inner batch.
    for check_crc in (True, False):
        decode_garbage(bytes(data[: len(data) - cut] if cut > 20 else data), check_crc)


@settings(max_examples=300)
@given(st.sampled_from(SEEDS[2:]), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1))
def test_mutated_bodies_give_nothing_but_corrupt_message(seed: Stored, changes: list[tuple[int, int]]) -> None:
    body = bytearray(seed.body)
    for position, value in changes:
        body[position % len(body)] = value
    decode_garbage(seed.but(body=bytes(body)).encode(), True)
