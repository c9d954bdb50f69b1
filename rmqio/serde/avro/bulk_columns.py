"""Arrow arrays by the C extension, from bodies of the reader's schema or of another."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from rmqio.errors import LocalError
from rmqio.serde.avro import bulk
from rmqio.serde.avro.bulk_plans import inner, short_name, type_name
from rmqio.serde.avro.encoding import MAX_DEPTH
from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema

# Arrow arrays from Avro bodies, by the C extension.


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


_WIDENED: Final = {
    ("int", "long"): pa.int64(),
    ("int", "float"): pa.float32(),
    ("int", "double"): pa.float64(),
    ("long", "float"): pa.float32(),
    ("long", "double"): pa.float64(),
    ("float", "double"): pa.float64(),
}
_WRITTEN: Final = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32()}
_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")


class _Nulls(NamedTuple):
    """Nulls where the reader has another type: of a union, only null was or can be written."""

    number: int

    def array(self, arrow_type: pa.DataType, columns: Sequence[bulk.Column], _: int = 0) -> pa.Array:
        return pa.nulls(columns[self.number][0], arrow_type)


class _Widened(NamedTuple):
    """Numbers of a type whose values the reader's type holds, or rounds."""

    number: int
    written: pa.DataType
    wanted: pa.DataType

    def array(self, arrow_type: pa.DataType, columns: Sequence[bulk.Column], _: int = 0) -> pa.Array:
        found = Tree(self.number, ()).array(self.written, columns)
        if pa.types.is_floating(self.wanted):  # as in Python, which has doubles only
            return found.cast(pa.float64(), safe=False).cast(self.wanted, safe=False)
        return found.cast(self.wanted).cast(arrow_type)


class _Default(NamedTuple):
    """A value for each row."""

    value: Any

    def array(self, arrow_type: pa.DataType, _: Sequence[bulk.Column], length: int) -> pa.Array:
        return pa.array([self.value], arrow_type).take(pa.repeat(pa.scalar(0), length))


def evolved_columns_of(writer: AvroSchema, reader: AvroSchema, arrow_type: pa.DataType) -> BulkColumns | None:
    """The decoder of a writer's bodies to the Arrow type of the reader's schema. None: only Python can decode them.

    Args:
      reader: without the logical types that its Arrow type adds, since defaults are of the types that are decoded.
    """
    if bulk.new_columns is None or any(
        each.shape.is_hollow or each.shape.levels > MAX_DEPTH for each in (writer, reader)
    ):
        return None
    plan = _Evolution(writer, reader)
    try:
        made = plan.of_pair(writer.parsed, reader.parsed, arrow_type)
    except (NotPossible, LocalError, RecursionError):
        return None
    return BulkColumns(bulk.new_columns(tuple(plan.nodes)), made, arrow_type) if isinstance(made, Tree) else None


class _Evolution(Plan):
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        super().__init__(writer)
        self._reader = reader
        self._skips = False

    def of_pair(self, written: Node, wanted: Node, arrow_type: pa.DataType, null_branch: int = NEVER_NULL) -> Column:
        """The column that reads `written` as `wanted`. Raises `NotPossible`."""
        written, wanted = inner(written, self._schema.resolve), inner(wanted, self._reader.resolve)
        if isinstance(written, list):
            return self._of_written_union(written, wanted, arrow_type)
        if isinstance(wanted, list):
            wanted = self._branch_for(written, wanted)
        kind, reads = type_name(written), type_name(wanted)
        if kind != reads:
            return self._widened(written, wanted, null_branch)
        if kind == "null":
            return _Nulls(self.of("null").number)
        if kind in _NAMED and short_name(written) != short_name(wanted):
            raise NotPossible
        if kind in _RECORDS:
            return self._records(written, wanted, arrow_type, null_branch)
        if kind == "array":
            items = self.of_pair(written["items"], wanted["items"], arrow_type.value_type)
            return self._add(Kind.LIST, [items], null_branch)
        if kind == "map":
            values = self.of_pair(written["values"], wanted["values"], arrow_type.item_type)
            return self._add(Kind.MAP, [self.of("string"), values], null_branch)
        return self._same_leaf(written, wanted, kind, null_branch)

    def _of_written_union(self, written: list[Node], wanted: Node, arrow_type: pa.DataType) -> Column:
        if not isinstance(wanted, list):
            raise NotPossible  # of its values, the reader takes some only
        others = [each for each in written if type_name(inner(each, self._schema.resolve)) != "null"]
        if len(others) < len(written):
            self._branch_for("null", wanted)
        if not others:
            return _Nulls(self._of_union(written).number)
        if len(written) != 2 or len(others) != 1:
            raise NotPossible
        return self.of_pair(others[0], wanted, arrow_type, 1 - written.index(others[0]))

    def _branch_for(self, written: Node, wanted: list[Node]) -> Node:
        """The branch that takes the value: there are null and one more at most, because this is a column."""
        kind = type_name(written)
        for each in (inner(branch, self._reader.resolve) for branch in wanted):
            if (kind == "null") == (type_name(each) == "null"):
                if kind in _NAMED and each.get("aliases"):
                    raise NotPossible
                return each
        raise NotPossible

    def _widened(self, written: Node, wanted: Node, null_branch: int) -> Column:
        kind, reads = type_name(written), type_name(wanted)
        if (kind, reads) not in _WIDENED or any(_logical(each) for each in (written, wanted)):
            raise NotPossible
        return _Widened(self._leaf({}, kind, null_branch).number, _WRITTEN[kind], _WIDENED[kind, reads])

    def _same_leaf(self, written: Node, wanted: Node, kind: str, null_branch: int) -> Column:
        if kind == "enum":
            if not {*written["symbols"]} <= {*wanted["symbols"]}:
                raise NotPossible
            return self._leaf(written, kind, null_branch)
        if "decimal" in (_logical(written), _logical(wanted)) and _decimal(written) != _decimal(wanted):
            raise NotPossible
        if kind == "fixed" and written["size"] != wanted["size"]:
            raise NotPossible
        return self._leaf(wanted if isinstance(wanted, dict) else {}, kind, null_branch)

    def _records(self, written: Node, wanted: Node, arrow_type: pa.DataType, null_branch: int) -> Column:
        fields = {field["name"]: field for field in wanted["fields"]}
        there = [field["name"] for field in written["fields"]]
        if any(alias in there for field in wanted["fields"] for alias in field.get("aliases", ())):
            raise NotPossible
        parts: dict[str, Column] = {}
        for field in written["fields"]:
            name = field["name"]
            kept = fields.get(name)
            parts[name] = (
                self._skipped(field["type"])
                if kept is None
                else self.of_pair(field["type"], kept["type"], arrow_type.field(name).type)
            )
        whole = self._add(Kind.STRUCT, [*parts.values()], null_branch)
        return whole._replace(
            parts=tuple(parts.get(each.name) or _default(fields[each.name], each) for each in arrow_type)
        )

    def _skipped(self, node: Node) -> Column:
        self._skips = True
        try:
            return self.of(node)
        finally:
            self._skips = False

    def _leaf(self, node: Node, kind: str, null_branch: int) -> Tree:
        if self._skips:  # a value that nobody reads may not be one of its logical type
            node = {name: each for name, each in node.items() if name != "logicalType"}
        return super()._leaf(node, kind, null_branch)


def _default(field: Node, wanted: pa.Field) -> Made:
    if "default" not in field:
        raise NotPossible  # fastavro says so for each body
    try:
        pa.array([field["default"]], wanted.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise NotPossible from error
    return _Default(field["default"])


def _logical(node: Node) -> Any:
    return node.get("logicalType") if isinstance(node, dict) else None


def _decimal(node: Node) -> Any:
    return (
        [node.get(name) for name in ("logicalType", "precision", "scale", "size")] if isinstance(node, dict) else None
    )
