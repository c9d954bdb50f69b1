"""Arrow arrays from Avro bodies, by the C extension."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from rmqio.serde.avro import bulk
from rmqio.serde.avro.reading.walk import MAX_DEPTH
from rmqio.serde.avro.schemas.nodes import Node
from rmqio.serde.avro.schemas.schema import AvroSchema


class Kind(IntEnum):
    """The codes of `_bulk_columns.c`."""

    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    DECIMAL = 10
    TIME_MILLIS = 11
    TIME_MICROS = 12
    LIST = 13
    MAP = 14
    STRUCT = 15


_PRIMITIVE: Final = {each.name.lower(): each for each in list(Kind)[Kind.BOOLEAN : Kind.FIXED]}
_TIMES: Final = {("int", "time-millis"): Kind.TIME_MILLIS, ("long", "time-micros"): Kind.TIME_MICROS}
NEVER_NULL: Final = -1
_ALWAYS_NULL: Final = 2
_OF_VARIABLE_SIZE: Final = -1


class NotPossible(Exception):
    """The extension has no such column."""


class Made(Protocol):
    """Makes an Arrow array of what the extension has decoded."""

    def array(self, arrow_type: pa.DataType, columns: Sequence[bulk.Column], length: int) -> pa.Array: ...


class Column(Made, Protocol):
    """The column of one of the extension's nodes."""

    @property
    def number(self) -> int: ...


class Tree(NamedTuple):
    """A column, and the columns of its parts."""

    number: int
    parts: tuple[Made, ...]

    def array(self, arrow_type: pa.DataType, columns: Sequence[bulk.Column], _: int = 0) -> pa.Array:
        length, nulls, *buffers = columns[self.number]
        if pa.types.is_null(arrow_type):
            return pa.nulls(length)
        valid, values, data = (None if each is None else pa.py_buffer(each) for each in buffers)
        if pa.types.is_struct(arrow_type):
            types = [field.type for field in arrow_type]
            parts = [part.array(each, columns, length) for part, each in zip(self.parts, types, strict=True)]
            return pa.Array.from_buffers(arrow_type, length, [valid], nulls, children=parts)
        if pa.types.is_list(arrow_type):
            parts = [self.parts[0].array(arrow_type.value_type, columns, length)]
            return pa.Array.from_buffers(arrow_type, length, [valid, values], nulls, children=parts)
        if pa.types.is_map(arrow_type):
            fields = [arrow_type.key_field, arrow_type.item_field]
            parts = [part.array(each.type, columns, length) for part, each in zip(self.parts, fields, strict=True)]
            entries = pa.Array.from_buffers(pa.struct(fields), len(parts[0]), [None], 0, children=parts)
            return pa.Array.from_buffers(arrow_type, length, [valid, values], nulls, children=[entries])
        used = [valid, values] if data is None else [valid, values, data]
        return pa.Array.from_buffers(arrow_type, length, used, nulls)


class BulkColumns:
    """Decodes bodies of a record's schema to an array of an Arrow type."""

    def __init__(self, columns: bulk.Columns, tree: Tree, arrow_type: pa.DataType) -> None:
        self._columns, self._tree, self._type = columns, tree, arrow_type

    def decode(self, bodies: Sequence[bytes], offset: int) -> tuple[pa.StructArray, list[int]]:
        """The rows of the usual bodies, in order, and the positions of the others."""
        columns, left = self._columns.decode(tuple(bodies), offset)
        return self._tree.array(self._type, columns), left


def columns_of(schema: AvroSchema, arrow_type: pa.DataType) -> BulkColumns | None:
    """The decoder of bodies of a schema to its Arrow type. None: only Python can decode them."""
    if bulk.new_columns is None or schema.shape.is_hollow or schema.shape.levels > MAX_DEPTH:
        return None
    plan = Plan(schema)
    try:
        tree = plan.of(schema.parsed)
    except NotPossible:
        return None
    return BulkColumns(bulk.new_columns(tuple(plan.nodes)), tree, arrow_type)


class Plan:
    """The nodes of a schema. Each place of a type has a column of its own."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self.nodes: list[tuple[int, tuple[int, ...], int, int, int, tuple[str, ...]]] = []

    def of(self, node: Node, null_branch: int = NEVER_NULL) -> Tree:
        node = self._schema.resolve(node)
        if isinstance(node, list):
            return self._of_union(node)
        kind = node["type"] if isinstance(node, dict) else node
        if not isinstance(kind, str):
            return self.of(kind, null_branch)
        if kind == "null":
            return self._add(Kind.NOTHING, null_branch=_ALWAYS_NULL)
        if kind in ("record", "error"):
            return self._add(Kind.STRUCT, [self.of(field["type"]) for field in node["fields"]], null_branch)
        if kind == "array":
            return self._add(Kind.LIST, [self.of(node["items"])], null_branch)
        if kind == "map":
            return self._add(Kind.MAP, [self.of("string"), self.of(node["values"])], null_branch)
        return self._leaf(node if isinstance(node, dict) else {}, kind, null_branch)

    def _of_union(self, branches: list[Node]) -> Tree:
        nulls = [_is_null(self._schema.resolve(each)) for each in branches]
        if all(nulls):
            return self._add(Kind.NOTHING, null_branch=_ALWAYS_NULL, size=len(branches))
        if len(branches) != 2 or not any(nulls):
            raise NotPossible
        return self.of(branches[1 - nulls.index(True)], nulls.index(True))

    def _leaf(self, node: Node, kind: str, null_branch: int) -> Tree:
        logical, size = node.get("logicalType", ""), node.get("size", 0)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            size = size if kind == "fixed" else _OF_VARIABLE_SIZE
            return self._add(Kind.DECIMAL, (), null_branch, size, node["precision"])
        if kind == "fixed":
            return self._add(Kind.FIXED, (), null_branch, size)
        if kind == "enum":
            return self._add(Kind.ENUM, (), null_branch, symbols=tuple(node["symbols"]))
        return self._add(_TIMES.get((kind, logical), _PRIMITIVE[kind]), (), null_branch)

    def _add(
        self,
        kind: Kind,
        parts: Sequence[Column] = (),
        null_branch: int = NEVER_NULL,
        size: int = 0,
        digits: int = 0,
        symbols: tuple[str, ...] = (),
    ) -> Tree:
        if len(self.nodes) >= bulk.MAX_NODES:
            raise NotPossible
        self.nodes.append((int(kind), tuple(each.number for each in parts), null_branch, size, digits, symbols))
        return Tree(len(self.nodes) - 1, tuple(parts))


def _is_null(node: Node) -> bool:
    return bool(node == "null" or (isinstance(node, dict) and node["type"] == "null"))
