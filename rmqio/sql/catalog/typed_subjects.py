"""Schemas of a registry as tables: Avro, JSON Schema and Protobuf."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from rmqio.serde.registry.rest import AVRO, JSON, PROTOBUF, TypedSchema, TypedSubjects
from rmqio.sql.catalog import avro_columns
from rmqio.sql.catalog.json_schema_columns import JsonSchemaColumns
from rmqio.sql.errors import Refusal

FORMATS: Final = {AVRO: "avro-confluent", JSON: "json-confluent", PROTOBUF: "protobuf-confluent"}
Columns = list[tuple[str, str]]
_MOST_FILES: Final = 1000


def table_of(found: TypedSchema, url: str, subjects: TypedSubjects) -> tuple[Columns, dict[str, str]]:
    """Returns the columns of a schema, and the options of its format. Raises `Refusal`, and the registry's errors."""
    name = FORMATS.get(found.kind)
    if name is None:
        raise Refusal(f"its schema is of the type {found.kind}, and tables are of {', '.join(FORMATS)}", None)
    options = {"format": name, f"{name}.url": url, f"{name}.subject": found.subject}
    if found.kind == PROTOBUF:
        columns, of_message = _of_protobuf(found, subjects)
        return columns, options | {f"{name}.{key}": each for key, each in of_message.items()}
    if found.references:
        names = ", ".join(each.name for each in found.references)
        raise Refusal(f"its schema refers to others ({names}): register one with their definitions in it", None)
    options[f"{name}.schema"] = found.schema
    if found.kind == AVRO:
        return columns_of_avro(found.schema), options
    try:
        made = JsonSchemaColumns(_parsed(found.schema))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_valid(error) from None
    if made.leaves_nulls_out:
        options["json.encode.ignore-null-fields"] = "true"
    return made.columns, options


def columns_of_avro(schema: str) -> Columns:
    """Returns the columns of a schema of Avro. Raises `Refusal`."""
    try:
        return list(avro_columns.columns_of(_parsed(schema)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_valid(error) from None


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _not_valid(error) from None


def _not_valid(error: Exception) -> Refusal:
    return Refusal(f"its schema is not valid: {type(error).__name__}: {error}", None)


def _of_protobuf(found: TypedSchema, subjects: TypedSubjects) -> tuple[Columns, dict[str, str]]:
    """The first message of the file is the table, with all files that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from rmqio.sql.formats.protobuf.columns import columns_of
    from rmqio.sql.formats.protobuf.descriptors import NotDescriptors, messages_of

    files: dict[str, Any] = {}
    _collect(found, "", subjects, files)
    own = files.pop("")
    if not own.name or own.name in files:
        own.name = f"{found.subject}.proto"
    text = base64.b64encode(FileDescriptorSet(file=[*files.values(), own]).SerializeToString()).decode("ascii")
    try:
        messages = messages_of(text)
    except NotDescriptors as error:
        raise Refusal(f"its schema cannot be used: {error}", None) from None
    if not own.message_type:
        raise Refusal("its schema has no message", None)
    first = own.message_type[0].name
    message = messages[f"{own.package}.{first}" if own.package else first]
    return list(columns_of(message)), {"message-name": message.full_name, "descriptor": text}


def _collect(schema: TypedSchema, name: str, subjects: TypedSubjects, files: dict[str, Any]) -> None:
    """Adds the files that a schema imports, then its own, under the names by which they are imported."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if len(files) >= _MOST_FILES:
        raise Refusal(f"its schema imports more than {_MOST_FILES} files", None)
    for each in schema.references:
        if each.name not in files:
            _collect(subjects.version(each.subject, each.version), each.name, subjects, files)
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise Refusal(
            f"the registry does not give the schema of {schema.subject} as a descriptor (format=serialized): make the "
            "table with 'protobuf-confluent.descriptor-file'",
            None,
        ) from None
    if name:
        file.name = name
    files[name] = file
