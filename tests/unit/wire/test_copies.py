"""Messages that send records again: what they keep, and C against Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.model import Message, Record
from rmqio.wire import accelerator
from rmqio.wire.batch import BatchBuilder, copies_of, copy_of
from rmqio.wire.properties import RESERVED_NAMES
from tests.helpers.leaks import assert_leaks_nothing
from tests.helpers.wire.implementations import needs_c

USUAL = b"UNIQ_KEY\x01" + b"0A" * 16 + b"\x02WAIT\x01true\x02CLUSTER\x01c\x02MSG_REGION\x01r\x02TRACE_ON\x01true\x02"


def record_with(properties: bytes, body: bytes = b"body") -> Record:
    return Record("orders", "broker-a", 3, 7, body, 1, 2, properties, 0, 0, 0, 0, 0, b"", b"", 0, 0)


def test_what_rocketmq_added_is_dropped() -> None:
    record = record_with(USUAL + b"TAGS\x01red\x02KEYS\x01k1 k2\x02__SHARDINGKEY\x01s\x02mine\x011\x02RETRY_TOPIC\x01t")
    wanted = Message(b"body", tags="red", keys=("k1", "k2"), properties={"mine": "1"}, sharding_key="s")
    assert copy_of(record) == wanted
    assert copies_of([record] * 3) == [wanted] * 3


names = st.sampled_from([*sorted(RESERVED_NAMES), "mine", "yours", "TAG", "__RMQ.TRANSIENT.x", "", "\u00e9"]) | st.text(
    max_size=3
)
values = st.sampled_from(["", "a", "k1 k2", " ", "\u3000x", "a\x01b"]) | st.text(max_size=5)
properties = st.lists(
    st.tuples(names, values, st.booleans()).map(
        lambda one: one[0].encode("utf-8", "surrogatepass") + b"\x01" * one[2] + one[1].encode("utf-8", "surrogatepass")
    ),
    max_size=6,
).map(b"\x02".join) | st.binary(max_size=20)


@needs_c
@given(st.lists(properties, max_size=5), st.booleans())
def test_c_and_python_make_the_same(raw: list[bytes], usual_too: bool) -> None:
    records = [record_with(USUAL * usual_too + each) for each in raw]
    found, wanted = copies_of(records), [copy_of(record) for record in records]
    assert [list(message) for message in found] == [list(message) for message in wanted]
    assert all(type(message) is Message for message in found)


@needs_c
def test_c_takes_the_usual_record_itself() -> None:
    """Otherwise the comparison would be of Python with itself."""
    assert accelerator.copies_of_usual is not None
    usual = [record_with(USUAL), record_with(USUAL + b"TAGS\x01t\x02a\x01b\x02"), record_with(b"")]
    assert len(accelerator.copies_of_usual(usual, 0)) == 3
    assert len(accelerator.copies_of_usual([*usual, record_with(b"a\x01\xff"), *usual], 1)) == 2
    others: list[Any] = [*usual, Message(b"x")]
    assert accelerator.copies_of_usual(others, 0) == copies_of(usual)
    assert accelerator.copies_of_usual(usual, 3) == []
    wrong: list[Any] = [((), 0), (usual, -1), (usual, "x"), (usual,)]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError)):
            accelerator.copies_of_usual(*arguments)


@needs_c
def test_names_that_c_knows_are_reserved() -> None:
    assert {part.split(b"\x01")[0].decode() for part in USUAL.split(b"\x02") if part} <= RESERVED_NAMES


@needs_c
def test_copies_leak_nothing() -> None:
    records = [
        record_with(USUAL + rest)
        for rest in (b"", b"TAGS\x01t\x02KEYS\x01a b\x02p\x01v\x02", b"\xff\x01v", b"TAGS\x01a\x02TAGS\x01b")
    ]
    assert_leaks_nothing(lambda: copies_of(records), [each.raw_properties for each in records])


def test_copies_can_be_sent() -> None:
    builder = BatchBuilder()
    records = [record_with(USUAL + b"TAGS\x01t\x02mine\x01v\x02")] * 2
    assert builder.add_all(copies_of(records), ["1", "2"]) == 2
