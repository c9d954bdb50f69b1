"""Bodies as bytes, and bodies as text."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any, Literal

from rmqio.errors import LocalError
from rmqio.model import Message, Record
from rmqio.serde.base import message_of, undecodable, unencodable

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
