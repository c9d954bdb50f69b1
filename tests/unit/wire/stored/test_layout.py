"""Stored messages: golden bytes, and each variant of the layout."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard

from rmqio.model import Record
from rmqio.wire.stored import Decoded
from tests.helpers.wire.stored_bytes import V2, Stored, encode_all
from tests.helpers.wire.stored_decoding import GOLDEN, GOLDEN_RECORD, IPV6, JAVA_TEXT, decode


@pytest.mark.parametrize("topic", [None, "a1", "another", "", "x" * 300, "\ud800"])
def test_golden_bytes_decode_the_same_whatever_topic_was_announced(topic: str | None) -> None:
    assert decode(GOLDEN, topic=topic) == Decoded([GOLDEN_RECORD], ())
    assert decode(GOLDEN * 3, topic=topic).records == [GOLDEN_RECORD] * 3
    assert all(type(record) is Record for record in decode(GOLDEN * 3, topic=topic).records)


def test_the_test_encoder_agrees_with_the_golden_bytes() -> None:
    stored = Stored(
        body=b"hello",
        topic=b"a1",
        properties=b"TAGS\x01t\x02",
        queue_id=3,
        flag=7,
        queue_offset=42,
        commit_log_offset=2**32,
        born_host=b"\x0a\x00\x00\x01\x00\x00\x30\x39",
        reconsume_times=2,
        prepared_transaction_offset=-1,
    )
    assert stored.encode() == GOLDEN


def test_nothing_decodes_to_nothing() -> None:
    assert decode(b"") == Decoded([], ())


def test_a_memoryview_decodes_to_independent_bytes() -> None:
    buffer = bytearray(GOLDEN)
    records = decode(memoryview(buffer)).records
    buffer[:] = bytes(len(buffer))
    assert records == [GOLDEN_RECORD]
    assert type(records[0].body) is bytes


@pytest.mark.parametrize("magic", [0xDAA320A7, V2])
@pytest.mark.parametrize(("born_flag", "born_host"), [(0, b"\x0a\x00\x00\x01\x00\x00\x30\x39"), (0x10, IPV6)])
@pytest.mark.parametrize(("store_flag", "store_host"), [(0, b"\x0a\x00\x00\x02\x00\x00\x2a\x9f"), (0x20, IPV6)])
def test_each_version_with_each_kind_of_host(
    magic: int, born_flag: int, born_host: bytes, store_flag: int, store_host: bytes
) -> None:
    stored = Stored(
        magic=magic,
        sys_flag=born_flag | store_flag,
        born_host=born_host,
        store_host=store_host,
        properties=b"KEYS\x01k\x02",
    )
    data = encode_all(stored.but(queue_offset=1), stored.but(queue_offset=2))
    records, corrupt = decode(data)
    assert corrupt == ()
    assert [record.queue_offset for record in records] == [1, 2]
    for record in records:
        assert (record.raw_born_host, record.raw_store_host) == (born_host, store_host)
        assert (record.body, record.topic, record.raw_properties) == (b"hello", "orders", b"KEYS\x01k\x02")
        assert record.stored_size * 2 == len(data)


def test_addresses_read_as_text() -> None:
    (record,) = decode(Stored(sys_flag=0x10, born_host=IPV6).encode()).records
    assert (record.born_host, record.store_host) == ("[2001:db8::1]:10911", "127.0.0.1:10911")


def test_a_long_topic_needs_version_2() -> None:
    topic = "%RETRY%" + "g" * 293
    (record,) = decode(Stored(magic=V2, topic=topic.encode()).encode()).records
    assert record.topic == topic


def test_topics_versions_and_compression_may_alternate() -> None:
    messages = [
        Stored(topic=b"a", body=b"1"),
        Stored(topic=b"b", body=b"2"),
        Stored(topic=b"b", body=b"3", magic=V2),
        Stored(topic=b"b", body=zlib.compress(b"4"), sys_flag=1),
        Stored(topic=b"a", body=b"5", properties=b"x\x01y"),
        Stored(topic="grün".encode(), body=b""),
    ]
    records = decode(encode_all(*messages)).records
    assert [(record.topic, record.body) for record in records] == [
        ("a", b"1"),
        ("b", b"2"),
        ("b", b"3"),
        ("b", b"4"),
        ("a", b"5"),
        ("grün", b""),
    ]


def test_all_records_of_a_topic_share_one_string() -> None:
    first, second = decode(GOLDEN * 2).records
    (third,) = decode(GOLDEN).records
    assert first.topic is second.topic is third.topic
    announced = "a1".replace("", "")
    assert all(record.topic is announced for record in decode(GOLDEN * 3, topic=announced).records)


def test_negative_offsets_are_returned_as_they_are() -> None:
    assert decode(Stored(queue_offset=-5).encode()).records[0].queue_offset == -5


@pytest.mark.parametrize("transaction_flag", [0x4, 0x8, 0xC, 0x2])
def test_flags_that_do_not_change_the_layout_are_kept(transaction_flag: int) -> None:
    assert decode(Stored(sys_flag=transaction_flag).encode()).records[0].sys_flag == transaction_flag


@pytest.mark.parametrize(
    ("type_bits", "stored_body", "prefix"),
    [
        (0x000, zlib.compress(JAVA_TEXT, 5), "785e"),
        (0x300, zlib.compress(JAVA_TEXT, 5), "785e"),
        (0x100, lz4.frame.compress(JAVA_TEXT), "04224d18"),
        (0x200, zstandard.ZstdCompressor().compress(JAVA_TEXT), "28b52ffd"),
        (0x200, zstandard.ZstdCompressor(write_content_size=False).compress(JAVA_TEXT), "28b52ffd"),
    ],
)
def test_each_compression_is_undone(type_bits: int, stored_body: bytes, prefix: str) -> None:
    assert stored_body.hex().startswith(prefix)
    (record,) = decode(Stored(body=stored_body, sys_flag=0x1 | type_bits).encode()).records
    assert record.body == JAVA_TEXT
    assert record.sys_flag == 0x1 | type_bits
    assert record.body_crc == zlib.crc32(stored_body) & 0x7FFFFFFF, "of the body as stored"


def test_an_empty_body_is_not_decompressed() -> None:
    assert decode(Stored(body=b"", sys_flag=0x301).encode()).records[0].body == b""


def test_the_crc_check_can_be_left_out() -> None:
    assert decode(Stored(crc=1).encode(), check_crc=False).records[0].body == b"hello"
