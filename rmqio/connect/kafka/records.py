"""`KafkaRecord`: a message of Kafka, as read or to be written, and its coder."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from apache_beam.coders import Coder, registry

from rmqio.errors import SerdeError, WireError
from rmqio.transforms import ReadFailure

_HEAD: Final = struct.Struct(">BiqqII")
_NULL: Final = 0xFFFFFFFF
_VERSION: Final = 1


class KafkaRecord(NamedTuple):
    """A message of Kafka. To write one, only the value is needed."""

    value: bytes | None
    """None: a tombstone of a compacted topic."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = ""
    """For a write: the topic, if it is not that of the transform."""
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    """Milliseconds since 1970; -1: unknown, and for a write the time of the broker or client."""

    @property
    def body(self) -> bytes:
        """The value. Raises `SerdeError` for a tombstone."""
        if self.value is None:
            raise SerdeError("the message of Kafka has no value: it is a tombstone")
        return self.value

    def to_failure(self, error: Exception) -> ReadFailure:
        """Returns the element of an output `failed`. Its properties say where it comes from."""
        place = (
            ("kafka.offset", str(self.offset)),
            ("kafka.partition", str(self.partition)),
            ("kafka.topic", self.topic),
        )
        headers = tuple(
            (f"kafka.header.{name}", (value or b"").decode(errors="replace")) for name, value in self.headers
        )
        key = () if self.key is None else (("kafka.key", self.key.decode(errors="backslashreplace")),)
        return ReadFailure(
            "", "", -1, -1, "", "", "", 0, 0, type(error).__name__, str(error), self.value or b"",
            tuple(sorted(place + headers + key)),
        )  # fmt: skip


class KafkaRecordCoder(Coder):
    """A version, fixed fields, then texts and bytes with their lengths."""

    def encode(self, value: KafkaRecord) -> bytes:
        topic = value.topic.encode()
        parts = [
            _HEAD.pack(_VERSION, value.partition, value.offset, value.timestamp_ms, len(topic), len(value.headers))
        ]
        parts += [topic, *_blob(value.key), *_blob(value.value)]
        for name, content in value.headers:
            parts += [*_blob(name.encode("utf-8", "surrogatepass")), *_blob(content)]
        return b"".join(parts)

    def decode(self, encoded: bytes) -> KafkaRecord:
        try:
            version, partition, offset, timestamp_ms, length, count = _HEAD.unpack_from(encoded)
            if version != _VERSION:
                raise WireError(f"a Kafka record of version {version}; this rmqio reads version {_VERSION}")
            reader = _Reader(encoded, _HEAD.size)
            topic = reader.take(length).decode()
            key, value = reader.blob(), reader.blob()
            headers = tuple(
                ((reader.blob() or b"").decode("utf-8", "surrogatepass"), reader.blob()) for _ in range(count)
            )
        except struct.error as error:
            raise WireError(f"a Kafka record is truncated: {error}") from error
        return KafkaRecord(value, key, headers, topic, partition, offset, timestamp_ms)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return KafkaRecord

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) != length:
            raise struct.error(f"{length} bytes at {self._at} of {len(self._data)}")
        self._at += length
        return found

    def blob(self) -> bytes | None:
        (length,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4
        return None if length == _NULL else self.take(length)


def _blob(value: bytes | None) -> tuple[bytes, bytes]:
    return (struct.pack(">I", _NULL), b"") if value is None else (struct.pack(">I", len(value)), value)


registry.register_coder(KafkaRecord, KafkaRecordCoder)
