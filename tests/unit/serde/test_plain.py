"""Bytes, text, and the adapters of plain functions."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, Record
from rmqio.serde import (
    BodyDeserializer,
    BodySerializer,
    BytesDeserializer,
    BytesSerializer,
    StringDeserializer,
    StringSerializer,
    output_type_of,
)


def record(body: bytes) -> Record:
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def reversed_body(body: bytes) -> bytes:
    return body[::-1]


def shout(element: str) -> bytes:
    return element.upper().encode()


def always_fails(_: Any) -> bytes:
    raise KeyError("secret content")


def gives_text(_: Any) -> Any:
    return "text"


def refuses(_: Any) -> bytes:
    raise SerdeError("not today")


@pytest.mark.parametrize(
    ("deserializer", "body", "element"),
    [
        (BytesDeserializer(), b"\x00\xff", b"\x00\xff"),
        (BytesDeserializer(), b"", b""),
        (StringDeserializer(), "浙江省".encode(), "浙江省"),
        (StringDeserializer(), b"", ""),
        (StringDeserializer("gb18030"), "浙江省".encode("gb18030"), "浙江省"),
        (StringDeserializer(errors="replace"), b"a\xff", "a\ufffd"),
        (BodyDeserializer(reversed_body), b"abc", b"cba"),
    ],
)
def test_deserializer_makes_the_element(deserializer: Any, body: bytes, element: object) -> None:
    assert deserializer(record(body)) == element


@pytest.mark.parametrize(
    ("deserializer", "body", "message", "cause"),
    [
        (StringDeserializer(), b"ab\xff", "body of 3 bytes does not deserialize: not utf-8 text", UnicodeDecodeError),
        (StringDeserializer("ascii"), "é".encode(), "not ascii text", UnicodeDecodeError),
        (BodyDeserializer(always_fails), b"x", "always_fails raised KeyError", KeyError),
    ],
)
def test_deserializer_names_the_place_and_the_reason(
    deserializer: Any, body: bytes, message: str, cause: type[Exception]
) -> None:
    with pytest.raises(SerdeError, match=message) as caught:
        deserializer(record(body))
    assert str(caught.value).startswith("queue orders/broker-a/3, offset 42: ")
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize(
    ("serializer", "element", "body"),
    [
        (BytesSerializer(), b"\x00\xff", b"\x00\xff"),
        (StringSerializer(), "浙江省", "浙江省".encode()),
        (StringSerializer("latin-1", "replace"), "a浙", b"a?"),
        (BodySerializer(shout), "abc", b"ABC"),
    ],
)
def test_serializer_makes_the_message(serializer: Any, element: object, body: bytes) -> None:
    assert serializer(element) == Message(body)


@pytest.mark.parametrize(
    ("serializer", "element", "message"),
    [
        (BytesSerializer(), "text", "type str does not serialize: the body is of type str, not bytes"),
        (BytesSerializer(), b"", "the body is empty"),
        (StringSerializer(), "", "the body is empty"),
        (StringSerializer(), b"bytes", "type bytes does not serialize: not text"),
        (StringSerializer(), "\ud800", "contains characters that utf-8 does not have"),
        (StringSerializer("ascii"), "é", "contains characters that ascii does not have"),
        (BodySerializer(always_fails), "x", "always_fails raised KeyError$"),
        (BodySerializer(gives_text), "x", "the body is of type str, not bytes"),
    ],
)
def test_serializer_refuses_with_the_reason(serializer: Any, element: object, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serializer(element)


@pytest.mark.parametrize("adapter", [BodySerializer(refuses), BodyDeserializer(refuses)])
def test_adapter_lets_a_serde_error_pass_as_it_is(adapter: Any) -> None:
    with pytest.raises(SerdeError, match=r"^not today$"):
        adapter(record(b"x"))


@pytest.mark.parametrize("make", [StringDeserializer, StringSerializer])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("utf-9",), "encoding 'utf-9' is not a text encoding"),
        (("hex",), "encoding 'hex' is not a text encoding"),
        (("undefined",), "encoding 'undefined' is not a text encoding"),
        (("utf-8", "lenient"), "errors 'lenient' is not an error handler"),
    ],
)
def test_wrong_configuration_fails_in_the_constructor(make: Any, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        make(*arguments)


def test_output_type_is_told_to_beam() -> None:
    assert output_type_of(BytesDeserializer()) is bytes
    assert output_type_of(StringDeserializer()) is str
    assert output_type_of(BodyDeserializer(len, int)) is int
    assert output_type_of(lambda r: r.body) is Any
