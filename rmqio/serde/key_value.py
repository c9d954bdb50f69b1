"""Two named fields to and from a message's key and body, as Apache RocketMQ's Flink connector does it.

`SimpleKeyValueDeserializer("id", "address")` makes `{"id": <KEYS>, "address": <body>}`.
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
    """A dict of the key and the body, both UTF-8 text.

    The key is the whole KEYS property: several keys stay one text with blanks between, as the Flink connector has it.
    A message without a key gives None. Unlike Java's `new String`, text that is not UTF-8 raises `SerdeError` instead
    of being changed.

    Args:
      key_field: the name that the key gets; None: leave it out.
      value_field: the name that the body gets; None: leave it out, and take any body.

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
            key.encode()  # bytes that were not UTF-8 are kept as lone surrogates by the record
        except UnicodeEncodeError as error:
            raise undecodable(record, "its key is not UTF-8 text") from error
        return key


@dataclass(frozen=True, slots=True)
class SimpleKeyValueSerializer:
    """Two fields of a dict become the key and the body. Values are text or whole numbers.

    Blanks in the key separate keys, as the broker's index has it. A missing key (or None, or blank) makes a message
    without one; a missing or empty value raises `SerdeError`, for RocketMQ takes no message without a body. Fields
    besides the two are not sent.

    Args:
      key_field: where the key is; None: messages without a key.
      value_field: where the body is. The Flink connector takes None, and the client then refuses every message; here
        None raises at once.

    Raises:
      LocalError: `value_field` is None or empty, or both are the same.
    """

    key_field: str | None = "key"
    value_field: str = "value"

    def __post_init__(self) -> None:
        if not self.value_field:
            raise LocalError(
                f"value_field is {self.value_field!r}; RocketMQ takes no message without a body, so name the field"
            )
        _check_names(self.key_field, self.value_field)

    def __call__(self, element: Mapping[str, Any]) -> Message:
        if not isinstance(element, Mapping):
            raise unencodable(element, "not a dict")
        value = element.get(self.value_field)
        if value is None:
            raise unencodable(element, f"field {self.value_field!r}, which is to be the body, is missing")
        return message_of(element, field_text(element, self.value_field, value).encode(), keys=self._keys(element))

    def _keys(self, element: Mapping[str, Any]) -> list[str]:
        if self.key_field is None or element.get(self.key_field) is None:
            return []
        return key_text(element, self.key_field, element[self.key_field]).split()


def _check_names(key_field: str | None, value_field: str | None) -> None:
    if key_field == value_field:
        raise LocalError(f"key_field and value_field are both {key_field!r}; they must differ")
