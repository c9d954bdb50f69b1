"""Avro's values and SQL's: schemas of tables, and conversions by the types of both.

Schemas are used without logical types for dates and times, so that those are numbers both in Avro and in SQL, and no
`datetime` is made. `Logical` remembers what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.compile.expressions.casts import single
from rmqio.sql.formats.base import Convert, whole
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, ValueFailure

Node = Any
"""A schema as of JSON, or a part of one."""
_TIMES: Final = {
    "date": ("DATE", 1, 1), "time-millis": ("TIME", 1000, 1), "time-micros": ("TIME", 1, 1),
    "timestamp-millis": ("TIMESTAMP", 1000, 1), "timestamp-micros": ("TIMESTAMP", 1, 1),
    "timestamp-nanos": ("TIMESTAMP", 1, 1000), "local-timestamp-millis": ("TIMESTAMP", 1000, 1),
    "local-timestamp-micros": ("TIMESTAMP", 1, 1), "local-timestamp-nanos": ("TIMESTAMP", 1, 1000),
}  # fmt: skip
"""For each logical type the kind in SQL, and by how much the number is multiplied and divided."""
_STRINGS: Final = ("string", "enum")
MARK: Final = "sqlLogicalType"
"""The property under which a schema keeps a logical type that was taken away."""


class Misfit(Exception):
    """A column whose type cannot hold what the schema has. The text says which."""


def without_times(node: Node) -> Node:
    """Returns the schema with dates, times and UUIDs as plain numbers and text, whose logical type is in `MARK`."""
    if isinstance(node, list):
        return [without_times(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: without_times(each) if key in ("type", "items", "values") else each for key, each in node.items()}
    if "fields" in node:
        found["fields"] = [{**each, "type": without_times(each["type"])} for each in node["fields"]]
    logical = found.get("logicalType")
    if isinstance(logical, str) and logical != "decimal":
        del found["logicalType"]
        found[MARK] = logical
    return found


def schema_of(fields: Any, name: str = "record", taken: set[str] | None = None) -> Node:
    """Returns the schema that Flink gives a table with these columns: a record of unions with null.

    `taken`: the names of records so far. In Flink, `a_b` and the field `b` of `a` have one name: it refuses the table.
    """
    taken = set() if taken is None else taken
    while name in taken:
        name += "_"
    taken.add(name)
    return {
        "type": "record",
        "name": name,
        "namespace": "org.apache.flink.avro.generated",
        "fields": [
            {
                "name": each,
                "type": _nullable(kind, f"{name}_{each}", taken),
                **({"default": None} if kind.is_nullable else {}),
            }
            for each, kind in fields
        ],
    }


def _nullable(kind: SqlType, name: str, taken: set[str]) -> Node:
    found = _schema(kind, name, taken)
    return ["null", found] if kind.is_nullable else found


def _schema(kind: SqlType, name: str, taken: set[str]) -> Node:
    times = "millis" if kind.precision <= 3 else "micros"
    match kind.kind:
        case "TINYINT" | "SMALLINT" | "INTEGER":
            return "int"
        case "BIGINT":
            return "long"
        case "VARCHAR":
            return "string"
        case "VARBINARY":
            return "bytes"
        case "DATE":
            return {"type": "int", "logicalType": "date"}
        case "TIME":
            return {"type": "int" if times == "millis" else "long", "logicalType": f"time-{times}"}
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return {"type": "long", "logicalType": f"timestamp-{times}"}
        case "DECIMAL":
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case "ARRAY":
            return {"type": "array", "items": _nullable(kind.elements[0], name, taken)}
        case "MAP":
            if kind.elements[0].kind != "VARCHAR":
                raise Misfit(f"keys of maps are STRING in Avro, not {kind.elements[0].text}")
            return {"type": "map", "values": _nullable(kind.elements[1], name, taken)}
        case "ROW":
            return schema_of(zip(kind.names, kind.elements, strict=True), name, taken)
    return kind.kind.lower()


class Types:
    """Finds converters between the types of a schema, whose names it knows, and those of SQL."""

    def __init__(self, names: Mapping[str, Node]) -> None:
        self._names = names

    def fields(self, node: Node) -> dict[str, Node]:
        """Returns the types of a record's fields. Raises `Misfit` for another type."""
        node, _ = self._of(node)
        if not isinstance(node, dict) or node["type"] not in ("record", "error"):
            raise Misfit("the schema is not a record")
        return {each["name"]: each["type"] for each in node["fields"]}

    def reader(self, node: Node, kind: SqlType) -> Convert | None:
        """Returns what makes a SQL value of one of Avro; None: it is one. Raises `Misfit`."""
        node, _ = self._of(node)
        name = node["type"] if isinstance(node, dict) else node
        logical = node.get(MARK) or node.get("logicalType") if isinstance(node, dict) else None
        if kind.kind == "DECIMAL" and (logical == "decimal" or name in ("int", "long")):
            return lambda given: values.rounded(Decimal(given), kind.precision, kind.scale)
        if logical in _TIMES and kind.kind != "BIGINT":
            return _time_reader(kind, logical)
        match kind.kind, name:
            case ("BOOLEAN", "boolean") | ("VARBINARY", "bytes" | "fixed") | ("DOUBLE", "float" | "double") if (
                logical != "decimal"
            ):
                return None
            case ("VARCHAR", "string" | "enum") | ("BIGINT", "int" | "long") | ("INTEGER", "int"):
                return None
            case (_, "int" | "long") if kind.kind in BITS:
                bits = BITS[kind.kind]
                return lambda given: whole(given, bits)
            case ("DOUBLE", "int" | "long"):
                return float
            case ("FLOAT", "float"):
                return None
            case ("FLOAT", "double" | "int" | "long"):
                return lambda given: single(float(given))
            case ("ARRAY", "array"):
                return _items(self.reader(node["items"], kind.elements[0]))
            case ("MAP", "map") if kind.elements[0].kind == "VARCHAR":
                return _entries(self.reader(node["values"], kind.elements[1]))
            case ("ROW", "record"):
                return self._row_reader(node, kind)
        raise Misfit(f"it is {kind.text}, and in the schema {logical or name}")

    def _row_reader(self, node: Node, kind: SqlType) -> Convert:
        fields = self.fields(node)
        parts = [
            (name, self.reader(fields[name], each) if name in fields else None)
            for name, each in zip(kind.names, kind.elements, strict=True)
        ]

        def of(given: dict[str, Any]) -> tuple[Any, ...]:
            found = []
            for name, convert in parts:
                value = given.get(name)
                found.append(value if convert is None or value is None else convert(value))
            return tuple(found)

        return of

    def writer(self, node: Node, kind: SqlType) -> Convert | None:
        """Returns what makes a value of Avro of one of SQL; None: it is one. Raises `Misfit`."""
        node, _ = self._of(node)
        name = node["type"] if isinstance(node, dict) else node
        logical = node.get(MARK) or node.get("logicalType") if isinstance(node, dict) else None
        if logical == "decimal" and (kind.kind == "DECIMAL" or kind.kind in BITS):
            return Decimal if kind.kind in BITS else None
        if logical in _TIMES and kind.kind != "BIGINT":
            return _time_writer(kind, logical)
        match kind.kind, name:
            case ("BOOLEAN", "boolean") | ("VARCHAR", "string" | "enum") | ("VARBINARY", "bytes" | "fixed") if (
                logical != "decimal"
            ):
                return None
            case ("FLOAT", "float" | "double") | ("DOUBLE", "double"):
                return None
            case (_, "int" | "long") if kind.kind in BITS:  # the serializer checks the range
                return None
            case (_, "double") if kind.kind in BITS:
                return None
            case ("ARRAY", "array"):
                return _items(self.writer(node["items"], kind.elements[0]))
            case ("MAP", "map") if kind.elements[0].kind == "VARCHAR":
                return _entries(self.writer(node["values"], kind.elements[1]))
            case ("ROW", "record"):
                return self._row_writer(node, kind)
        raise Misfit(f"it is {kind.text}, and in the schema {logical or name}")

    def _row_writer(self, node: Node, kind: SqlType) -> Convert:
        fields = self.fields(node)
        with_default = {each["name"] for each in node["fields"] if "default" in each}
        if missing := [name for name in fields if name not in kind.names and name not in with_default]:
            raise Misfit(f"the schema's record {node['name']} has the field {missing[0]}, which is not one of the ROW")
        if unknown := [name for name in kind.names if name not in fields]:
            raise Misfit(f"the schema's record {node['name']} has no field {unknown[0]}")
        parts = [(name, self.writer(fields[name], each)) for name, each in zip(kind.names, kind.elements, strict=True)]
        return lambda row: {
            name: value if write is None or value is None else write(value)
            for (name, write), value in zip(parts, row, strict=True)
        }

    def _of(self, node: Node) -> tuple[Node, bool]:
        """The type of a name, and of a union with null the other one; and whether there is null."""
        node = self._names.get(node, node) if isinstance(node, str) else node
        if isinstance(node, list):
            others = [each for each in node if each != "null"]
            if len(others) != 1:
                raise Misfit(f"the schema has a union of {len(others)} types, for which SQL has none")
            return self._of(others[0])[0], len(others) < len(node)
        if isinstance(node, dict) and not isinstance(node["type"], str):
            return self._of(node["type"])
        return node, False

    def is_nullable(self, node: Node) -> bool:
        """Returns whether a field can be null."""
        return self._of(node)[1]


def _time_reader(kind: SqlType, logical: str) -> Convert:
    of, times, by = _TIMES[logical]
    if of != ("TIMESTAMP" if kind.kind == "TIMESTAMP_LTZ" else kind.kind):
        raise Misfit(f"it is {kind.text}, and in the schema {logical}")
    if of == "DATE":
        return values.date_in_years
    checked = values.of_day if of == "TIME" else values.in_years
    if kind.precision < (3 if times == 1000 else 6):
        return lambda given: values.scaled_time(checked(given * times // by), kind.precision)
    return checked if times == by == 1 else lambda given: checked(given * times // by)


def _time_writer(kind: SqlType, logical: str) -> Convert | None:
    of, times, by = _TIMES[logical]
    if of != ("TIMESTAMP" if kind.kind == "TIMESTAMP_LTZ" else kind.kind):
        raise Misfit(f"it is {kind.text}, and in the schema {logical}")
    if of == "DATE" or times == by == 1:
        return None
    if times == 1:
        return lambda micros: micros * by

    def millis(micros: int) -> int:
        found, rest = divmod(micros, times)
        if rest:
            shown = values.text_of_time(micros % DAY_US, 6)
            raise ValueFailure(f"the time {shown} has microseconds, but the schema has milliseconds")
        return found

    return millis


def _items(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: [None if each is None else convert(each) for each in items]


def _entries(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: {key: None if each is None else convert(each) for key, each in items.items()}
