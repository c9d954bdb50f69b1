"""Two fields to and from key and body."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, Record
from rmqio.serde import SimpleKeyValueDeserializer, SimpleKeyValueSerializer
from rmqio.wire.properties import encode_properties


def record(body: bytes, properties: bytes = b"") -> Record:
    return Record("orders", "broker-a", 3, 42, body, 0, 0, properties, 0, 0, 0, 0, 0, b"", b"", 0, 0)


@pytest.mark.parametrize(
    ("deserializer", "properties", "body", "element"),
    [
        (SimpleKeyValueDeserializer(), b"KEYS\x01k1\x02", b"v1", {"key": "k1", "value": "v1"}),
        (SimpleKeyValueDeserializer(), b"TAGS\x01t\x02KEYS\x01k1 k2", b"v1", {"key": "k1 k2", "value": "v1"}),
        (SimpleKeyValueDeserializer(), b"TAGS\x01t\x02", b"v1", {"key": None, "value": "v1"}),
        (SimpleKeyValueDeserializer(), b"", b"", {"key": None, "value": ""}),
        (
            SimpleKeyValueDeserializer("id", "address"),
            "KEYS\x01编号\x02".encode(),
            "浙江省".encode(),
            {"id": "编号", "address": "浙江省"},
        ),
        (SimpleKeyValueDeserializer(None, "address"), b"KEYS\x01\xff\x02", b"v", {"address": "v"}),
        (SimpleKeyValueDeserializer("id", None), b"KEYS\x01k\x02", b"\xff", {"id": "k"}),
    ],
)
def test_key_and_body_become_fields(
    deserializer: SimpleKeyValueDeserializer, properties: bytes, body: bytes, element: dict[str, str | None]
) -> None:
    assert deserializer(record(body, properties)) == element


@pytest.mark.parametrize(
    ("properties", "body", "message"),
    [
        (b"", b"ab\xff", "body of 3 bytes does not deserialize: not UTF-8 text: invalid start byte at byte 2"),
        (b"KEYS\x01\xff\x02", b"v", "its key is not UTF-8 text"),
    ],
)
def test_what_is_not_text_is_refused(properties: bytes, body: bytes, message: str) -> None:
    with pytest.raises(SerdeError, match=message) as caught:
        SimpleKeyValueDeserializer()(record(body, properties))
    assert str(caught.value).startswith("queue orders/broker-a/3, offset 42: ")
    assert isinstance(caught.value.__cause__, UnicodeError)


@pytest.mark.parametrize(
    ("serializer", "element", "message"),
    [
        (SimpleKeyValueSerializer(), {"key": "k1", "value": "v1"}, Message(b"v1", keys=("k1",))),
        (SimpleKeyValueSerializer(), {"key": "k1 k2", "value": "v1"}, Message(b"v1", keys=("k1", "k2"))),
        (SimpleKeyValueSerializer(), {"key": None, "value": "v1"}, Message(b"v1")),
        (SimpleKeyValueSerializer(), {"key": "", "value": "v1"}, Message(b"v1")),
        (SimpleKeyValueSerializer(), {"value": "v1", "other": object()}, Message(b"v1")),
        (SimpleKeyValueSerializer("id", "n"), {"id": 7, "n": 8}, Message(b"8", keys=("7",))),
        (SimpleKeyValueSerializer(None, "address"), {"key": "k", "address": "浙"}, Message("浙".encode())),
    ],
)
def test_fields_become_key_and_body(
    serializer: SimpleKeyValueSerializer, element: dict[str, Any], message: Message
) -> None:
    assert serializer(element) == message


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({"key": "k"}, "field 'value', which is the body, is missing"),
        ({"key": "k", "value": None}, "field 'value', which is the body, is missing"),
        ({"key": "k", "value": ""}, "the body is empty"),
        ({"key": "k", "value": 1.5}, "field 'value' is of type float"),
        ({"key": "k", "value": b"v"}, "field 'value' is of type bytes"),
        ({"key": "k", "value": "\ud800"}, "field 'value' holds a lone surrogate"),
        ({"key": "k", "value": 10**5000}, "field 'value' has more digits"),
        ({"key": True, "value": "v"}, "field 'key' is of type bool"),
        ({"key": "\ud800", "value": "v"}, "field 'key' holds a lone surrogate"),
        ({"key": "a\x02b", "value": "v"}, "field 'key' holds a separator"),
        (("k", "v"), "element of type tuple does not serialize: not a dict"),
    ],
)
def test_bad_element_is_refused(element: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        SimpleKeyValueSerializer()(element)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (SimpleKeyValueDeserializer, (None, None), "both None"),
        (SimpleKeyValueDeserializer, ("a", "a"), "both 'a'; they must differ"),
        (SimpleKeyValueSerializer, ("a", "a"), "both 'a'; they must differ"),
        (SimpleKeyValueSerializer, ("a", None), "value_field is None; RocketMQ accepts no message without a body"),
    ],
)
def test_wrong_configuration_fails_in_the_constructor(make: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        make(*arguments)


@pytest.mark.parametrize("key", [None, "k1", "k1 k2", "编号"])
def test_element_survives_the_way_over_the_wire(key: str | None) -> None:
    element = {"id": key, "address": "浙江省杭州市"}
    message = SimpleKeyValueSerializer("id", "address")(element)
    stored = record(message.body, encode_properties(message, message_id="X"))
    assert SimpleKeyValueDeserializer("id", "address")(stored) == element
