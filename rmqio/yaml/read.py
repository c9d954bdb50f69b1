"""`type: ReadFromRocketMQ`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import apache_beam as beam

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.options import ReadOptions
from rmqio.serde.logical_types import is_ignored
from rmqio.sql.tables import SqlTransform, TableTime, declared, watermark_delay_ms
from rmqio.transforms import ReadFromRocketMQ as Read
from rmqio.yaml.configs import error_output, options_text, quoted, security_of, start_of, stop_of

# Columns of SQL for the schemas of a configuration: JSON Schema, as Beam YAML writes it, and Avro.

_JSON: Final = {
    "boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE", "string": "STRING", "bytes": "BYTES",
}  # fmt: skip
_JSON_FORMATS: Final = {"date-time": "TIMESTAMP_LTZ(6)", "date": "DATE", "time": "TIME(6)"}
_AVRO: Final = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING",
    "bytes": "BYTES", "enum": "STRING", "fixed": "BYTES",
}  # fmt: skip
_AVRO_LOGICAL: Final = {
    "date": "DATE", "time-millis": "TIME(3)", "time-micros": "TIME(6)", "timestamp-millis": "TIMESTAMP_LTZ(3)",
    "timestamp-micros": "TIMESTAMP_LTZ(6)", "local-timestamp-millis": "TIMESTAMP(3)",
    "local-timestamp-micros": "TIMESTAMP(6)",
}  # fmt: skip


def columns_of_json(schema: Any) -> dict[str, str]:
    """Returns the columns of a JSON Schema. Raises `LocalError` for what is none, and for types that SQL lacks."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        raise LocalError(f"schema is {schema!r:.80}; for the format json, it must be {{type: object, properties: ...}}")
    required = set(schema.get("required", ()))
    return {
        name: _json_type(kind, name) + (" NOT NULL" if name in required else "")
        for name, kind in schema["properties"].items()
    }


def _json_type(kind: Any, path: str) -> str:
    name = kind.get("type") if isinstance(kind, Mapping) else None
    if isinstance(name, Sequence) and not isinstance(name, str):
        others = [each for each in name if each != "null"]
        name = others[0] if len(others) == 1 else None
    if name == "string" and kind.get("format") in _JSON_FORMATS:
        return _JSON_FORMATS[kind["format"]]
    if name in _JSON:
        return _JSON[name]
    if name == "array" and "items" in kind:
        return f"ARRAY<{_json_type(kind['items'], f'{path}[]')}>"
    if name == "object" and isinstance(kind.get("properties"), Mapping):
        fields = [
            f"{quoted(field)} {_json_type(each, f'{path}.{field}')}" for field, each in kind["properties"].items()
        ]
        return f"ROW<{', '.join(fields)}>"
    if name == "object" and isinstance(kind.get("additionalProperties"), Mapping):
        return f"MAP<STRING, {_json_type(kind['additionalProperties'], f'{path}.*')}>"
    known = ", ".join(_JSON)
    raise LocalError(
        f"schema: {path} is {kind!r:.80}; it must be {known}, array with items, or object with properties or "
        "additionalProperties"
    )


def columns_of_avro(schema: Any) -> dict[str, str]:
    """Returns the columns of an Avro record. Raises `LocalError` for another schema."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise LocalError(f"schema is not JSON, which an Avro schema must be: {error}") from None
    if not isinstance(schema, Mapping) or schema.get("type") != "record" or not schema.get("fields"):
        raise LocalError(f"schema is {schema!r:.80}; for the format avro, it must be a record with fields")
    named: dict[str, Any] = {}
    return {each["name"]: _avro_column(each["type"], each["name"], named) for each in schema["fields"]}


def _avro_column(kind: Any, path: str, named: dict[str, Any]) -> str:
    text, is_nullable = _avro_type(kind, path, named)
    return text if is_nullable else f"{text} NOT NULL"


def _avro_type(kind: Any, path: str, named: dict[str, Any]) -> tuple[str, bool]:
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise LocalError(f"schema: {path} is a union of several types: give columns: instead")
        return _avro_type(others[0], path, named)[0], len(others) < len(kind)
    if isinstance(kind, Mapping):
        name = kind.get("type")
        if isinstance(name, (Mapping, list)):
            return _avro_type(name, path, named)
        if "name" in kind:
            named[kind["name"]] = kind
        logical = None if is_ignored(kind) else kind["logicalType"]
        if logical in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[logical], False
        if logical == "decimal":
            return f"DECIMAL({kind['precision']}, {kind.get('scale', 0)})", False
        if name == "array":
            return f"ARRAY<{_avro_type(kind['items'], f'{path}[]', named)[0]}>", False
        if name == "map":
            return f"MAP<STRING, {_avro_type(kind['values'], f'{path}.*', named)[0]}>", False
        if name == "record":
            return f"ROW<{', '.join(_avro_field(each, path, named) for each in kind['fields'])}>", False
        kind = name
    if kind in _AVRO:
        return _AVRO[kind], False
    if kind in named:
        return _avro_type(named[kind], path, named)
    raise LocalError(f"schema: {path} is {kind!r:.80}, which is not a type of Avro: give columns: instead")


def _avro_field(field: Any, path: str, named: dict[str, Any]) -> str:
    name = field["name"]
    return f"{quoted(name)} {_avro_type(field['type'], f'{path}.{name}', named)[0]}"


class ReadFromRocketMQ(beam.PTransform):
    """Reads a topic of RocketMQ. The rows have the columns of the schema, and those of `metadata`.

    Args:
      topic: the topic.
      format: `json` (default), or another format of SQL's tables, such as `raw`, `avro`, `protobuf`, `csv` or `grok`.
      schema: of json, a JSON Schema `{type: object, properties: ...}`; of avro, the Avro schema. It gives the columns.
      columns: instead of a schema, types of SQL by name: `{id: BIGINT, name: STRING}`. For raw, the default is
        `{payload: BYTES}`.
      metadata: columns beside the body, by name: `{id: message_id}`; or a list of names.
      format_options: options of the format, as in CREATE TABLE: `{grok.pattern: "%{COMMONAPACHELOG}"}`.
      name_server: the cluster; default: the environment's.
      consumer_group: its offsets are committed, and are where the read begins.
      start: `earliest`, `latest`, `group` or `timestamp:TIME`; default: the group's offsets, or `latest` without one.
      stop: `latest` or `timestamp:TIME`; without it, the read does not end.
      tags: the broker filters by tag.
      sql_filter: the broker filters by SQL92.
      event_time: the column that is the time of the rows.
      event_time_delay: by how many seconds rows can be late.
      security: the fields of `rmqio.Security`.
      error_handling: `{output: NAME}`: messages that cannot be decoded go to this output.
    """

    def __init__(
        self,
        topic: str,
        format: str = "json",
        schema: Any | None = None,
        columns: Mapping[str, str] | None = None,
        metadata: Any | None = None,
        format_options: Mapping[str, Any] | None = None,
        name_server: str | None = None,
        consumer_group: str | None = None,
        start: str | None = None,
        stop: str | None = None,
        tags: str | None = None,
        sql_filter: str | None = None,
        event_time: str | None = None,
        event_time_delay: float | None = None,
        security: Mapping[str, Any] | None = None,
        error_handling: Mapping[str, Any] | None = None,
        *,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        self._errors = error_output(error_handling)
        self._ddl = _ddl(format, schema, columns, metadata, format_options, event_time, event_time_delay)
        table = declared(self._ddl, "rows")
        time: dict[str, Any] = {}
        if table.watermark is not None:
            time = {
                "timestamp": TableTime(table, is_lenient=self._errors is not None),
                "options": ReadOptions(max_out_of_orderness_ms=watermark_delay_ms(table)),
            }
        place: dict[str, Any] = {"client_factory": client_factory}
        if client_factory is None:
            place = {"name_server": name_server, "security": security_of(security)}
        self._read = Read(
            topic,
            consumer_group=consumer_group,
            start=start_of(start),
            stop=stop_of(stop),
            tags=tags,
            sql_filter=sql_filter,
            batches=True,
            **place,
            **time,
        )
        self._read.start_advice = "give `start: earliest`"

    def expand(self, pipeline: Any) -> Any:
        on_error = "fail" if self._errors is None else "output"
        rows = SqlTransform("SELECT * FROM `rows`", {"rows": self._ddl}, on_error=on_error)
        result = pipeline | "Messages" >> self._read | "Rows" >> rows
        return result if self._errors is None else {"rows": result.rows, self._errors: result.errors}


def _ddl(
    format_name: str,
    schema: Any,
    columns: Mapping[str, str] | None,
    metadata: Any,
    format_options: Mapping[str, Any] | None,
    event_time: str | None,
    delay_s: float | None,
) -> str:
    """The columns of the table, in parentheses, and its options."""
    name = str(format_name).strip().lower()
    options: dict[str, Any] = {"format": name, **(format_options or {})}
    if name == "avro" and schema is not None:
        options["avro.schema"] = schema if isinstance(schema, str) else json.dumps(schema)
    types = columns_for(name, schema, columns)
    items = [f"{quoted(column)} {kind}" for column, kind in types.items()]
    items += [
        f"{quoted(column)} {metadata_type(key)} METADATA FROM '{key}' VIRTUAL"
        for column, key in _metadata(metadata).items()
    ]
    if event_time is not None:
        delay_ms = round(float(delay_s or 0) * 1000)
        items.append(f"WATERMARK FOR {quoted(event_time)} AS {quoted(event_time)} - INTERVAL '{delay_ms}' MILLISECOND")
    elif delay_s is not None:
        raise LocalError("event_time_delay needs event_time, the column that is the time of the rows")
    return f"({', '.join(items)}) {options_text(options)}"


def columns_for(name: str, schema: Any, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Returns types of SQL by column. Raises `LocalError` if neither a schema nor columns say them, or both."""
    if columns is not None:
        if schema is not None and name != "avro":
            raise LocalError("schema and columns both give the columns: leave one of them out")
        if not isinstance(columns, Mapping) or not columns:
            raise LocalError(f"columns is {columns!r:.80}; it must be types by name, as in {{id: BIGINT}}")
        return {str(column): str(kind) for column, kind in columns.items()}
    if schema is None:
        if name == "raw":
            return {"payload": "BYTES"}
        raise LocalError(f"the format {name} needs schema, or columns: {{id: BIGINT, name: STRING}}")
    if name == "avro":
        return columns_of_avro(schema)
    return columns_of_json(schema)


def _metadata(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(column): str(key) for column, key in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str):
        return {str(key): str(key) for key in given}
    raise LocalError(f"metadata is {given!r:.80}; it must be a list of names, or columns by name")


def metadata_type(key: str) -> str:
    """Returns the type of a kind of metadata. Raises `LocalError` if there is none with this name."""
    from rmqio.sql.tables import METADATA, metadata_named, nearest

    found = metadata_named(key)
    if found is None:
        raise LocalError(
            f"{key!r} is not metadata of a message{nearest(key, METADATA)}; there are {', '.join(METADATA)}"
        )
    return found.type.text
