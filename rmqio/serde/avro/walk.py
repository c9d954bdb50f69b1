"""Goes through an encoded value without making it: how deep it is, and at which field it is broken.

fastavro goes down the C stack for each level of nesting, and beyond some thousands of levels takes the process down
with it, for which a body of 20 KB is enough. Values of recursive schemas are gone through first.
"""

from __future__ import annotations

from typing import Any, Final

from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema

MAX_DEPTH: Final = 200
"""How many records, arrays and maps may be within each other; Python, too, goes down a stack that ends."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MAX_VARINT: Final = 10


class BrokenValue(ValueError):
    """Bytes that are no value of the schema; its text says where and why."""


def walk(body: bytes, at: int, schema: AvroSchema) -> int:
    """Where the value that begins at `at` ends. Raises `BrokenValue`."""
    # Each is a schema, its path, its depth, and of an array or a map how many items are left of its block.
    stack: list[tuple[Node, str, int, int | None]] = [(schema.parsed, schema.name, 0, None)]
    while stack:
        node, path, depth, left = stack.pop()
        node = schema.resolve(node)
        if isinstance(node, list):
            index, at = _long(body, at, path)
            if not 0 <= index < len(node):
                raise BrokenValue(f"{path}: no branch {index} in a union of {len(node)}")
            stack.append((node[index], path, depth, None))
            continue
        kind = node["type"] if isinstance(node, dict) else node
        if not isinstance(kind, str):
            stack.append((kind, path, depth, None))
        elif kind in ("record", "error"):
            _require_depth(depth, path)
            stack.extend(
                (field["type"], f"{path}.{field['name']}", depth + 1, None) for field in reversed(node["fields"])
            )
        elif kind in ("array", "map"):
            _require_depth(depth, path)
            if not left:
                left, at = _block(body, at, path)
            if left:
                stack.append((node, path, depth, left - 1))
                if kind == "map":
                    at = _leaf(body, at, f"{path}, a key", None, "string")
                stack.append((node["items" if kind == "array" else "values"], f"{path}[]", depth + 1, None))
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
        if kind == "enum" and not 0 <= value < len(node["symbols"]):
            raise BrokenValue(f"{path}: no symbol {value} in an enum of {len(node['symbols'])}")
        return end
    end = at + (node["size"] if kind == "fixed" else _SIZES[kind])
    if end > len(body):
        raise BrokenValue(f"{path}: the body ends within a {kind}")
    return end


def _block(body: bytes, at: int, path: str) -> tuple[int, int]:
    """How many items a block of an array or a map has, 0 at the end, and where they begin."""
    count, at = _long(body, at, path)
    if count < 0:
        _, at = _long(body, at, path)  # its size in bytes, for who skips it
        count = -count
    return count, at


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
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise BrokenValue(f"{path}: a number of more than {_MAX_VARINT} bytes")


def _require_depth(depth: int, path: str) -> None:
    if depth >= MAX_DEPTH:
        raise BrokenValue(f"{path[:80]}...: more than {MAX_DEPTH} records, arrays and maps within each other")
