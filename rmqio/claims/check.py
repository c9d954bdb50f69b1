"""`ClaimCheck`, and the form of a reference. Pure: `store` reads and writes the objects."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.model import Message, Record, find_property

PROPERTY: Final = "RMQIO_CLAIM"
"""The property that makes a message a reference. Its value is `1 DAY/SHA256 BYTES`."""
_MARK: Final = PROPERTY.encode() + b"\x01"
_VALUE: Final = re.compile(r"1 (\d{4}-\d\d-\d\d)/([0-9a-f]{64}) (\d{1,15})")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_OBJECT: Final = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{32}\.part)?")


class ClaimStoreError(RmqioError):
    """The folder of a claim check cannot be read or written. No message is at fault, so the bundle must fail."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """The folder of big bodies, and from which size a body is big.

    Args:
      path: a folder of any Beam file system that writers and readers see under this name: `gs://bucket/claims`,
        `s3://...`, `hdfs://...`, or a path. Only what lies in it is read.
      above_bytes: bodies of more bytes than this are written there; smaller ones stay in the message.
      max_bytes: a reader refuses a reference to a bigger object, and a writer a bigger body.
    """

    path: str
    above_bytes: int = 256 * 1024
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.strip():
            raise LocalError(f"ClaimCheck.path is {self.path!r}; it must be a folder, e.g. 'gs://bucket/claims'")
        if self.path.partition("://")[2].strip("/ ") == "" and "://" in self.path:
            raise LocalError(f"ClaimCheck.path is {self.path!r}, which names no folder; e.g. 'gs://bucket/claims'")
        for name in ("above_bytes", "max_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LocalError(f"ClaimCheck.{name} is {value!r}; it must be a whole number of at least 1")
        if self.max_bytes <= self.above_bytes:
            raise LocalError(f"ClaimCheck.max_bytes is {self.max_bytes}; it must be more than above_bytes")


def checked_claim_check(given: ClaimCheck | None) -> ClaimCheck | None:
    """The argument of a transform. Raises `LocalError` for another type, e.g. the path alone."""
    if given is not None and not isinstance(given, ClaimCheck):
        raise LocalError(f"claim_check is {given!r}; it must be a ClaimCheck, e.g. ClaimCheck('gs://bucket/claims')")
    return given


class Reference(NamedTuple):
    """An object: the day on which it was written (UTC), the SHA-256 of its content, and its size."""

    day: str
    sha256: str
    size: int

    @classmethod
    def of(cls, body: bytes, unix_s: float) -> Reference:
        """The reference to a body that is written now."""
        return cls(day_of(unix_s), hashlib.sha256(body).hexdigest(), len(body))

    def __str__(self) -> str:
        return f"{self.day}/{self.sha256}"

    @property
    def value(self) -> str:
        """The value of the property."""
        return f"1 {self} {self.size}"

    def check(self, body: bytes) -> None:
        """Raises `SerdeError` if the object is not the one that the reference names."""
        if len(body) != self.size:
            raise SerdeError(f"claim check: the object {self} has {len(body)} bytes, and its message says {self.size}")
        if hashlib.sha256(body).hexdigest() != self.sha256:
            raise SerdeError(f"claim check: the object {self} was changed: its SHA-256 is not that of its name")


def day_of(unix_s: float) -> str:
    """The day of a time in UTC, as the folder of its objects is named."""
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).date().isoformat()


def is_day(name: str) -> bool:
    """Whether a folder has the name of a day."""
    return _DAY.fullmatch(name) is not None


def is_object(name: str) -> bool:
    """Whether a file of a day has the name of an object, or of one that a killed writer has not finished."""
    return _OBJECT.fullmatch(name) is not None


def path_of(folder: str, reference: Reference) -> str:
    """The path of an object. Also for a file system that is not installed."""
    return f"{folder.rstrip('/')}/{reference}"


def with_reference(message: Message, reference: Reference, path: str) -> Message:
    """The message that is sent instead. Its body tells other consumers where the object is."""
    body = {"claim_check": path_of(path, reference), "bytes": reference.size, "sha256": reference.sha256}
    properties = {**message.properties, PROPERTY: reference.value}
    return message.replace(body=json.dumps(body).encode(), properties=properties)


def is_reference(record: Record) -> bool:
    """Whether a record carries a reference. Costs one search in its properties."""
    raw = record.raw_properties
    return _MARK in raw and find_property(raw, PROPERTY) is not None


def reference_of(record: Record, max_bytes: int) -> Reference:
    """The reference of a record that has one.

    A reference names a day and a hash and nothing else, so it cannot lead out of the folder. Raises `SerdeError`.
    """
    value = find_property(record.raw_properties, PROPERTY) or ""
    found = _VALUE.fullmatch(value)
    if found is None:
        raise SerdeError(
            f"claim check: the property {PROPERTY} is {value[:100]!r}, which names no object of the folder: it must be "
            "'1 DAY/SHA256 BYTES'"
        )
    reference = Reference(found[1], found[2], int(found[3]))
    if reference.size > max_bytes:
        raise SerdeError(
            f"claim check: the object {reference} has {reference.size} bytes; ClaimCheck.max_bytes is {max_bytes}"
        )
    return reference


def resolved(record: Record, body: bytes) -> Record:
    """The record with its body, and without the property: written again, it is a message like any other."""
    kept = [item for item in record.raw_properties.split(b"\x02") if not item.startswith(_MARK)]
    changed: Any = record._replace(body=body, raw_properties=b"\x02".join(kept))
    found: Record = changed
    return found
