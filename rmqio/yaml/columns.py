"""Columns of SQL for the schemas of a configuration: JSON Schema, as Beam YAML writes it, and Avro."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.yaml.configs import quoted

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
        logical = kind.get("logicalType")
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
