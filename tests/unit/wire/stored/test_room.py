"""The limits of a message and of a pull when they are decompressed."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import lz4.frame
import pytest
import zstandard

from rmqio.errors import WireError
from rmqio.model import MessageQueue
from rmqio.wire.command import Command
from rmqio.wire.requests import parse_pull
from rmqio.wire.stored import DEFAULT_MAX_BODY_BYTES, MAX_PULL_BYTES, Room
from tests.helpers.own_process import in_own_process
from tests.helpers.wire.stored_bytes import Stored, encode_all, encode_member
from tests.helpers.wire.stored_decoding import decode, inner_batch, only_corrupt


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
@in_own_process
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


@in_own_process
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


def test_the_default_limit_takes_what_a_broker_stores() -> None:
    body = bytes(4 * 1024 * 1024)
    assert len(body) < DEFAULT_MAX_BODY_BYTES
    assert decode(Stored(body=zlib.compress(body), sys_flag=1).encode()).records[0].body == body
