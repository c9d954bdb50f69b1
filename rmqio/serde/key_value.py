"""Converts two named fields to and from a message's key and body, as Apache RocketMQ's Flink connector does.

`SimpleKeyValueDeserializer("id", "address")` returns `{"id": <KEYS>, "address": <body>}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqio.errors import LocalError
from rmqio.model import KEYS, Message, Record
from rmqio.serde.base import field_text, key_text, message_of, undecodable, unencodable


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
