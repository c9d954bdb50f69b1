"""Descriptors of Protobuf's messages, as `protoc --descriptor_set_out` writes them, and the columns of a message."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.errors import Refusal, nearest

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


# Columns of a message, as CREATE TABLE writes them.
#
# A field that always has a value is NOT NULL: one without presence (numbers, text and enums of proto3), lists and
# maps.

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


Message = Any
_WELL_KNOWN: Final = frozenset(
    f"google/protobuf/{each}.proto"
    for each in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )
)  # fmt: skip


class NotDescriptors(Exception):
    """Text that is not a FileDescriptorSet. The text of the error says why."""


@lru_cache(maxsize=100)
def files_of(text: str) -> Any:
    """Returns the FileDescriptorSet of its base 64. Raises `NotDescriptors`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise NotDescriptors(f"it is not a FileDescriptorSet: {error}") from None
    if not found.file or not all(each.name for each in found.file):
        raise NotDescriptors("it is not a FileDescriptorSet: it has no files")
    return found


@lru_cache(maxsize=100)
def messages_of(text: str) -> dict[str, Descriptor]:
    """Returns the messages of all its files by full name, those of the last file first. Raises `NotDescriptors`."""
    from google.protobuf.descriptor_pool import DescriptorPool

    files, pool = files_of(text), DescriptorPool()
    known = {each.name for each in files.file}
    found: dict[str, Descriptor] = {}
    try:
        for each in files.file:
            for name in each.dependency:
                _add_well_known(name, pool, known)
            pool.AddSerializedFile(each.SerializeToString())
        for each in reversed(files.file):
            pending = list(pool.FindFileByName(each.name).message_types_by_name.values())
            while pending:
                message = pending.pop(0)
                found[message.full_name] = message
                pending += [nested for nested in message.nested_types if not nested.GetOptions().map_entry]
    except (TypeError, KeyError) as error:
        raise NotDescriptors(f"its files do not fit together: {error}; with protoc, give --include_imports") from None
    return found


def _add_well_known(name: str, pool: Any, known: set[str]) -> None:
    """protoc includes Google's own files only if it is told to, and registries never do."""
    if name in known or name not in _WELL_KNOWN:
        return
    known.add(name)
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    for each in module.DESCRIPTOR.dependencies:
        _add_well_known(each.name, pool, known)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def message_of(options: FormatOptions, format_name: str) -> Descriptor:
    """Returns the message of a table. Raises `Refusal`."""
    if not options.has("protobuf_descriptor"):
        raise Refusal(
            f"the format {format_name} needs the option '{format_name}.descriptor-file': what protoc writes with "
            "--include_imports --descriptor_set_out=FILE",
            None,
        )
    try:
        messages = messages_of(options.text("protobuf_descriptor", "").strip())
    except NotDescriptors as error:
        raise options.refusal("protobuf_descriptor", f"cannot be used: {error}") from None
    if not options.has("protobuf_message"):
        if len(messages) != 1:
            raise Refusal(
                f"the format {format_name} needs the option '{format_name}.message-name': one of {_some(messages)}",
                None,
            )
        return next(iter(messages.values()))
    name = options.text("protobuf_message", "").strip().lstrip(".")
    if name in messages:
        return messages[name]
    short = name.replace("$", ".").rpartition(".")[2]  # Flink's is the name of a class of Java
    same = [each for each in messages if each.rpartition(".")[2] == short]
    if len(same) != 1:
        raise options.refusal(
            "protobuf_message", f"is {name!r}{nearest(name, messages) or f'; it can be {_some(messages)}'}"
        )
    return messages[same[0]]


def index_path(message: Descriptor) -> tuple[int, ...]:
    """Returns where the message stands in its file: its position there, or that of each message around it first.

    Positions are those of a .proto file, which has no messages for the entries of maps.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(message.file.serialized_pb)
    names = message.full_name.removeprefix(f"{file.package}." if file.package else "").split(".")
    path, members = [], list(file.message_type)
    for name in names:
        position = [each.name for each in members].index(name)
        path.append(position)
        members = [each for each in members[position].nested_type if not each.options.map_entry]
    return tuple(path)


def _some(messages: dict[str, Descriptor]) -> str:
    shown = ", ".join(list(messages)[:10])
    return f"{shown}, ..." if len(messages) > 10 else shown
