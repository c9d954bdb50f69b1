"""The C extension against the Python code, which is its reference; and what a test of bytes does not see: references
that leak, the choice between the two, and arguments that only a bug of ours could pass.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import CorruptMessage, LocalError
from rmqio.model import Message, Record
from rmqio.wire import accelerator
from rmqio.wire.batch import BatchBuilder
from rmqio.wire.stored import decode_records
from rmqio.wire.templates import properties_text
from tests.helpers.leaks import assert_leaks_nothing
from tests.helpers.wire.batches import encode_batch
from tests.helpers.wire.implementations import needs_c, using
from tests.helpers.wire.stored_bytes import V2, Stored, encode_all, encode_member

ROOT = Path(__file__).resolve().parents[3]
IPV6 = bytes.fromhex("20010db8000000000000000000000001") + b"\x00\x00\x2a\x9f"
ID = "0123456789ABCDEF0123456789ABCDEF"


def run(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **environment},
    ).stdout.strip()  # fmt: skip


# ---- the choice ------------------------------------------------------------------------------------------------------

TELL = "from rmqio.wire.accelerator import IMPLEMENTATION; print(IMPLEMENTATION)"


@needs_c
@pytest.mark.parametrize(("value", "expected"), [("", "c"), ("0", "c"), ("1", "python"), ("yes", "python")])
def test_the_environment_turns_it_off(value: str, expected: str) -> None:
    assert run(TELL, RMQIO_PURE_PYTHON=value) == expected


@pytest.mark.parametrize(
    "change",
    [
        "sys.modules['rmqio.wire._fast'] = None",
        "m.Record = collections.namedtuple('Record', 'topic broker')",
        "m.Message = collections.namedtuple('Message', m.Message._fields[:-1])",
        "m.Message = type('Message', (), {'_fields': m.Message._fields})",
        "import rmqio.wire.properties as p; p.RESERVED_NAMES = ['KEYS']",
    ],
)
def test_without_it_or_with_a_stale_build_python_takes_over(change: str) -> None:
    assert run(f"import sys, collections, rmqio.model as m; {change}; {TELL}", RMQIO_PURE_PYTHON="") == "python"


# ---- the same as Python: decoding ------------------------------------------------------------------------------------


def comparable_error(error: CorruptMessage) -> tuple[object, ...]:
    cause = error.__cause__
    return type(error), str(error), sorted(vars(error).items(), key=str), type(cause), str(cause)


def outcome_of_decoding(data: bytes, options: dict[str, Any]) -> object:
    try:
        decoded = decode_records(data, broker="broker-a", max_body_bytes=1 << 16, **options)
    except CorruptMessage as error:
        return comparable_error(error)
    records = [(type(record), [(type(field), field) for field in record]) for record in decoded.records]
    return records, [comparable_error(error) for error in decoded.corrupt]


def both(outcome: Callable[[], object]) -> object:
    with using("python"):
        expected = outcome()
    with using("c"):
        assert outcome() == expected
    return expected


SEEDS = [
    Stored(properties=b"KEYS\x01a\x02"),
    Stored(body=b"b" * 100, topic=b"orders", sys_flag=0xC, queue_offset=-1),
    Stored(body=b"", topic="grün".encode()),
    Stored(topic=b""),
    Stored(magic=V2, topic=b"o" * 300),
    Stored(magic=V2, sys_flag=0x30, born_host=IPV6, store_host=IPV6),
    Stored(sys_flag=0x10, born_host=IPV6),
    Stored(sys_flag=0x30, body=b"", topic=b"o"),  # ends where IPv6 hosts would
    Stored(sys_flag=0x20, store_host=IPV6),
    Stored(body=zlib.compress(b"compressed"), sys_flag=0x301),
    Stored(
        body=encode_member(b"one") + encode_member(b"two"),
        sys_flag=0xC0,
        properties=b"INNER_NUM\x012\x02",
        queue_offset=100,
    ),
]
OPTIONS = st.fixed_dictionaries(
    {
        "check_crc": st.booleans(),
        "topic": st.sampled_from([None, "orders", "", "grün", "o" * 300, "\ud800", "other"]),
        "min_offset": st.sampled_from([0, 101]),
    }
)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)


@needs_c
@settings(max_examples=1000)
@given(st.lists(st.sampled_from(SEEDS), max_size=5), OPTIONS, CHANGES, st.integers(0, 60))
def test_valid_mutated_and_cut_pulls_decode_the_same(
    seeds: list[Stored], options: dict[str, Any], changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(encode_all(*seeds))
    for position, value in changes:
        if data:
            data[position % len(data)] = value
    pull = bytes(data[: len(data) - cut] if cut > 40 else data)
    both(lambda: outcome_of_decoding(pull, options))


@needs_c
@settings(max_examples=300)
@given(st.binary(max_size=300), st.sampled_from([0, 48, 84, 88, 93, 100]), OPTIONS)
def test_random_bytes_decode_the_same(data: bytes, keep: int, options: dict[str, Any]) -> None:
    both(lambda: outcome_of_decoding(Stored().encode()[:keep] + data, options))


INT32_EDGES = [-(2**31), -(2**31) + 1, -200, -1, 0, 1, 87, 88, 91, 2**15, 2**31 - 200, 2**31 - 1]


@needs_c
@pytest.mark.parametrize("magic", [0xDAA320A7, V2])
@pytest.mark.parametrize("field", ["total_size", "body_size", "topic_size", "properties_size"])
def test_every_size_that_lies_is_reported_alike(field: str, magic: int) -> None:
    largest = {"topic_size": 255 if magic != V2 else 65535, "properties_size": 32767}.get(field, 2**31 - 1)
    smallest = {"topic_size": 0, "properties_size": -32768}.get(field, -(2**31))
    values = {value for value in (*INT32_EDGES, *range(-300, 300), smallest, largest) if smallest <= value <= largest}
    for value in values:
        stored = Stored(magic=magic, properties=b"a\x01b\x02").but(**{field: value})
        data = encode_all(Stored(), stored, Stored())
        both(lambda data=data: outcome_of_decoding(data, {"topic": "orders", "check_crc": False}))  # type: ignore[misc]


@needs_c
def test_a_cut_at_every_byte_is_reported_alike() -> None:
    for seed in SEEDS:
        data = seed.encode()
        for length in range(len(data)):
            both(lambda data=data[:length]: outcome_of_decoding(data, {"topic": "orders"}))  # type: ignore[misc]


@needs_c
def test_sums_are_those_of_zlib_for_bodies_of_every_length() -> None:
    noise = os.urandom(300)
    with using("c"):
        for length in range(300):
            (record,) = decode_records(Stored(body=noise[:length]).encode(), broker="b", topic="orders").records
            assert record.body_crc == zlib.crc32(noise[:length]) & 0x7FFFFFFF
            assert len(decode_records(Stored(body=noise[:length], crc=7).encode(), broker="b").corrupt) == 1


# ---- the same as Python: encoding ------------------------------------------------------------------------------------

text = st.text(max_size=8) | st.text("abc \t\n\x01\x02\x1f\x85\u2003éß€😀\ud800", max_size=5)
anything = text | st.sampled_from([None, 5, b"b", ""])
names = text | st.sampled_from(["KEYS", "__RMQ.TRANSIENT.X", "__RMQ.TRANSIENT", "__CRC32#", "source"])
# Wrong types too: there is no type checker at run time.
messages: st.SearchStrategy[Message] = st.builds(
    Message,
    st.binary(max_size=40) | st.sampled_from(["text", bytearray(b"x"), b"x" * 500]),
    tags=anything,
    keys=st.lists(anything, max_size=3),
    sharding_key=anything,
    properties=st.dictionaries(names, anything, max_size=3) | st.none(),
    delay_level=st.none() | st.none() | st.none() | st.integers(0, 19),
)
good_messages = st.builds(
    Message,
    st.binary(min_size=1, max_size=40),
    tags=st.none() | st.text("abé€", min_size=1, max_size=5),
    keys=st.lists(st.text("abé€", min_size=1, max_size=5), max_size=3),
    properties=st.dictionaries(st.sampled_from(["source", "größe"]), st.text("ab😀", min_size=1, max_size=5)),
)


def outcome_of_encoding(messages: list[Message], ids: list[str], limits: dict[str, int]) -> object:
    builder = BatchBuilder(**limits)
    error: LocalError | None = None
    added: int | None = None
    try:
        added = builder.add_all(messages, ids)
    except LocalError as caught:
        error = caught
    return builder.encode(), len(builder), builder.size, added, repr(error)


@needs_c
@settings(max_examples=1000)
@given(
    st.lists(messages | good_messages, max_size=5),
    st.sampled_from([[ID] * 5, ["id"] * 5, ["id", "", "x"] * 2, ["id", "\x01", "\ud800", 5, None]]),
    st.sampled_from([{}, {"max_messages": 2}, {"max_bytes": 60}, {"max_bytes": 150}]),
)
def test_messages_legal_or_not_are_encoded_or_refused_the_same(
    messages: list[Message], ids: list[Any], limits: dict[str, int]
) -> None:
    both(lambda: outcome_of_encoding(messages, ids[: len(messages)], limits))


def outcome_of_properties(message: Message, message_id: Any) -> object:
    try:
        return properties_text(message, message_id)
    except LocalError as error:
        return repr(error)


@needs_c
@settings(max_examples=1000)
@given(messages | good_messages, st.sampled_from([ID, "id", "", "\x01", "\ud800", 5, None]))
def test_properties_of_a_single_send_are_written_or_refused_the_same(message: Message, message_id: Any) -> None:
    both(lambda: outcome_of_properties(message, message_id))


WHITE_SPACE = [chr(code) for code in range(0x11000) if chr(code).isspace()]


@needs_c
@pytest.mark.parametrize("part", [*WHITE_SPACE, "", "\x00", "\x01", "\x02", "\x03", "é", "\ufeff", "\u200b", "\ud800"])
def test_each_text_alone_is_judged_the_same(part: str) -> None:
    for value in (part, part + "a", "a" + part, "a" + part + "b"):
        for message in (
            Message(b"x", keys=(value,)),
            Message(b"x", keys=("k", value)),
            Message(b"x", tags=value),
            Message(b"x", sharding_key=value),
            Message(b"x", properties={"source": value}),
            Message(b"x", properties={value: "web"}),
        ):
            both(lambda message=message: outcome_of_encoding([message], [ID], {}))  # type: ignore[misc]
            both(lambda message=message: outcome_of_properties(message, ID))  # type: ignore[misc]
        both(lambda value=value: outcome_of_encoding([Message(b"x")], [value], {}))  # type: ignore[misc]


@needs_c
def test_the_limit_of_properties_is_the_same() -> None:
    for size in range(31_930, 32_010):
        message = Message(b"x", properties={"a": "v" * size})
        both(lambda message=message: outcome_of_encoding([message], [ID], {}))  # type: ignore[misc]
        both(lambda message=message: outcome_of_properties(message, ID))  # type: ignore[misc]


@needs_c
def test_what_is_not_exactly_a_message_is_left_to_python() -> None:
    class Special(Message):
        __slots__ = ()

    class Text(str):
        __slots__ = ()

    encode: Any = accelerator.encode_usual
    cut = tuple.__new__(Message, (b"x", None))
    for first in (Special(b"x"), cut, b"x", None):
        assert encode([first, Message(b"y")], [ID, ID], 0, 9, 999) == (b"", 0)
    both(lambda: outcome_of_encoding([Special(b"x"), Message(b"y", tags=Text("t"))], [ID, Text("id")], {}))


# ---- arguments, and references ---------------------------------------------------------------------------------------


@needs_c
def test_arguments_that_only_a_bug_could_pass_are_refused() -> None:
    decode: Any = accelerator.decode_usual
    encode: Any = accelerator.encode_usual
    misuse: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: decode(b""), TypeError),
        (lambda: decode(bytearray(), 0, [], "b", "t", True), TypeError),
        (lambda: decode(b"", 0, (), "b", "t", True), TypeError),
        (lambda: decode(b"", None, [], "b", "t", True), TypeError),
        (lambda: decode(b"", 2**70, [], "b", "t", True), OverflowError),
        (lambda: decode(b"", -1, [], "b", "t", True), ValueError),
        (lambda: decode(b"", 1, [], "b", "t", True), ValueError),
        (lambda: encode([]), TypeError),
        (lambda: encode(None, [], 0, 1, 1), TypeError),
        (lambda: encode([], None, 0, 1, 1), TypeError),
        (lambda: encode([], [], -1, 1, 1), ValueError),
        (lambda: encode([], [], 0, 1, 2**31), ValueError),
        (lambda: encode([], [], 0, "1", 1), TypeError),
    ]
    for call, error in misuse:
        with pytest.raises(error):
            call()
    assert encode([Message(b"x")], [ID], 5, 1, 100) == (b"", 0)
    assert encode([Message(b"x")], [ID], 0, -5, 100) == (b"", 0)
    assert encode([Message(b"x")], [ID], 0, 5, -100) == (b"", 0)
    assert encode([Message(b"x")], [], 0, 5, 100) == (b"", 0)


PULL = encode_all(
    *[Stored(body=b"x" * 100, queue_offset=10**6 + number, commit_log_offset=2**40) for number in range(32)]
)


@needs_c
@pytest.mark.parametrize(
    "data",
    [PULL, PULL[:-1], PULL + Stored(crc=1).encode() + PULL, Stored(topic=b"other").encode() + PULL],
    ids=["good", "cut", "corrupt", "another topic"],
)
def test_decoding_leaks_nothing(data: bytes) -> None:
    topic, broker = "".join(["or", "ders"]), "".join(["broker", "-a"])

    def work() -> None:
        with contextlib.suppress(CorruptMessage):
            decode_records(data, broker=broker, topic=topic)

    counted = (topic, broker, Record, data)
    assert_leaks_nothing(work, counted)


@needs_c
def test_encoding_leaks_nothing() -> None:
    good = [Message(b"x" * 100, keys=("key", "kéy"), tags="tag", properties={"a": "b"}) for _ in range(32)]
    mixed = [*good, Message(b"x", tags="\x01")]
    ids = [ID] * len(mixed)

    def work() -> None:
        encode_batch(good, ids[:32])
        properties_text(good[0], ID)
        with pytest.raises(LocalError):
            encode_batch(mixed, ids)

    counted = (ID, good[0], good[0].tags, good[0].keys[0], Message)
    assert_leaks_nothing(work, counted)


@needs_c
def test_records_live_as_long_as_they_are_used() -> None:
    with using("c"):
        records = decode_records(PULL, broker="b", topic="orders").records
    kept = records[5]
    del records
    gc.collect()
    assert (kept.queue_offset, kept.body, kept.store_host) == (10**6 + 5, b"x" * 100, "127.0.0.1:10911")
    assert not gc.is_tracked(kept), "nothing in it can be part of a cycle"


@needs_c
def test_the_garbage_collector_may_run_at_any_time() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        both(lambda: outcome_of_decoding(PULL, {"topic": "orders"}))
    finally:
        gc.set_threshold(*threshold)
