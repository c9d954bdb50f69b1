"""JSON bodies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, Record
from rmqio.serde import JsonDeserializer, JsonSerializer

DEEP = 200_000


def record(body: bytes) -> Record:
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("body", "element"),
    [
        (b'{"id": 1, "address": "\xe6\xb5\x99"}', {"id": 1, "address": "浙"}),
        (b" [1, 2.5, true, null, -0] ", [1, 2.5, True, None, 0]),
        (b'"text"', "text"),
        (b'"\\u6d59"', "浙"),
        (b"12345678901234567890", 12345678901234567890),
        (b"1e-400", 0.0),
        (b'{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_body_is_parsed(body: bytes, element: object) -> None:
    assert JsonDeserializer()(record(body)) == element


@pytest.mark.parametrize("schema", [None, {"properties": {"a": {"type": "number", "maximum": 9}}}])
def test_numbers_beyond_a_double_go_on_as_they_are(schema: dict[str, Any] | None) -> None:
    body = b'{"a":0.12345678901234567890,"b":[12345678901234567890.01,1.5,7]}'
    found = JsonDeserializer(schema=schema)(record(body))
    assert found == {"a": 0.12345678901234567890, "b": [12345678901234567890.01, 1.5, 7]}
    assert JsonSerializer(schema=schema)(found).body == body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body of 0 bytes does not deserialize: not JSON: Expecting value at line 1 column 1"),
        (b"{'secret': 1}", "not JSON: Expecting property name .* at line 1 column 2"),
        (b'"secret" "secret"', "not JSON: Extra data at line 1 column 10"),
        (b'"se\ncret"', "not JSON: Invalid control character at at line 1 column 4"),
        (b'"\xff"', "not UTF-8 text: invalid start byte at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 text: .* at byte 1"),
        ("[]".encode("utf-16"), "not UTF-8 text"),
        (b"\xef\xbb\xbf[]", "not JSON"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"1e400", "a number does not fit a double"),
        (b"1" * 5000, "a number has too many digits"),
        (b"[" * DEEP + b"]" * DEEP, "JSON nested too deeply"),
    ],
)
def test_bad_body_is_refused_without_being_quoted(body: bytes, message: str) -> None:
    with pytest.raises(SerdeError, match=message) as caught:
        JsonDeserializer()(record(body))
    assert str(caught.value).startswith("queue orders/broker-a/3, offset 42: ")
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("serializer", "element", "message"),
    [
        (JsonSerializer(), {"b": 1, "a": "浙"}, Message('{"b":1,"a":"浙"}'.encode())),
        (JsonSerializer(deterministic=True), {"b": 1, "a": {"d": 1, "c": 2}}, Message(b'{"a":{"c":2,"d":1},"b":1}')),
        (JsonSerializer(), None, Message(b"null")),
        (JsonSerializer(), (1, "x"), Message(b'[1,"x"]')),
        (JsonSerializer(key_fields=("id",)), {"id": 7}, Message(b'{"id":7}', keys=("7",))),
        (JsonSerializer(key_fields=["a", "b"]), {"a": "x", "b": "y"}, Message(b'{"a":"x","b":"y"}', keys=("x", "y"))),
        (JsonSerializer(tag_field="kind"), {"kind": "new"}, Message(b'{"kind":"new"}', tags="new")),
        (JsonSerializer(tag_field="kind"), {"kind": None}, Message(b'{"kind":null}')),
        (JsonSerializer(tag_field="kind"), {"kind": ""}, Message(b'{"kind":""}')),
        (JsonSerializer(tag_field="kind"), {}, Message(b"{}")),
    ],
)
def test_element_is_serialized(serializer: JsonSerializer, element: object, message: Message) -> None:
    assert serializer(element) == message


@pytest.mark.parametrize(
    ("make_element", "message"),
    [
        (
            lambda: b"secret",
            "type bytes does not serialize: a value or a name in it is of a type that JSON does not have",
        ),
        (lambda: {("secret",): 1}, "a type that JSON does not have"),
        (lambda: {"x": math.nan}, "NaN, infinity or"),
        (lambda: {math.inf: 1}, "NaN, infinity or"),
        (lambda: 10**5000, "whole number of too many digits"),
        (circular, "it contains itself"),
        (lambda: nested(DEEP), "nested too deeply"),
        (lambda: {"secret": "\ud800"}, "lone surrogate"),
    ],
)
def test_bad_element_is_refused_without_being_quoted(make_element: Callable[[], object], message: str) -> None:
    with pytest.raises(SerdeError, match=message) as caught:
        JsonSerializer()(make_element())
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("serializer", "element", "message"),
    [
        (JsonSerializer(deterministic=True), {1: 1, "a": 2}, "names of mixed types cannot be sorted"),
        (JsonSerializer(key_fields=("id",)), {"ID": 1}, "field 'id', which is a key, is missing"),
        (JsonSerializer(key_fields=("id",)), {"id": "a b"}, "field 'id' is empty or contains white space"),
        (JsonSerializer(key_fields=("id",)), {"id": ""}, "field 'id' is empty or contains white space"),
        (JsonSerializer(key_fields=("id",)), {"id": True}, "field 'id' is of type bool, not text"),
        (JsonSerializer(key_fields=("id",)), {"id": 1.5}, "field 'id' is of type float, not text"),
        (JsonSerializer(key_fields=("id",)), {"id": "a\x01b"}, "field 'id' holds a separator"),
        (JsonSerializer(key_fields=("id",)), [1], "type list does not serialize: keys and tags are taken"),
        (JsonSerializer(tag_field="kind"), {"kind": []}, "field 'kind' is of type list"),
    ],
)
def test_bad_key_or_tag_is_refused(serializer: JsonSerializer, element: object, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serializer(element)


def test_one_name_instead_of_several_is_misuse() -> None:
    with pytest.raises(LocalError, match=r"key_fields is 'id'; it must be several names: \('id',\)"):
        JsonSerializer(key_fields="id")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_what_is_serialized_is_read_back(element: object) -> None:
    try:
        message = JsonSerializer(deterministic=True)(element)
    except SerdeError as error:
        assert "surrogate" in str(error)  # noqa: PT017 - the only reason that these values may be refused for
        return
    assert JsonDeserializer()(record(message.body)) == element
    assert json.loads(message.body) == element


@given(st.binary() | st.text(alphabet='{}[]",:0123456789eE.-+ntrufals\\').map(str.encode))
def test_no_body_raises_anything_but_a_serde_error(body: bytes) -> None:
    try:
        JsonDeserializer()(record(body))
    except SerdeError as error:
        assert error.__cause__ is not None  # noqa: PT017 - most bodies are bad, some are not
