"""Batches: their bytes and their limits."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.model import Message, decode_properties
from rmqio.wire.batch import (
    MAX_BATCH_BYTES,
    MAX_BATCH_MESSAGES,
    MAX_MESSAGE_BYTES,
    BatchBuilder,
    BatchMember,
    batchable,
    decode_batch,
)
from rmqio.wire.bodies import BodyError
from rmqio.wire.ids import MessageIds
from rmqio.wire.properties import encode_properties
from rmqio.wire.stored import decode_records
from tests.helpers.wire.batches import encode_batch
from tests.helpers.wire.implementations import BOTH, using
from tests.helpers.wire.stored_bytes import Stored, encode_member

GOLDEN = b"".join(
    (
        b"\x00\x00\x00\x27",  # size: 39
        b"\x00\x00\x00\x00",  # magic, unused
        b"\x00\x00\x00\x00",  # CRC, unused
        b"\x00\x00\x00\x00",  # flag
        b"\x00\x00\x00\x05",  # body size
        b"hello",
        b"\x00\x0c",  # size of properties
        b"UNIQ_KEY\x01id\x02",
        b"\x00\x00\x00\x2b",  # size: 43
        b"\x00\x00\x00\x00",  # magic, unused
        b"\x00\x00\x00\x00",  # CRC, unused
        b"\x00\x00\x00\x00",  # flag
        b"\x00\x00\x00\x02",  # body size
        b"hi",
        b"\x00\x13",  # size of properties
        b"UNIQ_KEY\x01id\x02TAGS\x01t\x02",
    )
)


@pytest.fixture(params=BOTH, autouse=True, scope="module")
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


def test_golden_bytes() -> None:
    assert encode_batch([Message(b"hello"), Message(b"hi", tags="t")], ["id", "id"]) == GOLDEN
    assert decode_batch(GOLDEN) == [
        BatchMember(0, b"hello", b"UNIQ_KEY\x01id\x02"),
        BatchMember(0, b"hi", b"UNIQ_KEY\x01id\x02TAGS\x01t\x02"),
    ]


def test_the_flag_of_a_member_is_read() -> None:
    assert decode_batch(encode_member(b"", b"", flag=-7)) == [BatchMember(-7, b"", b"")]


def test_nothing_is_a_batch_of_nothing() -> None:
    assert decode_batch(b"") == []
    assert encode_batch([], []) == b""


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=50), st.none() | st.text("abc", min_size=1)), max_size=20))
def test_the_size_is_known_before_encoding(items: list[tuple[bytes, str | None]]) -> None:
    builder = BatchBuilder()
    assert builder.is_empty
    for number, (body, tags) in enumerate(items, start=1):
        assert builder.add(Message(body, tags=tags), "id")
        assert len(builder) == number
        assert builder.size == len(builder.encode())
    assert builder.is_empty == (not items)
    expected = [
        BatchMember(0, body, encode_properties(Message(body, tags=tags), message_id="id")) for body, tags in items
    ]
    assert decode_batch(builder.encode()) == expected


def test_a_batch_decodes_as_an_inner_batch() -> None:
    ids = MessageIds()
    messages = [Message(b"%d" % number, keys=(f"k{number}",)) for number in range(50)]
    body = encode_batch(messages, [next(ids) for _ in messages])
    stored = Stored(body=body, sys_flag=0xC0, properties=b"INNER_NUM\x0150\x02", queue_offset=7)
    records = decode_records(stored.encode(), broker="b").records
    assert [(record.queue_offset, record.body, record.keys) for record in records] == [
        (7 + number, message.body, message.keys) for number, message in enumerate(messages)
    ]


# --- limits ---------------------------------------------------------------------------------------------------------


def test_the_limits_keep_clear_of_what_the_broker_loses() -> None:
    assert MAX_BATCH_MESSAGES < 32767
    assert MAX_BATCH_BYTES < MAX_MESSAGE_BYTES


def test_a_batch_is_full_by_number() -> None:
    builder = BatchBuilder()
    for _ in range(MAX_BATCH_MESSAGES):
        assert builder.add(Message(b"x"), "id")
    encoded = builder.encode()
    assert not builder.add(Message(b"x"), "id")
    assert (len(builder), builder.encode()) == (MAX_BATCH_MESSAGES, encoded)
    with pytest.raises(LocalError, match="4096 messages"):
        encode_batch([Message(b"x")] * 4097, ["id"] * 4097)


def test_a_batch_is_full_by_bytes_exactly() -> None:
    size = len(encode_batch([Message(b"hello")], ["id"]))
    builder = BatchBuilder(max_bytes=2 * size)
    assert builder.add(Message(b"hello"), "id")
    assert not builder.add(Message(b"hello!"), "id")
    assert builder.add(Message(b"hello"), "id")
    assert not builder.add(Message(b"h"), "id")
    assert builder.size == 2 * size == len(builder.encode())


def test_a_message_above_the_limit_travels_alone() -> None:
    large = Message(b"x" * 1000)
    builder = BatchBuilder(max_bytes=100)
    assert builder.add(large, "id")
    assert not builder.add(Message(b"x"), "id")
    assert len(decode_batch(builder.encode())) == 1
    builder = BatchBuilder(max_bytes=100)
    assert builder.add(Message(b"x"), "id")
    assert not builder.add(large, "id")


def test_a_message_above_the_brokers_limit_is_refused() -> None:
    overhead = 22 + len("UNIQ_KEY\x01id\x02")
    body = b"x" * (MAX_MESSAGE_BYTES - overhead)
    assert BatchBuilder().add(Message(body), "id")
    for builder in (BatchBuilder(), BatchBuilder(max_bytes=MAX_MESSAGE_BYTES)):
        with pytest.raises(LocalError, match="maximum is 4194304"):
            builder.add(Message(body + b"x"), "id")
        assert builder.is_empty


ILLEGAL = pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(b""), "body is empty"),
        (Message("text"), "must be bytes, not str"),  # type: ignore[arg-type]
        (Message(bytearray(b"x")), "must be bytes, not bytearray"),  # type: ignore[arg-type]
        (Message(b"x", delay_level=1), "delayed message must be sent alone"),
        (Message(b"x", deliver_at_ms=1), "delayed message must be sent alone"),
        (Message(b"x", properties={"KEYS": "a"}), "reserved"),
        (Message(b"x", properties={"__RMQ.TRANSIENT.A": "a"}), "reserved"),
        (Message(b"x", properties={"a": "v" * 32_000}), "at most 32000"),
        (Message(b"x" * MAX_MESSAGE_BYTES), "maximum is 4194304"),
    ],
)


@ILLEGAL
def test_a_refused_message_leaves_the_batch_as_it_was(message: Message, reason: str) -> None:
    builder = BatchBuilder()
    builder.add(Message(b"hello"), "id")
    before = (len(builder), builder.size, builder.encode())
    with pytest.raises(LocalError, match=reason):
        builder.add(message, "id")
    assert (len(builder), builder.size, builder.encode()) == before
    assert builder.add(Message(b"hello"), "id")


@ILLEGAL
def test_of_many_those_in_front_of_an_illegal_one_are_added(message: Message, reason: str) -> None:
    builder = BatchBuilder()
    good = [Message(b"one"), Message(b"two", keys=("k",))]
    with pytest.raises(LocalError, match=reason):
        builder.add_all([*good, message, Message(b"three")], ["1", "2", "3", "4"])
    assert builder.encode() == encode_batch(good, ["1", "2"])
    assert (len(builder), builder.size) == (2, len(builder.encode()))


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(1, 6), st.integers(1, 400))
def test_many_at_once_are_added_as_one_by_one(sizes: list[int], max_messages: int, max_bytes: int) -> None:
    messages = [Message(b"x" * size, tags="t") for size in sizes]
    ids = [f"id{number}" for number in range(len(messages))]
    one_by_one = BatchBuilder(max_messages=max_messages, max_bytes=max_bytes)
    at_once = BatchBuilder(max_messages=max_messages, max_bytes=max_bytes)
    added = 0
    while added < len(messages) and one_by_one.add(messages[added], ids[added]):
        added += 1
    assert at_once.add_all(messages, ids) == added
    assert (at_once.encode(), at_once.size, len(at_once)) == (one_by_one.encode(), one_by_one.size, added)


def test_what_finds_no_room_goes_into_the_next_batch() -> None:
    messages = [Message(b"%d" % number) for number in range(5000)]
    ids = MessageIds().take(5000)
    builders: list[BatchBuilder] = []
    done = 0
    while done < len(messages):
        builders.append(BatchBuilder())
        done += builders[-1].add_all(messages[done:], ids[done:])
    assert [len(builder) for builder in builders] == [4096, 904]
    members = [member for builder in builders for member in decode_batch(builder.encode())]
    assert [member.body for member in members] == [message.body for message in messages]
    assert [decode_properties(member.properties)["UNIQ_KEY"] for member in members] == ids


@pytest.mark.parametrize(
    "options",
    [{"max_messages": 0}, {"max_messages": 4097}, {"max_bytes": 0}, {"max_bytes": MAX_MESSAGE_BYTES + 1}],
)
def test_limits_out_of_bounds_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(LocalError, match="must be between 1 and"):
        BatchBuilder(**options)


def test_ids_and_messages_must_be_as_many() -> None:
    with pytest.raises(ValueError):
        encode_batch([Message(b"x")], [])
    with pytest.raises(ValueError, match="1 ids for 0 messages"):
        BatchBuilder().add_all([], ["id"])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(b"x", tags="t", sharding_key="s"), True),
        (Message(b"x", delay_level=1), False),
        (Message(b"x", deliver_at_ms=1), False),
    ],
)
def test_delayed_messages_are_not_batchable(message: Message, expected: bool) -> None:
    assert batchable(message) is expected


# --- decoding garbage -----------------------------------------------------------------------------------------------


def test_a_batch_cut_at_every_byte_is_refused() -> None:
    boundary = 39
    for length in range(1, len(GOLDEN)):
        if length != boundary:
            with pytest.raises(BodyError):
                decode_batch(GOLDEN[:length])


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (0, 21, "size"),
        (0, -1, "size"),
        (0, 0, "size"),
        (0, 2**31 - 1, "size"),
        (16, -1, "body"),
        (16, 18, "body"),
        (16, 2**31 - 1, "body"),
    ],
)
def test_sizes_out_of_bounds_are_refused(position: int, value: int, reason: str) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">i", data, position, value)
    with pytest.raises(BodyError, match=reason):
        decode_batch(bytes(data))


@pytest.mark.parametrize("size", [-1, 0, 11, 13, 32767])
def test_a_size_of_properties_that_does_not_fit_is_refused(size: int) -> None:
    data = bytearray(GOLDEN)
    struct.pack_into(">h", data, 25, size)
    with pytest.raises(BodyError, match="properties"):
        decode_batch(bytes(data))


@given(st.binary(max_size=100), st.integers(0, len(GOLDEN)))
def test_garbage_gives_nothing_but_body_error(data: bytes, keep: int) -> None:
    for candidate in (data, GOLDEN[:keep] + data, GOLDEN[:keep] + data + GOLDEN[keep + len(data) :]):
        try:
            members = decode_batch(candidate)
        except BodyError:
            continue
        assert sum(22 + len(body) + len(properties) for _, body, properties in members) == len(candidate)
