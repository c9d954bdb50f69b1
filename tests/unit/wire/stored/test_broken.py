"""Messages that do not decode, and bytes that cannot be cut into messages."""

from __future__ import annotations

import pickle
import zlib

import pytest

from rmqio.errors import CorruptMessage
from tests.helpers.wire.stored_bytes import V2, Stored, encode_all
from tests.helpers.wire.stored_decoding import GOLDEN, decode, only_corrupt

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
