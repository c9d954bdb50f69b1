"""Checks whether a schema reads what another one wrote: the reasons of our rules, and what fastavro does with bodies.

The bodies contain each branch and symbol, whichever fastavro's writer would choose, because they are encoded here.
"""

from __future__ import annotations

import copy
import io
import struct
from typing import Any

from fastavro import schemaless_reader

from rmqio.serde.avro.compatibility import find_incompatibilities


def differences(reader: Any, writer: Any) -> list[str]:
    return [f"{path}: {reason}" for path, reason in find_incompatibilities(reader, writer)]


def number(value: int) -> bytes:
    value <<= 1  # zigzag, for numbers that are not negative
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


SIMPLE = {
    "null": b"",
    "boolean": b"\x01",
    "int": number(3),
    "long": number(2**40),
    "float": struct.pack("<f", 1.5),
    "double": struct.pack("<d", 1.5),
    "string": text("blå"),
    "bytes": text("blå"),  # UTF-8, so that it can be read as text
}


def unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def covering(schema: Any, names: dict[str, Any] | None = None, depth: int = 0) -> list[bytes]:
    """Returns values of a schema in Avro's binary form. Each symbol and each branch is in at least one of them."""
    names = {} if names is None else names
    if isinstance(schema, list):
        branches = [*enumerate(schema)]
        if depth > 6:  # recursive: null ends the recursion
            branches = [(index, branch) for index, branch in branches if branch == "null"] or branches
        return [number(index) + value for index, branch in branches for value in covering(branch, names, depth + 1)]
    if isinstance(schema, str):
        return [SIMPLE[schema]] if schema in SIMPLE else covering(names[unqualified(schema)], names, depth + 1)
    kind = schema["type"]
    if "name" in schema:
        names[unqualified(schema["name"])] = schema
    if kind == "enum":
        return [number(index) for index in range(len(schema["symbols"]))]
    if kind == "fixed":
        return [b"\x01" * schema["size"]]
    if kind in ("array", "map"):
        inner = [] if depth > 6 else covering(schema["items" if kind == "array" else "values"], names, depth + 1)
        if not inner:
            return [number(0)]
        key = b"" if kind == "array" else text("k")
        return [number(len(inner)) + b"".join(key + value for value in inner) + number(0)]
    if kind in ("record", "error"):
        columns = [covering(one["type"], names, depth + 1) for one in schema["fields"]]
        return [
            b"".join(column[row % len(column)] for column in columns)
            for row in range(max(map(len, columns), default=1))
        ]
    return [text("12345678-1234-5678-1234-567812345678")] if schema.get("logicalType") == "uuid" else [SIMPLE[kind]]


def read(reader: Any, writer: Any, body: bytes) -> Any:
    return schemaless_reader(io.BytesIO(body), copy.deepcopy(writer), copy.deepcopy(reader))


def failures(reader: Any, writer: Any) -> list[Exception]:
    """Returns the errors that fastavro raises for all covering values."""
    raised = []
    for body in covering(writer):
        try:
            read(reader, writer, body)
        except Exception as error:  # noqa: BLE001 - fastavro raises errors of many kinds
            raised.append(error)
    return raised
