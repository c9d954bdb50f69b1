"""`KafkaRecord`, its coder, and errors without a broker. tests/integration/connect/kafka has one."""

from __future__ import annotations

from typing import Any

import pytest
from apache_beam.coders import registry
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.connect import KafkaRecord
from rmqio.connect.kafka.client import Cluster
from rmqio.connect.kafka.records import HEADERS as HEADER_LIST
from rmqio.connect.kafka.records import KEY, KafkaRecordCoder, message_of, record_of
from rmqio.connect.kafka.sink import KafkaSink
from rmqio.connect.rows import to_row
from rmqio.errors import SerdeError, WireError
from rmqio.model import TOMBSTONE, Message, find_property
from rmqio.wire.properties import encode_properties

_BLOBS = st.none() | st.binary(max_size=20)
RECORDS = st.builds(
    KafkaRecord,
    _BLOBS,
    _BLOBS,
    st.lists(st.tuples(st.text(max_size=5), _BLOBS), max_size=3).map(tuple),
    st.text(st.characters(codec="utf-8"), max_size=9),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
)


@given(RECORDS)
def test_a_record_survives_its_coder(record: KafkaRecord) -> None:
    coder = registry.get_coder(KafkaRecord)
    assert isinstance(coder, KafkaRecordCoder)
    assert coder.decode(coder.encode(record)) == record


@given(RECORDS, st.integers(0, 200))
def test_bytes_that_are_cut_off_are_an_error(record: KafkaRecord, length: int) -> None:
    encoded = KafkaRecordCoder().encode(record)
    if length < len(encoded):
        with pytest.raises(WireError):
            KafkaRecordCoder().decode(encoded[:length])


def test_another_version_is_an_error() -> None:
    encoded = b"\x07" + KafkaRecordCoder().encode(KafkaRecord(b"v"))[1:]
    with pytest.raises(WireError, match="a Kafka record of version 7; this rmqio reads version 1"):
        KafkaRecordCoder().decode(encoded)


def test_its_value_is_a_row() -> None:
    assert to_row(KafkaRecord(b'{"a": 1}')) == {"a": 1}
    with pytest.raises(SerdeError, match="it is a tombstone"):
        to_row(KafkaRecord(None))


def test_a_failure_says_where_it_comes_from() -> None:
    failure = KafkaRecord(b"x", b"k", (("h", b"1"),), "t", 2, 3, 4).to_failure(ValueError("no"))
    found: dict[str, Any] = dict(failure.properties)
    assert (failure.body, failure.error, failure.reason) == (b"x", "ValueError", "no")
    assert found == {
        "kafka.topic": "t", "kafka.partition": "2", "kafka.offset": "3", "kafka.key": "k", "kafka.header.h": "1",
    }  # fmt: skip


def test_a_tombstone_of_rocketmq_is_one_of_kafka() -> None:
    """An empty value would be one more message for its key, and the compacted topic would keep it."""
    sink = KafkaSink(Cluster("h:9092"), "t", None)
    message = Message(b"", keys=("k",), properties={TOMBSTONE: "true"})
    assert sink.convert(message) == KafkaRecord(None, b"k", topic="t")
    assert sink.convert(message.replace(properties={})) == KafkaRecord(b"", b"k", topic="t")
    with pytest.raises(SerdeError, match="a tombstone needs a key"):
        sink.convert(message.replace(keys=()))


HEADERS = st.lists(st.tuples(st.sampled_from(["", "TAGS", "a", "b", "é", "\x01", KEY, TOMBSTONE, HEADER_LIST]), _BLOBS))


@given(_BLOBS, st.none() | st.binary(max_size=9) | st.text(max_size=5).map(str.encode), HEADERS.map(tuple))
@example(b"v", bytes(7) + b"\x80", (("h", None), ("", b"x"), ("TAGS", b"y"), ("a", b"2"), ("a", b"1")))
def test_keys_and_headers_come_back_from_rocketmq_as_they_were(value: Any, key: Any, headers: Any) -> None:
    record = KafkaRecord(value, key, headers)
    if value is None and key is None:
        with pytest.raises(SerdeError, match="a tombstone of Kafka needs a key"):
            message_of(record)
        return
    message = message_of(record)
    assert find_property(encode_properties(message, message_id=None), "KEYS") == (
        message.keys[0] if message.keys else None
    )
    assert record_of(message) == record


def test_what_is_text_can_be_read_in_rocketmq() -> None:
    assert message_of(KafkaRecord(b"v", b"k", (("h", b"x"),))) == Message(
        b"v", keys=("k",), sharding_key="k", properties={"h": "x"}
    )
    assert message_of(KafkaRecord(b"v", b"a b", (("n", b"\xff"), ("a", b"1")))) == Message(
        b"v", keys=("0x612062",), sharding_key="0x612062",
        properties={"a": "1", HEADER_LIST: '[["n","/w=="],["a","MQ=="]]', KEY: "hex"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({HEADER_LIST: "x"}, "the property rmqio.kafka.headers is not a list of headers"),
        ({HEADER_LIST: "[1]"}, "the property rmqio.kafka.headers is not a list of headers"),
        ({KEY: "hex"}, "the property rmqio.kafka.key is 'hex', but the key 'k' is not hexadecimal"),
    ],
)
def test_properties_that_say_something_else_are_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(SerdeError, match=why):
        record_of(Message(b"v", keys=("k",), properties=properties))
