"""Headers read in C against those read in Python, the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import WireError
from rmqio.wire import accelerator
from rmqio.wire.command import decode_header
from tests.helpers.leaks import assert_leaks_nothing
from tests.helpers.wire.implementations import needs_c, using

pytestmark = needs_c
SENT = (
    b'{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":'
    b'"7F00000100002A9F0000000000000000","queueOffset":"12345"},"flag":1,"language":"JAVA","opaque":17,'
    b'"serializeTypeCurrentRPC":"JSON","version":497}'
)
PULLED = (
    b'{"code":19,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"5","maxOffset":"5","minOffset":"0"},'
    b'"flag":1,"language":"JAVA","opaque":2147483647,"remark":"OFFSET_OVERFLOW_ONE","version":497}'
)
SEEDS = [
    SENT,
    PULLED,
    b'{"code":-1,"version":-0,"other":-5}',
    b'{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"b":"","b":"2"}}',
    b'{"remark":"","extFields":{},"flag":3}',
    b'{"code":1,"language":"COBOL","x":"\\u00e9","y":1.5}',
    '{"remark":"gr\u00fcn"}'.encode(),
]


def outcome(data: bytes) -> object:
    try:
        return decode_header(data, 0)
    except WireError as error:
        return type(error), str(error)


def both(data: bytes) -> None:
    with using("python"):
        expected = outcome(data)
    with using("c"):
        got = outcome(data)
    assert got == expected
    assert repr(got) == repr(expected)  # True equals 1


@pytest.mark.parametrize("data", [SENT, PULLED])
def test_what_brokers_answer_is_usual(data: bytes) -> None:
    read: Any = accelerator.read_usual_header
    assert read(data) is not None
    both(data)


NUMBERS = ["0", "-0", "00", "01", "-1", "-", "+1", "1.0", "1e3", "9" * 18, "-" + "9" * 18, "9" * 19, "1" + "0" * 18,
           "9" * 40, "true", "null", "NaN", '"1"', "", " 1", "1 ", "{}", "[]"]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["code", "opaque", "flag", "version", "other", "extFields", "remark", "language"])
def test_every_kind_of_value_is_judged_the_same(name: str, number: str) -> None:
    both(f'{{"{name}":{number}}}'.encode())
    both(f'{{"extFields":{{"{name}":{number}}},"flag":1}}'.encode())


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_in_a_text_is_judged_the_same(byte: int) -> None:
    for text in (bytes([byte]), b"a" + bytes([byte]) + b"b"):
        both(b'{"remark":"' + text + b'"}')
        both(b'{"extFields":{"' + text + b'":"' + text + b'"}}')


def test_a_cut_at_every_byte_is_judged_the_same() -> None:
    for seed in SEEDS:
        for length in range(len(seed)):
            both(seed[:length])
            both(seed[:length] + seed[length + 1 :])


@settings(max_examples=1000)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(b'{}[],:"\\ 0-9.eatn\x00\xff')), max_size=3),
)
def test_mutated_headers_are_judged_the_same(seed: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(seed)
    for position, byte in changes:
        data[position % len(data)] = byte
    both(bytes(data))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["code", "language", "version", "opaque", "flag", "remark", "extFields", "other"])


@given(st.dictionaries(names, json_values), st.booleans(), st.booleans())
def test_any_json_object_is_judged_the_same(header: dict[str, Any], is_compact: bool, is_ascii: bool) -> None:
    both(json.dumps(header, separators=(",", ":") if is_compact else None, ensure_ascii=is_ascii).encode())


def test_an_argument_that_only_a_bug_could_pass_is_refused() -> None:
    read: Any = accelerator.read_usual_header
    for argument in (None, "text", bytearray(b"{}")):
        with pytest.raises(TypeError):
            read(argument)
    properties: Any = accelerator.usual_properties
    with pytest.raises(TypeError):
        properties(None)
    assert properties(None, None) is None


def test_reading_leaks_nothing() -> None:
    read: Any = accelerator.read_usual_header
    inputs = [SENT, SENT[:-1], SENT + b" ", b"", *SEEDS]

    def work() -> None:
        for data in inputs:
            read(data)

    assert_leaks_nothing(work, inputs)
