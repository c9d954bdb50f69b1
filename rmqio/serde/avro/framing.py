"""Framings: the bytes before an Avro value in a body, which identify the writer's schema.

| framing | bytes | the writer's schema |
|---|---|---|
| `bare` | only the value, as RocketMQ's own serializer for Avro writes it | known to both sides |
| `single_object` | C3 01, CRC-64-AVRO of the schema (8 bytes, little endian), the value | by fingerprint |
| `confluent` | 00, the schema's id (4 bytes, big endian), the value | by id in a registry |
| `container` | an object container file: "Obj" 01, the schema, blocks of values | in the body |

`auto` distinguishes the last three by their first bytes. A bare value can begin with any byte.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, get_args

from rmqio.errors import LocalError

Framing = Literal["bare", "single_object", "confluent", "container"]
FRAMINGS: Final[tuple[str, ...]] = get_args(Framing)
SINGLE_OBJECT: Final = b"\xc3\x01"
CONFLUENT: Final = b"\x00"
CONTAINER: Final = b"Obj\x01"
FINGERPRINT_END: Final = len(SINGLE_OBJECT) + 8
ID_END: Final = len(CONFLUENT) + 4
_ID: Final = struct.Struct(">i")
_MARKS: Final[dict[str, bytes]] = {"single_object": SINGLE_OBJECT, "confluent": CONFLUENT, "container": CONTAINER}


class BadFraming(ValueError):
    """The body does not begin as its framing requires."""


def framing_of(body: bytes) -> str:
    """The framing of a body that is not bare. Raises `BadFraming`."""
    for framing, mark in _MARKS.items():
        if body.startswith(mark):
            return framing
    raise BadFraming(
        f"it begins with {body[:2].hex() or 'nothing'}, which none of single_object (c301), confluent (00) and "
        "container (4f626a01) does; for bare Avro give framing='bare'"
    )


def fingerprint_of(body: bytes) -> bytes:
    """The schema's fingerprint in a single object. Raises `BadFraming`."""
    if not body.startswith(SINGLE_OBJECT) or len(body) < FINGERPRINT_END:
        raise BadFraming(f"no single object, which begins with c301 and a fingerprint: {body[:2].hex()}")
    return body[len(SINGLE_OBJECT) : FINGERPRINT_END]


def id_of(body: bytes) -> int:
    """The schema's id in Confluent's framing. Raises `BadFraming`."""
    if not body.startswith(CONFLUENT) or len(body) < ID_END:
        raise BadFraming(f"no Confluent framing, which begins with 00 and the schema's id: {body[:1].hex()}")
    return int(_ID.unpack_from(body, len(CONFLUENT))[0])


def single_object_head(fingerprint: bytes) -> bytes:
    """The bytes before the value."""
    return SINGLE_OBJECT + fingerprint


def confluent_head(schema_id: int) -> bytes:
    """The bytes before the value."""
    return CONFLUENT + _ID.pack(schema_id)


def require_framing(framing: str, *, auto: bool = False) -> None:
    """Raises `LocalError` for an unknown framing."""
    known = (*FRAMINGS, "auto") if auto else FRAMINGS
    if framing not in known:
        raise LocalError(f"framing is {framing!r}; it must be one of {', '.join(known)}")
