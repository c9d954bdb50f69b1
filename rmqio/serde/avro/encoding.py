"""Encoded bodies: the bytes before a value, which identify its schema, and a walk through it without decoding."""

from __future__ import annotations

import struct
from typing import Any, Final, Literal, get_args

from rmqio.errors import LocalError
from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema

# Framings: the bytes before an Avro value in a body, which identify the writer's schema.
#
# | framing | bytes | the writer's schema | |---|---|---| | `bare` | only the value, as RocketMQ's own serializer for
# Avro writes it | known to both sides | | `single_object` | C3 01, CRC-64-AVRO of the schema (8 bytes, little
# endian), the value | by fingerprint | | `confluent` | 00, the schema's id (4 bytes, big endian), the value | by id
# in a registry | | `container` | an object container file: "Obj" 01, the schema, blocks of values | in the body |
#
# `auto` distinguishes the last three by their first bytes. A bare value can begin with any byte.

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


MAX_DEPTH: Final = 200
"""The maximum nesting of records, arrays and maps; Python's stack is limited, too."""
MAX_EMPTY: Final = 10_000
"""The maximum number of fields in a value, in addition to four per byte: more can only be empty records."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MAX_VARINT: Final = 10
_LEAST_INT: Final = -(1 << 31)
_MOST_INT: Final = (1 << 31) - 1
_NO_BLOCK: Final[tuple[int, int | None]] = (0, None)


class BrokenValue(ValueError):
    """The bytes are not a value of the schema; the text says where and why."""


def walk(body: bytes, at: int, schema: AvroSchema) -> int:
    """Return the end of the value that begins at `at`. Raises `BrokenValue`."""
    # Each entry is a schema, its path and depth, and for an array or map, how many items of the current block are left
    # and, if the block has a size, where it ends.
    stack: list[tuple[Node, str, int, tuple[int, int | None]]] = [(schema.parsed, schema.name, 0, _NO_BLOCK)]
    room = MAX_EMPTY + 4 * len(body)
    while stack:
        node, path, depth, (left, end) = stack.pop()
        node = schema.resolve(node)
        if isinstance(node, list):
            index, at = _long(body, at, path)
            if not 0 <= index < len(node):
                raise BrokenValue(f"{path}: no branch {index} in a union of {len(node)}")
            stack.append((node[index], path, depth, _NO_BLOCK))
            continue
        kind = node["type"] if isinstance(node, dict) else node
        if not isinstance(kind, str):
            stack.append((kind, path, depth, _NO_BLOCK))
        elif kind in ("record", "error"):
            _require_depth(depth, path)
            room -= len(node["fields"])
            if room < 0:
                raise BrokenValue(f"{path[:80]}...: too many records and values that take no bytes")
            stack.extend(
                (field["type"], f"{path}.{field['name']}", depth + 1, _NO_BLOCK) for field in reversed(node["fields"])
            )
        elif kind in ("array", "map"):
            _require_depth(depth, path)
            if not left:
                if end not in (None, at):  # fastavro relies on its size if the reader skips the block
                    raise BrokenValue(f"{path}: a block that does not end where it says")
                left, end, at = _block(body, at, path)
            if left:
                stack.append((node, path, depth, (left - 1, end)))
                if kind == "map":
                    at = _leaf(body, at, f"{path}, a key", None, "string")
                stack.append((node["items" if kind == "array" else "values"], f"{path}[]", depth + 1, _NO_BLOCK))
        else:
            at = _leaf(body, at, path, node, kind)
    return at


def _leaf(body: bytes, at: int, path: str, node: Any, kind: str) -> int:
    if kind in ("bytes", "string"):
        end = _sized(body, at, path)
        if kind == "string":
            _require_utf8(body, at, end, path)
        return end
    if kind in ("int", "long", "enum"):
        value, end = _long(body, at, path)
        if kind == "int" and not _LEAST_INT <= value <= _MOST_INT:
            raise BrokenValue(f"{path}: a number of more than 32 bits is not a valid int")
        if kind == "enum" and not 0 <= value < len(node["symbols"]):
            raise BrokenValue(f"{path}: no symbol {value} in an enum of {len(node['symbols'])}")
        return end
    end = at + (node["size"] if kind == "fixed" else _SIZES[kind])
    if end > len(body):
        raise BrokenValue(f"{path}: the body ends within a {kind}")
    if kind == "boolean" and body[at] > 1:
        raise BrokenValue(f"{path}: {body[at]} is no boolean, which is 0 or 1")
    return end


def _block(body: bytes, at: int, path: str) -> tuple[int, int | None, int]:
    """The number of items in a block of an array or map (0 at the end), its end if given, and its begin."""
    count, at = _long(body, at, path)
    if count >= 0:
        return count, None, at
    size, at = _long(body, at, path)  # for readers that skip the block
    return -count, at + size, at


def _sized(body: bytes, at: int, path: str) -> int:
    size, at = _long(body, at, path)
    if size < 0 or at + size > len(body):
        raise BrokenValue(f"{path}: {size} bytes are announced, {len(body) - at} are left")
    return at + size


def _require_utf8(body: bytes, at: int, end: int, path: str) -> None:
    size, begin = _long(body, at, path)
    try:
        body[begin:end].decode()
    except UnicodeDecodeError as error:
        raise BrokenValue(f"{path}: not UTF-8 text: {error.reason} at byte {error.start} of {size}") from error


def _long(body: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, at + _MAX_VARINT):
        if position >= len(body):
            raise BrokenValue(f"{path}: the body ends within it")
        byte = body[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise BrokenValue(f"{path}: a number of more than 64 bits")


def _require_depth(depth: int, path: str) -> None:
    if depth >= MAX_DEPTH:
        raise BrokenValue(f"{path[:80]}...: more than {MAX_DEPTH} records, arrays and maps within each other")
