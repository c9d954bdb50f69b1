"""Frames: one table of commands and their bytes, spelled by hand, drives the writer and the reader tests."""

from __future__ import annotations

import struct
import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, WireError
from rmqio.wire.command import MAX_FRAME_BYTES, Command, FrameDecoder, Serialization, encode_frame
from tests.helpers.own_process import in_own_process

JSON, ROCKETMQ = Serialization.JSON, Serialization.ROCKETMQ


class Golden(NamedTuple):
    """A command and its frame."""

    name: str
    serialization: Serialization
    command: Command
    frame: bytes


GOLDEN = [
    Golden(
        "the protocol notes' vector, a route request",
        ROCKETMQ,
        Command(105, {"topic": "a1"}, opaque=7),
        bytes.fromhex("000000260100002200690302010000000700000000000000000000000d0005746f706963000000026131"),
    ),
    Golden(
        "binary answer with remark and body",
        ROCKETMQ,
        Command(17, {}, b"xyz", opaque=-1, flag=1, remark="n\u00f6", language=0, version=399),
        b"\x00\x00\x00\x1f"  # 31 = 4 + header 24 + body 3
        b"\x01\x00\x00\x18"  # serialization 1, header of 24 bytes
        b"\x00\x11"  # code 17
        b"\x00"  # language JAVA
        b"\x01\x8f"  # version 399
        b"\xff\xff\xff\xff"  # opaque -1
        b"\x00\x00\x00\x01"  # flag: response
        b"\x00\x00\x00\x03n\xc3\xb6"  # remark
        b"\x00\x00\x00\x00"  # no fields
        b"xyz",
    ),
    Golden(
        "JSON request without fields",
        JSON,
        Command(206, opaque=2147483647),
        b"\x00\x00\x00\x5e"  # 94 = 4 + header 90
        b"\x00\x00\x00\x5a"  # serialization 0, header of 90 bytes
        b'{"code":206,"language":"PYTHON","version":513,"opaque":2147483647,"flag":0,"extFields":{}}',
    ),
    Golden(
        "JSON answer with fields, remark and body",
        JSON,
        Command(0, {"queueId": "0", "k": "\u6d59"}, b"\x00\xff", opaque=0, flag=1, remark="FOUND"),
        b"\x00\x00\x00\x7d"  # 125 = 4 + header 119 + body 2
        b"\x00\x00\x00\x77"
        b'{"code":0,"language":"PYTHON","version":513,"opaque":0,"flag":1,'
        b'"extFields":{"queueId":"0","k":"\xe6\xb5\x99"},"remark":"FOUND"}'
        b"\x00\xff",
    ),
]
NEXT = GOLDEN[0]

goldens = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)


@goldens
def test_encode_frame_writes_the_golden_bytes(golden: Golden) -> None:
    assert encode_frame(golden.command, golden.serialization) == golden.frame


@goldens
def test_a_whole_frame_gives_its_command(golden: Golden) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(golden.frame)
    assert decoder.next_command() == golden.command
    assert decoder.next_command() is None


@goldens
def test_byte_by_byte_the_command_comes_with_the_last_byte_and_not_before(golden: Golden) -> None:
    decoder = FrameDecoder()
    for number in range(len(golden.frame) - 1):
        decoder.receive_data(golden.frame[number : number + 1])
        assert decoder.next_command() is None
    decoder.receive_data(golden.frame[-1:])
    assert decoder.next_command() == golden.command


@goldens
def test_a_trailing_next_frame_is_kept_for_the_next_call(golden: Golden) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(golden.frame + NEXT.frame[:5])
    assert decoder.next_command() == golden.command
    assert decoder.next_command() is None
    decoder.receive_data(NEXT.frame[5:])
    assert decoder.next_command() == NEXT.command


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_takes_any_buffer_and_the_body_is_plain_bytes(kind: type) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(kind(GOLDEN[1].frame))
    command = decoder.next_command()
    assert command is not None
    assert type(command.body) is bytes
    assert command.body == b"xyz"


def test_the_body_survives_the_reuse_of_the_buffer() -> None:
    data = bytearray(GOLDEN[1].frame)
    decoder = FrameDecoder()
    decoder.receive_data(data)
    command = decoder.next_command()
    data[:] = bytes(len(data))
    decoder.receive_data(NEXT.frame)
    assert command is not None
    assert command.body == b"xyz"


BAD_FRAMES = [
    ("negative length", struct.pack(">ii", -1, 0), "frame length -1"),
    ("length below the mark", struct.pack(">ii", 3, 0), "frame length 3"),
    ("length above the limit", struct.pack(">ii", MAX_FRAME_BYTES + 1, 0), "frame length 16777217"),
    ("largest length", struct.pack(">ii", 0x7FFFFFFF, 2), "frame length 2147483647"),
    ("header longer than its frame", struct.pack(">ii", 10, 7), "header length 7 exceeds its frame of 10"),
    ("header of 16 MiB in a small frame", struct.pack(">iI", 10, 0x00FFFFFF), "header length 16777215"),
]


@pytest.mark.parametrize(
    ("first_eight", "message"), [row[1:] for row in BAD_FRAMES], ids=[row[0] for row in BAD_FRAMES]
)
def test_a_hostile_length_fails_on_its_eight_bytes_without_awaiting_the_rest(first_eight: bytes, message: str) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(first_eight[:7])
    assert decoder.next_command() is None
    decoder.receive_data(first_eight[7:])
    with pytest.raises(WireError, match=message):
        decoder.next_command()


def test_a_lower_limit_can_be_set_and_is_inclusive() -> None:
    body = b"x" * 50
    frame = encode_frame(Command(1, {}, body), ROCKETMQ)
    limit = len(frame) - 4
    for allowed in (True, False):
        decoder = FrameDecoder(limit if allowed else limit - 1)
        decoder.receive_data(frame)
        if allowed:
            command = decoder.next_command()
            assert command is not None
            assert command.body == body
        else:
            with pytest.raises(WireError, match=f"frame length {limit} is not between 4 and {limit - 1}"):
                decoder.next_command()


@pytest.mark.parametrize(("top_byte", "shown"), [(2, 2), (0x7F, 127), (0xFF, -1)])
def test_an_unknown_serialization_is_refused(top_byte: int, shown: int) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(b"\x00\x00\x00\x06" + bytes([top_byte]) + b"\x00\x00\x02{}")
    with pytest.raises(WireError, match=f"unknown header serialization {shown}"):
        decoder.next_command()


def test_after_an_error_the_decoder_stays_dead_and_says_why() -> None:
    decoder = FrameDecoder()
    decoder.receive_data(struct.pack(">ii", -5, 0))
    for _ in range(2):
        with pytest.raises(WireError, match="frame length -5"):
            decoder.next_command()
        decoder.receive_data(NEXT.frame)
    assert "failed" in repr(decoder)


def test_a_good_frame_before_a_bad_one_is_still_given() -> None:
    decoder = FrameDecoder()
    decoder.receive_data(NEXT.frame + struct.pack(">ii", -5, 0))
    assert decoder.next_command() == NEXT.command
    with pytest.raises(WireError):
        decoder.next_command()


def test_pieces_of_a_large_frame_between_small_ones_are_put_together() -> None:
    large = encode_frame(Command(5, {"k": "v"}, bytes(range(256)) * 400))
    stream = NEXT.frame + large + NEXT.frame
    decoder = FrameDecoder()
    codes = []
    for begin in range(0, len(stream), 999):
        decoder.receive_data(stream[begin : begin + 999])
        while (command := decoder.next_command()) is not None:
            codes.append(command.code)
            if command.code == 5:
                assert command.body == bytes(range(256)) * 400
    assert codes == [NEXT.command.code, 5, NEXT.command.code]
    assert repr(decoder) == "<FrameDecoder 0 B buffered>"


def test_repr_shows_what_is_buffered() -> None:
    decoder = FrameDecoder()
    decoder.receive_data(b"abc")
    assert repr(decoder) == "<FrameDecoder 3 B buffered>"


def test_a_frame_that_a_server_would_refuse_is_not_made() -> None:
    header_and_mark = len(encode_frame(Command(1), JSON)) - 4
    largest = MAX_FRAME_BYTES - header_and_mark
    assert len(encode_frame(Command(1, {}, bytes(largest)))) == MAX_FRAME_BYTES + 4
    with pytest.raises(LocalError, match="above 16 MiB"):
        encode_frame(Command(1, {}, bytes(largest + 1)))


def drain(data: bytes, chunk: int) -> list[Command]:
    """All commands of some bytes fed in chunks; a WireError ends it, anything else escapes."""
    decoder = FrameDecoder()
    commands: list[Command] = []
    for begin in range(0, len(data), chunk):
        decoder.receive_data(data[begin : begin + chunk])
        try:
            while (command := decoder.next_command()) is not None:
                commands.append(command)
        except WireError:
            break
    return commands


@given(st.binary(max_size=200), st.integers(1, 200))
def test_random_bytes_give_commands_need_or_a_wire_error_and_nothing_else(data: bytes, chunk: int) -> None:
    for command in drain(data, chunk):
        assert isinstance(command, Command)


@given(st.binary(max_size=120), st.sampled_from([0, 1, 2]), st.binary(max_size=20))
def test_random_headers_in_a_sound_frame_give_commands_or_a_wire_error(header: bytes, kind: int, body: bytes) -> None:
    frame = struct.pack(">ii", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body
    for command in drain(frame, len(frame)):
        assert command.body == body


@given(st.data())
def test_mutated_frames_give_commands_need_or_a_wire_error_and_nothing_else(data: st.DataObject) -> None:
    frame = bytearray(data.draw(st.sampled_from(GOLDEN)).frame)
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(frame) - 1))
        change = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if change == "flip":
            frame[where] = data.draw(st.integers(0, 255))
        elif change == "cut" and len(frame) > 1:
            del frame[where : where + data.draw(st.integers(1, 4))]
            frame = frame or bytearray(1)
        else:
            frame[where:where] = data.draw(st.binary(min_size=1, max_size=4))
    for command in drain(bytes(frame) + NEXT.frame, data.draw(st.integers(1, 64))):
        assert isinstance(command, Command)
        assert all(isinstance(key, str) and isinstance(value, str) for key, value in command.ext.items())


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
commands = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    ext=st.dictionaries(text, text, max_size=5),
    body=st.binary(max_size=50),
    opaque=int32,
    flag=int32,
    remark=st.none() | text.filter(bool),
    language=st.integers(0, 13),
    version=st.integers(-(1 << 15), (1 << 15) - 1),
)


@given(st.lists(st.tuples(commands, st.sampled_from([JSON, ROCKETMQ])), max_size=4), st.integers(1, 300))
def test_round_trip_of_both_serializations_mixed_on_one_stream(
    sent: list[tuple[Command, Serialization]], chunk: int
) -> None:
    stream = b"".join(encode_frame(command, serialization) for command, serialization in sent)
    assert drain(stream, chunk) == [command for command, _ in sent]


@in_own_process
def test_many_small_pieces_take_no_more_memory_than_large_ones() -> None:
    body = bytes(range(256)) * 256
    frame = encode_frame(Command(1, {}, body))
    decoder = FrameDecoder()
    pieces = memoryview(frame)
    tracemalloc.start()
    try:
        for begin in range(0, len(frame) - 600, 2):
            decoder.receive_data(pieces[begin : begin + 2])
        assert decoder.next_command() is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    decoder.receive_data(frame[begin + 2 :])
    command = decoder.next_command()
    assert command is not None
    assert command.body == body
    assert peak < 3 * len(frame)
