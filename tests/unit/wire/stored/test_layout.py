"""Stored messages: golden bytes, each variant of the layout, and every way to be broken."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import CorruptMessage, WireError
from rmqio.model import MessageQueue, Record
from rmqio.wire.command import Command
from rmqio.wire.requests import parse_pull
from rmqio.wire.stored import DEFAULT_MAX_BODY_BYTES, MAX_PULL_BYTES, Decoded, Room, decode_records
from tests.helpers.implementations import BOTH, using
from tests.helpers.stored_bytes import V2, Stored, encode_all, encode_member

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


@pytest.fixture(params=BOTH, autouse=True, scope="module")
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


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


# --- what decodes ---------------------------------------------------------------------------------------------------


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


def test_negative_offsets_are_told_as_they_are() -> None:
    assert decode(Stored(queue_offset=-5).encode()).records[0].queue_offset == -5


@pytest.mark.parametrize("transaction_flag", [0x4, 0x8, 0xC, 0x2])
def test_flags_that_do_not_change_the_layout_are_kept(transaction_flag: int) -> None:
    assert decode(Stored(sys_flag=transaction_flag).encode()).records[0].sys_flag == transaction_flag


JAVA_TEXT = b"hello rocketmq " * 50


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


# --- inner batches --------------------------------------------------------------------------------------------------


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


# --- single messages that do not decode -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"crc": 1}, "CRC of the body is 907060870, stored is 1"),
        ({"crc": 907060870 | 1 << 31}, "CRC"),
        ({"sys_flag": 0x401}, "unknown compression type 4"),
        ({"sys_flag": 0x701}, "unknown compression type 7"),
        ({"sys_flag": 0x001}, "zlib"),
        ({"sys_flag": 0x301}, "zlib"),
        ({"sys_flag": 0x101}, "LZ4"),
        ({"sys_flag": 0x201}, "zstd"),
        ({"sys_flag": 0x301, "body": zlib.compress(b"x" * 100)[:-1]}, "incomplete"),
        ({"sys_flag": 0x301, "body": zlib.compress(b"x" * 100) + b"!"}, "1 bytes after its end"),
        ({"sys_flag": 0x10}, "less than its fields take"),
        ({"body_size": -1}, "body of -1 bytes"),
        ({"body_size": 2**31 - 1}, "body of 2147483647 bytes"),
        ({"topic_size": 255}, "topic of 255 bytes"),
        ({"topic": b"\xff"}, "not UTF-8"),
        ({"properties_size": 1}, "properties of 1 bytes"),
        ({"properties_size": -1}, "properties of -1 bytes"),
        ({"properties": b"a\x01b", "properties_size": 2}, "properties of 2 bytes"),
        ({"magic": V2, "topic_size": 65535}, "topic of 65535 bytes"),
    ],
)
@pytest.mark.parametrize("topic", [None, "orders"])
def test_a_broken_message_is_reported_and_the_next_one_is_decoded(
    topic: str | None, changes: dict[str, object], reason: str
) -> None:
    broken = Stored(queue_id=5, queue_offset=11).but(**changes)
    data = encode_all(Stored(queue_offset=10), broken, Stored(queue_offset=12))
    records, (error,) = decode(data, topic=topic)
    assert [record.queue_offset for record in records] == [10, 12]
    assert reason in error.reason
    assert (error.topic, error.broker, error.queue_id, error.queue_offset) == ("orders", "broker-a", 5, 11)
    assert (error.next_offset, error.raw) == (12, broken.encode())
    assert isinstance(error.__cause__, ValueError)
    assert pickle.loads(pickle.dumps(error)).raw == error.raw


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
def test_a_size_too_small_for_ipv6_hosts_is_a_broken_message(sys_flag: int) -> None:
    error = only_corrupt(Stored(body=b"", topic=b"", sys_flag=sys_flag).encode())
    assert "less than its fields take" in error.reason


@pytest.mark.parametrize(
    ("kind", "bomb"),
    [
        (0x301, zlib.compress(bytes(64 << 20), 9)),
        (0x101, lz4.frame.compress(bytes(64 << 20))),
        (0x101, lz4.frame.compress(bytes(64 << 20), store_size=False)),
        (0x201, zstandard.ZstdCompressor().compress(bytes(64 << 20))),
        (0x201, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
    ],
)
def test_a_bomb_is_refused_before_it_takes_memory(kind: int, bomb: bytes) -> None:
    data = Stored(body=bomb, sys_flag=kind).encode()
    tracemalloc.start()
    error = only_corrupt(data, max_body_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 1048576 bytes" in error.reason
    assert peak < 4 * (1 << 20) + 2 * len(data)


def test_the_limit_itself_is_allowed() -> None:
    data = Stored(body=zlib.compress(bytes(1000)), sys_flag=1).encode()
    assert decode(data, max_body_bytes=1000).records[0].body == bytes(1000)
    assert "more than 999 bytes" in only_corrupt(data, max_body_bytes=999).reason


def test_the_limit_holds_for_all_members_of_a_batch_together() -> None:
    member = encode_member(zlib.compress(bytes(400)))
    records, corrupt = decode(inner_batch(*[member] * 4, sys_flag=0xC1).encode(), max_body_bytes=1000)
    assert [record.queue_offset for record in records] == [100, 101]
    assert [error.queue_offset for error in corrupt] == [102, 103]


def compressed(offset: int, size: int, **changes: Any) -> Stored:
    return Stored(body=zlib.compress(bytes(size)), sys_flag=1, queue_offset=offset).but(**changes)


def test_what_finds_no_room_beside_other_messages_is_left_for_the_next_pull() -> None:
    """It is not corrupt on account of its neighbours."""
    stream = [compressed(10, 900), Stored(queue_offset=11), *(compressed(offset, 900) for offset in (12, 13))]
    data = encode_all(*stream, Stored(queue_offset=14))
    room = Room(2500)
    records, corrupt = decode(data, max_body_bytes=1000, room=room)
    assert ([record.queue_offset for record in records], corrupt) == ([10, 11, 12], ())
    assert (room.used_bytes, room.next_offset) == (1800, 13)
    (last,) = decode(stream[3].encode(), max_body_bytes=1000, room=Room(1)).records
    assert len(last.body) == 900, "the first one has as much as a message may take"
    room = Room(2700)
    assert len(decode(data, max_body_bytes=900, room=room).records) == 5
    assert room.next_offset is None, "the last one may take all that is left"


@pytest.mark.parametrize("is_whole", [True, False], ids=["compressed as a whole", "compressed members"])
def test_inner_batches_share_the_room_of_the_pull(is_whole: bool) -> None:
    member = encode_member(bytes(400) if is_whole else zlib.compress(bytes(400)))
    body = zlib.compress(member * 2) if is_whole else member * 2
    properties = b"INNER_NUM\x012\x02"
    batches = [Stored(body=body, sys_flag=0xC1, queue_offset=o, properties=properties) for o in (100, 102, 104)]
    room = Room(2000)
    records, corrupt = decode(encode_all(*batches), max_body_bytes=1000, room=room)
    assert ([record.queue_offset for record in records], corrupt) == ([100, 101, 102, 103], ())
    assert room.next_offset == 104


def test_what_is_too_large_by_itself_is_corrupt_and_takes_no_room() -> None:
    room = Room(2000)
    data = encode_all(compressed(10, 1001), compressed(11, 1000), compressed(12, 1000), compressed(13, 1))
    records, corrupt = decode(data, max_body_bytes=1000, room=room)
    assert [error.queue_offset for error in corrupt] == [10]
    assert ([record.queue_offset for record in records], room.next_offset) == ([11, 12], 13)


def test_a_pull_of_bombs_that_are_small_enough_one_by_one_takes_bounded_memory() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(DEFAULT_MAX_BODY_BYTES))
    data = encode_all(*(Stored(body=bomb, sys_flag=0x201, queue_offset=offset) for offset in range(32)))
    assert len(data) < 32_000
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "32", "minOffset": "0", "maxOffset": "32"}
    tracemalloc.start()
    result = parse_pull(Command(0, ext, data), MessageQueue("orders", "broker-a", 0), 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_PULL_BYTES + (1 << 20)
    assert (len(result.records), result.next_offset, result.corrupt) == (4, 4, ())
    assert result.decompressed_bytes == MAX_PULL_BYTES


@pytest.mark.parametrize("wrong", [0, 7, 8, 99])
def test_an_offset_to_go_on_at_that_cannot_be_is_refused(wrong: int) -> None:
    large = zlib.compress(bytes(DEFAULT_MAX_BODY_BYTES))
    data = encode_all(*(Stored(body=large, sys_flag=1, queue_offset=o) for o in (1, 2, 3, 4, wrong)))
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "7", "minOffset": "0", "maxOffset": "7"}
    with pytest.raises(WireError, match=f"a message at offset {wrong}"):
        parse_pull(Command(0, ext, data), MessageQueue("orders", "broker-a", 0), 1)


def test_members_that_break_off_are_not_all_decompressed_in_vain() -> None:
    """Each could cost as much as the largest body, and a message has room for thousands of them."""
    broken, good = encode_member(zlib.compress(bytes(100_000))[:-1]), encode_member(zlib.compress(b"good"))
    records, corrupt = decode(inner_batch(*[broken] * 15, good, broken, good, sys_flag=0xC1).encode())
    assert [record.body for record in records] == [b"good"]
    assert [error.queue_offset for error in corrupt] == [*range(100, 115), 116, 117]
    assert "more than 0 bytes" in str(corrupt[-1])
    assert corrupt[-1].raw == good


# --- bytes that cannot be cut into messages -------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [None, "a1"])
def test_a_cut_at_every_byte_raises(topic: str | None) -> None:
    for length in range(1, len(GOLDEN)):
        with pytest.raises(CorruptMessage, match="cut off") as caught:
            decode(GOLDEN + GOLDEN[:length], topic=topic)
        known = length >= 48
        assert caught.value.queue_offset == (42 if known else -1)
        assert caught.value.queue_id == (3 if known else -1)
        assert (caught.value.topic, caught.value.broker) == ("a1", "broker-a")
        assert caught.value.raw == GOLDEN[:length]
        assert caught.value.next_offset is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": 0xCBD43194}, "blank end"),
        ({"magic": 0}, "unknown magic 0x00000000"),
        ({"magic": 0xDAA320A8}, "unknown magic 0xDAA320A8"),
        ({"total_size": 0}, "size 0"),
        ({"total_size": -1}, "size -1"),
        ({"total_size": 90}, "size 90"),
        ({"total_size": 91, "magic": V2}, "size 91"),
        ({"total_size": 2**31 - 1}, "cut off"),
    ],
)
def test_framing_that_cannot_be_trusted_raises(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(CorruptMessage, match=reason):
        decode(encode_all(Stored(), Stored().but(**changes), Stored()))


def test_announced_coordinates_fill_what_the_bytes_do_not_tell() -> None:
    with pytest.raises(CorruptMessage) as caught:
        decode(b"garbage!" * 20, topic="orders", queue_id=9)
    assert (caught.value.topic, caught.value.queue_id, caught.value.queue_offset) == ("orders", 9, -1)


def test_a_message_never_borrows_bytes_of_its_neighbours() -> None:
    # A negative body size and a size that jumps back could make two messages of one.
    for total_size in range(80, 110):
        for body_size in range(-200, 10):
            data = encode_all(Stored(), Stored(total_size=total_size, body_size=body_size))
            try:
                records, corrupt = decode(data)
            except CorruptMessage:
                continue
            good = (total_size, body_size) == (len(Stored().encode()), 5)
            assert len(records) + len(corrupt) == 2
            assert (len(records) == 2) == good


# --- properties of the decoder --------------------------------------------------------------------------------------

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


def test_the_default_limit_takes_what_a_broker_stores() -> None:
    body = bytes(4 * 1024 * 1024)
    assert len(body) < DEFAULT_MAX_BODY_BYTES
    assert decode(Stored(body=zlib.compress(body), sys_flag=1).encode()).records[0].body == body


def test_an_inner_batch_at_a_negative_offset_is_corrupt_and_not_skipped() -> None:
    batch = inner_batch(encode_member(b"one"), encode_member(b"two"), queue_offset=-(1 << 63) + 100)
    assert only_corrupt(batch.encode()).queue_offset == -(1 << 63) + 100
