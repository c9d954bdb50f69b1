"""Bodies as bytes, as text, and as one of two named fields of which the other is the key."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rmqio.errors import LocalError
from rmqio.model import KEYS, Message, Record
from rmqio.serde.base import field_text, key_text, message_of, undecodable, unencodable

# Converts two named fields to and from a message's key and body, as Apache RocketMQ's Flink connector does.
#
# `SimpleKeyValueDeserializer("id", "address")` returns `{"id": <KEYS>, "address": <body>}`.


@dataclass(frozen=True, slots=True)
class SimpleKeyValueDeserializer:
    """Returns a dict of the key and the body, both UTF-8 text.

    The key is the whole KEYS property: several keys are one text separated by blanks, as in the Flink connector. If a
    message has no key, its value is None. Text that is not UTF-8 raises `SerdeError`; Java's `new String` changes it.

    Args:
      key_field: the name of the key's field; None: leave it out.
      value_field: the name of the body's field; None: leave it out, and accept any body.

    Raises:
      LocalError: both are None, or both are the same.
    """

    key_field: str | None = "key"
    value_field: str | None = "value"

    def __post_init__(self) -> None:
        if self.key_field is None and self.value_field is None:
            raise LocalError("key_field and value_field are both None; name at least one")
        _check_names(self.key_field, self.value_field)

    @property
    def output_type(self) -> Any:
        return dict[str, str | None]

    def __call__(self, record: Record) -> dict[str, str | None]:
        result: dict[str, str | None] = {}
        if self.key_field is not None:
            result[self.key_field] = self._key(record)
        if self.value_field is not None:
            try:
                result[self.value_field] = record.body.decode()
            except UnicodeDecodeError as error:
                raise undecodable(record, f"not UTF-8 text: {error.reason} at byte {error.start}") from error
        return result

    def _key(self, record: Record) -> str | None:
        key = record.get_property(KEYS)
        if key is None or key.isascii():
            return key
        try:
            key.encode()  # the record keeps bytes that were not UTF-8 as lone surrogates
        except UnicodeEncodeError as error:
            raise undecodable(record, "its key is not UTF-8 text") from error
        return key


@dataclass(frozen=True, slots=True)
class SimpleKeyValueSerializer:
    """Uses two fields of a dict as the key and the body. Values are text or whole numbers.

    Blanks in the key separate keys, as in the broker's index. If the key is missing, None or blank, the message has no
    key. A missing or empty value raises `SerdeError`, because RocketMQ accepts no message without a body. Other fields
    are not sent.

    Args:
      key_field: the field with the key; None: messages without a key.
      value_field: the field with the body. The Flink connector accepts None, and the client then refuses every message;
        here, None raises an error immediately.

    Raises:
      LocalError: `value_field` is None or empty, or both are the same.
    """

    key_field: str | None = "key"
    value_field: str = "value"

    def __post_init__(self) -> None:
        if not self.value_field:
            raise LocalError(
                f"value_field is {self.value_field!r}; RocketMQ accepts no message without a body, so name the field"
            )
        _check_names(self.key_field, self.value_field)

    def __call__(self, element: Mapping[str, Any]) -> Message:
        if not isinstance(element, Mapping):
            raise unencodable(element, "not a dict")
        value = element.get(self.value_field)
        if value is None:
            raise unencodable(element, f"field {self.value_field!r}, which is the body, is missing")
        return message_of(element, field_text(element, self.value_field, value).encode(), keys=self._keys(element))

    def _keys(self, element: Mapping[str, Any]) -> list[str]:
        if self.key_field is None or element.get(self.key_field) is None:
            return []
        return key_text(element, self.key_field, element[self.key_field]).split()


def _check_names(key_field: str | None, value_field: str | None) -> None:
    if key_field == value_field:
        raise LocalError(f"key_field and value_field are both {key_field!r}; they must differ")


Errors = Literal["strict", "replace", "ignore", "backslashreplace", "surrogateescape"]


def text_encoding(name: str) -> str | None:
    """Returns Python's name of a text encoding; None: it knows none of this name."""
    try:
        "".encode(name)  # unlike codecs.lookup, this refuses codecs that are not for text
    except (LookupError, ValueError):  # of a null character, and of the codec `undefined`
        return None
    return codecs.lookup(name).name


def _check_codec(encoding: str, errors: str) -> None:
    if text_encoding(encoding) is None:
        raise LocalError(f"encoding {encoding!r} is not a text encoding that Python knows; e.g. 'utf-8'")
    try:
        codecs.lookup_error(errors)
    except LookupError as error:
        raise LocalError(f"errors {errors!r} is not an error handler of Python's codecs; e.g. 'strict'") from error


@dataclass(frozen=True, slots=True)
class BytesDeserializer:
    """Returns the decompressed body, and nothing else of the record."""

    @property
    def output_type(self) -> Any:
        return bytes

    def __call__(self, record: Record) -> bytes:
        return record.body


@dataclass(frozen=True, slots=True)
class BytesSerializer:
    """Uses bytes as the body. Raises `SerdeError` for other types and for an empty body."""

    def __call__(self, element: bytes) -> Message:
        return message_of(element, element)


@dataclass(frozen=True, slots=True)
class StringDeserializer:
    """Returns the body as text.

    Args:
      encoding: one of Python's text encodings.
      errors: what to do with bytes that are not text: "strict" raises `SerdeError`; the others are those of
        `bytes.decode`, and change the text.

    Raises:
      LocalError: the encoding or the error handler does not exist.
    """

    encoding: str = "utf-8"
    errors: Errors = "strict"

    def __post_init__(self) -> None:
        _check_codec(self.encoding, self.errors)

    @property
    def output_type(self) -> Any:
        return str

    def __call__(self, record: Record) -> str:
        try:
            return record.body.decode(self.encoding, self.errors)
        except UnicodeError as error:
            raise undecodable(record, f"not {self.encoding} text") from error


@dataclass(frozen=True, slots=True)
class StringSerializer:
    """Uses text as the body. Arguments as in `StringDeserializer`. Raises `SerdeError` if it is not text, or empty."""

    encoding: str = "utf-8"
    errors: Errors = "strict"

    def __post_init__(self) -> None:
        _check_codec(self.encoding, self.errors)

    def __call__(self, element: str) -> Message:
        if not isinstance(element, str):
            raise unencodable(element, "not text (str)")
        try:
            body = element.encode(self.encoding, self.errors)
        except UnicodeError as error:
            raise unencodable(element, f"contains characters that {self.encoding} does not have") from error
        return message_of(element, body)
