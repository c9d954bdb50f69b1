"""Columns of schemas of a registry, as CREATE TABLE writes them: of Avro, and of JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rmqio.serde.logical_types import is_ignored
from rmqio.sql.errors import Refusal

# Columns of an Avro schema, as CREATE TABLE writes them. The types are those that Flink gives it.

_AVRO_SIMPLE: Final = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING",
    "bytes": "BYTES", "fixed": "BYTES", "enum": "STRING",
}  # fmt: skip
_LOGICAL: Final = {
    "date": "DATE", "time-millis": "TIME(3)", "time-micros": "TIME(6)", "timestamp-millis": "TIMESTAMP(3)",
    "timestamp-micros": "TIMESTAMP(6)", "timestamp-nanos": "TIMESTAMP(6)", "local-timestamp-millis": "TIMESTAMP(3)",
    "local-timestamp-micros": "TIMESTAMP(6)", "local-timestamp-nanos": "TIMESTAMP(6)",
}  # fmt: skip


def columns_of(schema: Node) -> Iterator[tuple[str, str]]:
    """Yields names and types of the columns. Raises `Refusal` for what no column can be.

    A field without a default and without null is NOT NULL: no schema of the subject was without it.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Refusal(f"its schema is {_name(schema)}, and not a record with fields", None)
    known = {_full_name(schema, ""): schema}
    names = _Names(known, str(schema.get("namespace") or ""), (_full_name(schema, ""),))
    for field in schema["fields"]:
        try:
            text, is_nullable = names.type_of(field["type"])
        except Refusal as refusal:
            raise Refusal(f"its field {field['name']}: {refusal.message}", None) from None
        yield field["name"], text if is_nullable or "default" in field else f"{text} NOT NULL"


class _Names:
    """Types by name, while a schema is walked. `within`: records that the walk is in."""

    def __init__(self, known: dict[str, Node], namespace: str, within: tuple[str, ...]) -> None:
        self._known, self._namespace, self._within = known, namespace, within

    def type_of(self, node: Node) -> tuple[str, bool]:
        """Returns the type, and whether it can be null."""
        if isinstance(node, list):
            others = [each for each in node if each != "null"]
            if len(others) != 1:
                raise Refusal(f"a union of {', '.join(map(_name, others)) or 'null alone'} is not a type of SQL", None)
            return self.type_of(others[0])[0], len(others) < len(node)
        if isinstance(node, str):
            if node in _AVRO_SIMPLE:
                return _AVRO_SIMPLE[node], False
            full = node if "." in node or node in self._known else f"{self._namespace}.{node}"
            if full not in self._known:
                raise Refusal(f"{node} is not a type", None)
            if full in self._within:
                raise Refusal(f"the record {full} contains itself", None)
            return self.type_of(self._known[full])
        kind = node["type"]
        if isinstance(kind, (list, dict)):
            return self.type_of(kind)
        logical = None if is_ignored(node) else node["logicalType"]
        if logical == "decimal":
            return f"DECIMAL({node['precision']}, {node.get('scale', 0)})", False
        if logical in _LOGICAL:
            return _LOGICAL[logical], False
        if kind in ("record", "enum", "fixed"):
            self._known[_full_name(node, self._namespace)] = node
        match kind:
            case "array":
                return f"ARRAY<{self.type_of(node['items'])[0]}>", False
            case "map":
                return f"MAP<STRING, {self.type_of(node['values'])[0]}>", False
            case "record":
                return self._row(node), False
        return self.type_of(kind) if kind not in _AVRO_SIMPLE else (_AVRO_SIMPLE[kind], False)

    def _row(self, node: Node) -> str:
        full = _full_name(node, self._namespace)
        inner = _Names(self._known, str(node.get("namespace") or self._namespace), (*self._within, full))
        fields = [f"{quoted(each['name'])} {inner.type_of(each['type'])[0]}" for each in node["fields"]]
        if not fields:
            raise Refusal(f"the record {full} has no fields", None)
        return f"ROW<{', '.join(fields)}>"


def quoted(name: str) -> str:
    """Returns a name in backquotes: it can be any word."""
    return "`" + name.replace("`", "``") + "`"


def _full_name(node: Node, namespace: str) -> str:
    name, own = str(node.get("name", "")), node.get("namespace", namespace)
    return name if "." in name or not own else f"{own}.{name}"


def _name(node: Node) -> str:
    return "a union" if isinstance(node, list) else str(node.get("type", node)) if isinstance(node, dict) else str(node)


Node = Any
_SIMPLE: Final = {"boolean": "BOOLEAN", "integer": "BIGINT", "number": "DOUBLE", "string": "STRING"}
_CONNECT: Final = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT",
    "float64": "DOUBLE", "bytes": "BYTES",
}  # fmt: skip
"""Types by the `connect.type` that Kafka Connect and Confluent's generators write."""
_OF_VALUES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}


class JsonSchemaColumns:
    """The columns of an object's schema. Raises `Refusal` for what no column can be.

    Attributes:
      columns: names and types. A field that must be there and cannot be null is NOT NULL.
      leaves_nulls_out: whether a row is written without its fields that are NULL: the schema allows them to be absent,
        not to be null.
    """

    def __init__(self, schema: Node) -> None:
        self._root = schema
        self._absent: list[str] = []
        self._null: list[str] = []
        node, where = self._resolved(schema, ())
        if not isinstance(node, dict) or not isinstance(node.get("properties"), dict) or not node["properties"]:
            raise Refusal("its schema is not an object with properties", None)
        self.columns = list(self._fields(node, where))
        self.leaves_nulls_out = bool(self._absent)

    def require_one_way(self) -> None:
        """Raises `Refusal` if NULL would have to be written in some fields, and left out in others."""
        if self._absent and self._null:
            raise Refusal(
                f"its field {self._null[0]} must be there and can be null, and its field {self._absent[0]} can be "
                "absent and not null: rows are written with all NULLs, or with none",
                None,
            )

    def _fields(self, node: Node, where: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        required = node.get("required") if isinstance(node.get("required"), list) else []
        for name, each in sorted(node["properties"].items(), key=lambda item: _index(item[1])):
            try:
                text, is_nullable = self._type(each, where)
            except Refusal as refusal:
                raise Refusal(f"its field {name}: {refusal.message}", None) from None
            if name not in required and not is_nullable:
                self._absent.append(name)
            elif name in required and is_nullable:
                self._null.append(name)
            yield name, text if is_nullable or name not in required else f"{text} NOT NULL"

    def _type(self, node: Node, where: tuple[str, ...]) -> tuple[str, bool]:
        """Returns the type, and whether it can be null. `where`: the references that the walk is in."""
        node, where = self._resolved(node, where)
        if not isinstance(node, dict):
            raise Refusal("a schema that allows everything is not a type of SQL", None)
        for key in ("oneOf", "anyOf", "allOf"):
            if key in node:
                if key == "allOf" and len(node[key]) != 1:
                    raise Refusal("allOf of several schemas is not a type of SQL", None)
                return self._union(node[key], where)
        kinds = node.get("type")
        if isinstance(kinds, list):
            return self._union([{**node, "type": each} for each in kinds], where)
        if kinds is None and ("enum" in node or "const" in node):
            values = node["enum"] if "enum" in node else [node["const"]]
            return self._union([{"type": each} for each in dict.fromkeys(map(_type_of_value, values))], where)
        if kinds is None:
            kinds = "object" if "properties" in node else "array" if "items" in node else None
        if kinds == "array":
            if not isinstance(node.get("items"), dict) or "prefixItems" in node:
                raise Refusal("an array of more than one type is not a type of SQL", None)
            return f"ARRAY<{self._type(node['items'], where)[0]}>", False
        if kinds == "object":
            return self._object(node, where), False
        if kinds not in _SIMPLE:
            raise Refusal(
                f"{'a schema without a type' if kinds is None else f'the type {kinds}'} is not a type of SQL", None
            )
        return _CONNECT.get(str(node.get("connect.type")), _SIMPLE[kinds]), False

    def _object(self, node: Node, where: tuple[str, ...]) -> str:
        if node.get("properties"):
            fields = [f"{quoted(name)} {text.removesuffix(' NOT NULL')}" for name, text in self._fields(node, where)]
            return f"ROW<{', '.join(fields)}>"
        if isinstance(node.get("additionalProperties"), dict):
            return f"MAP<STRING, {self._type(node['additionalProperties'], where)[0]}>"
        raise Refusal("an object without properties is not a type of SQL", None)

    def _union(self, nodes: list[Node], where: tuple[str, ...]) -> tuple[str, bool]:
        others = [each for each in nodes if not (isinstance(each, dict) and each.get("type") == "null")]
        if len(others) != 1:
            shown = ", ".join(_kind_name(each) for each in others) or "null alone"
            raise Refusal(f"a union of {shown} is not a type of SQL", None)
        text, is_nullable = self._type(others[0], where)
        return text, is_nullable or len(others) < len(nodes)

    def _resolved(self, node: Node, where: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
        while isinstance(node, dict) and "$ref" in node:
            reference = str(node["$ref"])
            if reference in where or reference == "#":
                raise Refusal(f"the schema {reference} contains itself", None)
            node, where = self._at(reference), (*where, reference)
        return node, where

    def _at(self, reference: str) -> Node:
        if not reference.startswith("#/"):
            raise Refusal(f"it refers to another schema, {reference}: register one with its definitions in it", None)
        found = self._root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise Refusal(f"it refers to {reference}, which is not there", None)
            found = found[name]
        return found


def _index(node: Node) -> int:
    """The order of fields that Kafka Connect writes beside them; else they keep theirs."""
    index = node.get("connect.index") if isinstance(node, dict) else None
    return index if isinstance(index, int) else 0


def _type_of_value(value: Any) -> str:
    return "null" if value is None else _OF_VALUES.get(type(value), "object")


def _kind_name(node: Node) -> str:
    if not isinstance(node, dict):
        return str(node)
    return str(node.get("title") or node.get("type") or node.get("$ref") or "another schema")
