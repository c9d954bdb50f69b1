"""Inner batches, which are one stored message: unwrapped, compressed, and broken."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard

from tests.helpers.wire.stored_bytes import Stored, encode_all, encode_member
from tests.helpers.wire.stored_decoding import decode, inner_batch, only_corrupt


def test_an_inner_batch_is_unwrapped() -> None:
    members = (encode_member(b"one", b"KEYS\x01a\x02", flag=9), encode_member(b"", b""), encode_member(b"three"))
    wrapper = inner_batch(*members, queue_id=4, commit_log_offset=77, reconsume_times=1)
    records, corrupt = decode(encode_all(wrapper, Stored(queue_offset=103)))
    assert corrupt == ()
    assert [record.queue_offset for record in records] == [100, 101, 102, 103]
    assert [record.body for record in records] == [b"one", b"", b"three", b"hello"]
    first = records[0]
    assert (first.raw_properties, first.flag, first.stored_size) == (b"KEYS\x01a\x02", 9, len(members[0]))
    assert first.body_crc == zlib.crc32(b"one") & 0x7FFFFFFF
    for record in records[:3]:
        assert (record.queue_id, record.commit_log_offset, record.reconsume_times) == (4, 77, 1)
        assert (record.sys_flag, record.topic) == (0xC0, "orders")
        assert record.store_timestamp_ms == wrapper.store_timestamp_ms
        assert record.raw_store_host == wrapper.store_host


@pytest.mark.parametrize(
    ("min_offset", "offsets"),
    [(0, [100, 101, 102]), (100, [100, 101, 102]), (101, [101, 102]), (102, [102]), (103, []), (10**18, [])],
)
def test_members_below_the_offset_asked_for_are_dropped(min_offset: int, offsets: list[int]) -> None:
    wrapper = inner_batch(encode_member(b"0"), encode_member(b"1"), encode_member(b"2"))
    records, corrupt = decode(wrapper.encode(), min_offset=min_offset)
    assert [record.queue_offset for record in records] == offsets
    assert [int(record.body) + 100 for record in records] == offsets
    assert corrupt == ()


def test_an_inner_batch_need_not_announce_its_number() -> None:
    wrapper = inner_batch(encode_member(b"0"), encode_member(b"1"), properties=b"")
    assert len(decode(wrapper.encode()).records) == 2


@pytest.mark.parametrize("flag", [0x40, 0x80])
def test_one_of_the_two_inner_batch_bits_does_not_unwrap(flag: int) -> None:
    (record,) = decode(inner_batch(encode_member(b"0"), sys_flag=flag).encode()).records
    assert record.body == encode_member(b"0")


def test_members_may_be_compressed_one_by_one() -> None:
    members = [encode_member(zlib.compress(body)) for body in (b"one", b"two")]
    records = decode(inner_batch(*members, sys_flag=0xC1).encode()).records
    assert [record.body for record in records] == [b"one", b"two"]
    assert records[0].body_crc == zlib.crc32(zlib.compress(b"one")) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("type_bits", "compress"),
    [(0x300, zlib.compress), (0x100, lz4.frame.compress), (0x200, zstandard.ZstdCompressor().compress)],
)
def test_a_batch_may_be_compressed_as_a_whole(type_bits: int, compress: object) -> None:
    plain = encode_member(b"one") + encode_member(b"two")
    wrapper = inner_batch(b"", b"", body=compress(plain), sys_flag=0xC1 | type_bits)  # type: ignore[operator]
    assert [record.body for record in decode(wrapper.encode()).records] == [b"one", b"two"]


def test_a_member_that_does_not_decompress_is_corrupt_by_itself() -> None:
    members = [encode_member(body) for body in (zlib.compress(b"one"), b"not zlib", zlib.compress(b"three"))]
    data = inner_batch(*members, sys_flag=0xC1, queue_id=2).encode()
    records, (error,) = decode(data)
    assert [(record.queue_offset, record.body) for record in records] == [(100, b"one"), (102, b"three")]
    assert (error.queue_id, error.queue_offset, error.next_offset) == (2, 101, 102)
    assert (error.raw, error.topic) == (members[1], "orders")
    assert decode(data, min_offset=102).corrupt == (), "below what was asked for"


@pytest.mark.parametrize(
    ("changes", "reason", "next_offset"),
    [
        ({"body": b""}, "0 members", 102),
        ({"body": encode_member(b"0")}, "1 members, announced are 2", 102),
        ({"body": encode_member(b"0") * 3}, "3 members, announced are 2", 102),
        ({"body": encode_member(b"0") * 2, "properties": b"INNER_NUM\x01x\x02"}, "announced are x", None),
        ({"body": encode_member(b"0") * 2, "properties": b"INNER_NUM\x01-2\x02"}, "announced are -2", None),
        ({"body": encode_member(b"0") * 2, "properties": b"INNER_NUM\x01\xb2\x02"}, "announced are", None),
        ({"body": encode_member(b"0") * 2, "properties": b"INNER_NUM\x0132768\x02"}, "announced are 32768", None),
        ({"body": encode_member(b"0") + b"x"}, "cut off", 102),
        ({"crc": 5}, "CRC", 102),
        ({"crc": 5, "properties": b""}, "CRC", None),
        ({"properties_size": 3}, "properties of 3 bytes", None),
    ],
)
def test_a_broken_inner_batch_is_one_corrupt_message(
    changes: dict[str, object], reason: str, next_offset: int | None
) -> None:
    wrapper = inner_batch(encode_member(b"0"), encode_member(b"1"), **changes)
    records, (error,) = decode(encode_all(wrapper, Stored(queue_offset=102)))
    assert [record.queue_offset for record in records] == [102]
    assert reason in error.reason
    assert (error.queue_offset, error.next_offset, error.raw) == (100, next_offset, wrapper.encode())


def test_an_inner_batch_at_a_negative_offset_is_corrupt_and_not_skipped() -> None:
    batch = inner_batch(encode_member(b"one"), encode_member(b"two"), queue_offset=-(1 << 63) + 100)
    assert only_corrupt(batch.encode()).queue_offset == -(1 << 63) + 100
