"""Columns of an Avro schema, as CREATE TABLE writes them. The types are those that Flink gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rmqio.sql.errors import Refusal

Node = Any
_SIMPLE: Final = {
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
            if node in _SIMPLE:
                return _SIMPLE[node], False
            full = node if "." in node or node in self._known else f"{self._namespace}.{node}"
            if full not in self._known:
                raise Refusal(f"{node} is not a type", None)
            if full in self._within:
                raise Refusal(f"the record {full} contains itself", None)
            return self.type_of(self._known[full])
        kind = node["type"]
        if isinstance(kind, (list, dict)):
            return self.type_of(kind)
        if node.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            return f"DECIMAL({node['precision']}, {node.get('scale', 0)})", False
        if (logical := node.get("logicalType")) in _LOGICAL:
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
        return self.type_of(kind) if kind not in _SIMPLE else (_SIMPLE[kind], False)

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
