"""Common parts of the coders of our values: their base class, and how texts are packed."""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final

from apache_beam.coders import Coder

from rmqio.errors import LocalError, WireError

# Lone surrogates (from a property that was not UTF-8) are also text, and must survive.
UTF8: Final = ("utf-8", "surrogatepass")
ENCODE_ERRORS: Final = (struct.error, TypeError, AttributeError, ValueError)
DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)


class ValueCoder(Coder):
    """Base of these coders: they have no parameters, so coders of one class are equal."""

    value_type: ClassVar[type]

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return self.value_type

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def _cannot_encode(self, value: object, error: Exception) -> LocalError:
        # The value is not quoted: errors go to logs, and bodies must not.
        return LocalError(f"not a {self.value_type.__name__} whose fields have its types: {type(value)} ({error})")

    def _not_one(self, reason: object) -> WireError:
        return WireError(f"these bytes are not one encoded {self.value_type.__name__}: {reason}")


def pack_texts(texts: list[str] | tuple[str, ...]) -> bytes:
    """Packs texts, each as UTF-8 after its size."""
    parts: list[bytes] = []
    for text in texts:
        raw = text.encode(*UTF8)
        parts += (len(raw).to_bytes(4, "big"), raw)
    return b"".join(parts)


def unpack_texts(encoded: bytes, position: int, count: int) -> list[str]:
    """Unpacks exactly `count` texts, which must reach the end. Raises ValueError."""
    texts: list[str] = []
    total = len(encoded)
    if position + 4 * count > total:  # checked first: a hostile count must not cause a long loop
        raise ValueError(f"{count} texts do not fit into {total - position} bytes")
    for _ in range(count):
        begin = position + 4
        position = begin + int.from_bytes(encoded[begin - 4 : begin], "big")
        if position > total:
            raise ValueError("a text is cut off")
        texts.append(str(encoded[begin:position], *UTF8))
    if position != total:
        raise ValueError(f"{total - position} bytes are left over")
    return texts
