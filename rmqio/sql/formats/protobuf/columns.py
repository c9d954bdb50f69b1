"""Columns of a message, as CREATE TABLE writes them.

A field that always has a value is NOT NULL: one without presence (numbers, text and enums of proto3), lists and maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rmqio.sql.errors import Refusal

Field = Any
"""A FieldDescriptor."""
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_KINDS: Final = {
    "double": "DOUBLE", "float": "FLOAT", "int32": "INT", "int64": "BIGINT", "uint32": "BIGINT",
    "uint64": "DECIMAL(20, 0)", "bool": "BOOLEAN", "enum": "STRING", "string": "STRING", "bytes": "BYTES",
}  # fmt: skip


def kind_of(field: Field) -> str:
    """Returns double, float, int32, int64, uint32, uint64, bool, enum, string, bytes, message or group."""
    if field.type == field.TYPE_BYTES:
        return "bytes"
    if field.type == field.TYPE_GROUP:
        return "group"
    return _CPP_TYPES[field.cpp_type]


_CPP_TYPES: Final = {
    1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float", 7: "bool", 8: "enum", 9: "string",
    10: "message",
}  # fmt: skip


def is_repeated(field: Field) -> bool:
    """Returns whether the field is a list or a map."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_required(field: Field) -> bool:
    """Returns whether the field is required, as in proto2."""
    return bool(field.is_required) if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED


def is_map(field: Field) -> bool:
    """Returns whether the field is a map."""
    return is_repeated(field) and field.message_type is not None and field.message_type.GetOptions().map_entry


def columns_of(message: Any) -> Iterator[tuple[str, str]]:
    """Yields names and types of the columns. Raises `Refusal` for what no column can be."""
    if not message.fields:
        raise Refusal(f"its message {message.full_name} has no fields", None)
    for field in message.fields:
        try:
            text = _type(field, (message.full_name,))
        except Refusal as refusal:
            raise Refusal(f"its field {field.name}: {refusal.message}", None) from None
        is_never_null = is_repeated(field) or is_required(field) or not field.has_presence
        yield field.name, f"{text} NOT NULL" if is_never_null else text


def _type(field: Field, within: tuple[str, ...]) -> str:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return f"MAP<{_one(entry['key'], within)}, {_one(entry['value'], within)}>"
    return f"ARRAY<{_one(field, within)}>" if is_repeated(field) else _one(field, within)


def _one(field: Field, within: tuple[str, ...]) -> str:
    kind = kind_of(field)
    if kind == "group":
        raise Refusal("a group of proto2 is not a type of SQL", None)
    if kind != "message":
        return _KINDS[kind]
    message = field.message_type
    if message.full_name == TIMESTAMP:
        return "TIMESTAMP_LTZ(6)"
    if message.full_name in WRAPPERS:
        return _one(message.fields_by_name["value"], within)
    if message.full_name in within:
        raise Refusal(f"the message {message.full_name} contains itself", None)
    if not message.fields:
        raise Refusal(f"the message {message.full_name} has no fields", None)
    inner = (*within, message.full_name)
    return "ROW<" + ", ".join(f"`{each.name}` {_type(each, inner)}" for each in message.fields) + ">"
