"""JSON bodies behind the id of a JSON Schema in a registry (`json-confluent`).

JSON names its fields itself, so bodies are read without their writer's schema. A written body has the id of the table's
schema: that of the option, or one that says what the columns are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from rmqio.sql.catalog.columns import JsonSchemaColumns
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import confluent
from rmqio.sql.formats.base import Fields, RowFailure
from rmqio.sql.formats.json.decoder import JsonDecoder, JsonOptions
from rmqio.sql.formats.json.encoder import JsonEncoder
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.types import SqlType

FORMAT: Final = "json-confluent"
_TYPES: Final = {
    "BOOLEAN": ("boolean", ""), "TINYINT": ("integer", "int8"), "SMALLINT": ("integer", "int16"),
    "INTEGER": ("integer", "int32"), "BIGINT": ("integer", "int64"), "FLOAT": ("number", "float32"),
    "DOUBLE": ("number", "float64"), "DECIMAL": ("number", ""), "VARBINARY": ("string", "bytes"),
}  # fmt: skip
"""JSON's types of SQL's, and what Kafka Connect calls them; all others are strings."""


def check(options: FormatOptions) -> None:
    """Raises `Refusal` for options that are not valid. Asks no registry."""
    confluent.registry_of(options, FORMAT)
    if options.has("json_schema"):
        try:
            json.loads(options.text("json_schema", ""))
        except (ValueError, RecursionError) as error:
            raise options.refusal("json_schema", f"is not the JSON of a schema: {error}") from None


def require_writable(options: FormatOptions) -> None:
    """Raises `Refusal` if the schema and what is written for NULL do not fit together."""
    if not options.has("json_schema"):
        return
    columns = JsonSchemaColumns(json.loads(options.text("json_schema", "")))
    columns.require_one_way()
    if columns.leaves_nulls_out and not JsonOptions.of(options).leaves_nulls_out:
        raise Refusal(
            "the schema has fields that can be absent and not null, which needs the option "
            "'json.encode.ignore-null-fields' = 'true'",
            None,
        )


class RegistryJsonDecoder(JsonDecoder):
    """See `formats.base.Decoder`."""

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""
        if body[0]:
            raise ValueError
        return super().fast(body[confluent.SIZE :])

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        try:
            confluent.check_head(body, "JSON")
        except RowFailure as failure:
            if body[:1] == b"{":
                raise RowFailure(f"{failure}: plain JSON is the format 'json'") from None
            raise
        return super().exact(body[confluent.SIZE :])


class RegistryJsonEncoder(JsonEncoder):
    """See `formats.base.Encoder`. The schema is registered, unless the subject has it."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        from rmqio.serde.registry.rest import JSON, TypedSubjects

        json_options = JsonOptions.of(options)
        super().__init__(fields, json_options)
        schema = options.text("json_schema", "") or json.dumps(schema_of(fields, json_options))
        subjects = TypedSubjects(confluent.registry_of(options, FORMAT))
        number = subjects.register(confluent.subject_of(table.options.topic, options), schema, JSON)
        self.constants["json_head"] = confluent.head(number)

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"json_head + {super().source(names)}"


def schema_of(fields: Fields, options: JsonOptions) -> dict[str, Any]:
    """Returns the schema of what is written. Raises `Refusal`."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_object(
        [(each.name, each.type) for each in fields], options
    )}  # fmt: skip


def _object(fields: Sequence[tuple[str, SqlType]], options: JsonOptions) -> dict[str, Any]:
    is_optional = options.leaves_nulls_out
    return {
        "type": "object",
        "properties": {name: _schema(kind, options, can_be_null=not is_optional) for name, kind in fields},
        "required": [name for name, kind in fields if not (is_optional and kind.is_nullable)],
    }


def _schema(kind: SqlType, options: JsonOptions, *, can_be_null: bool = True) -> dict[str, Any]:
    match kind.kind:
        case "ARRAY":
            found = {"type": "array", "items": _schema(kind.elements[0], options)}
        case "MAP":
            found = {"type": "object", "additionalProperties": _schema(kind.elements[1], options)}
        case "ROW":
            found = _object(list(zip(kind.names, kind.elements, strict=True)), options)
        case "MULTISET":
            raise Refusal(f"{kind.text} cannot be written as JSON of a registry", None)
        case name:
            of_json, of_connect = _TYPES.get(name, ("string", ""))
            found = {"type": of_json, **({"connect.type": of_connect} if of_connect else {})}
    return {"oneOf": [{"type": "null"}, found]} if can_be_null and kind.is_nullable else found
