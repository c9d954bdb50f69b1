"""Decodes many records at once to an Arrow batch, for steps that work by column.

Dates and timestamps are not decoded to Python objects: Arrow stores the same numbers, so a date costs as little as an
int.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Record
from rmqio.serde.avro.bulk_columns import BulkColumns, columns_of, evolved_columns_of
from rmqio.serde.avro.deserializer import AvroDeserializer, key_of
from rmqio.serde.avro.encoding import BadFraming, Framing
from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema, schema_of
from rmqio.serde.base import undecodable

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry

_AT_ONCE: Final = 8_192
"""How many bodies are decoded in one call."""
_DICTS: Final = 200
"""How many values exist as dicts at a time. With ten thousand, garbage collection costs a third more."""
_MAX_PREFIXES: Final = 1_000
_MOST_SCHEMAS: Final = 8
"""Bodies of more writers' schemas than that, in one call, are decoded in Python."""
_MOST_DIGITS: Final = 38
_DECODED: Final = frozenset(("decimal", "time-millis", "time-micros"))
"""Types that AvroDeserializer must read: bytes that Arrow cannot read, and numbers that may not be a time of day."""
_PRIMITIVE: Final[dict[str, Callable[[], pa.DataType]]] = {
    "null": pa.null,
    "boolean": pa.bool_,
    "int": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "string": pa.string,
    "bytes": pa.binary,
    "fixed": pa.binary,
    "enum": pa.string,
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


class AvroToArrow:
    """Decodes Avro bodies to an Arrow batch: a column for each field of the reader's record, a row for each message.

    Args:
      reader_schema: the schema of a record, as in `AvroDeserializer`, like the other arguments.
      on_error: "raise", or "null": a body that cannot be decoded becomes a row of nulls, so all columns are nullable;
        `decode` shows which rows these are.
      cast_to: the batch's schema, if its types differ from those of the Avro schema. Values are converted with Arrow's
        safe cast; a value that does not fit counts as one that cannot be decoded.

    Types: enum and uuid become strings, fixed (also a fixed uuid) binary. Decimals have up to 38 digits. Dates, times
    and timestamps keep their unit, and can be in years that Python does not have. A union is null and one type.

    Raises `LocalError` for a schema without an Arrow type (other unions, recursive records, durations), and for
    arguments that `AvroDeserializer` refuses.
    """

    __slots__ = ("_columns", "_config", "_decode", "_made", "_on_error", "_plain", "_type", "schema")

    def __init__(
        self,
        reader_schema: object,
        writer_schema: object = None,
        *,
        framing: Framing | Literal["auto"] = "bare",
        registry: SchemaRegistry | None = None,
        on_error: Literal["raise", "null"] = "raise",
        cast_to: pa.Schema | None = None,
    ) -> None:
        if on_error not in ("raise", "null"):
            raise LocalError(f"on_error is {on_error!r}; it must be 'raise' or 'null'")
        wanted = schema_of(reader_schema, registry)
        if not wanted.is_record:
            raise LocalError(f"an Arrow batch needs the schema of a record, not of {wanted.name}")
        written = None if writer_schema is None else schema_of(writer_schema, registry)
        self._plain: Final = AvroSchema(_without_logical_types(json.loads(wanted.text)))
        # Without a second schema, bodies are read without schema resolution.
        known = self._plain if written == wanted else written
        self._decode: Final = AvroDeserializer(self._plain, known, framing=framing, registry=registry)
        fields = [each.with_nullable(True) if on_error == "null" else each for each in arrow_type(wanted)]
        self._made: Final = pa.struct(fields)
        self.schema: Final = pa.schema(fields) if cast_to is None else cast_to
        self._type: Final = pa.struct(list(self.schema))
        if _shape(self._made) != _shape(self._type):  # Arrow would fill a field of another name with nulls
            raise LocalError(f"cast_to does not have the fields of {wanted.name} in this order: {self._made}")
        try:
            self._array([None])
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise LocalError(f"cast_to: the Arrow type of {wanted.name} cannot be cast to it: {error}") from error
        self._on_error: Final = on_error
        self._config: Final = (wanted, written, framing, registry, on_error, cast_to)
        self._columns: Final[dict[bytes, BulkColumns | None]] = {}

    def __call__(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Returns a batch with a row for each record. Raises `SerdeError` for the first that cannot be decoded."""
        return pa.RecordBatch.from_struct_array(self.decode(records))

    def decode(self, records: Iterable[Record]) -> pa.StructArray:
        """Returns the rows as one array, in which a row that could not be decoded is null."""
        each, parts = iter(records), []
        while part := list(itertools.islice(each, _AT_ONCE)):
            parts += self._in_bulk(part)
        return pa.concat_arrays(parts) if parts else self._array([])

    def _in_bulk(self, records: list[Record]) -> list[pa.StructArray]:
        bodies = [record.body for record in records]
        left, done, others = list(range(len(bodies))), list[int](), list[int]()
        parts: list[pa.StructArray] = []
        for _ in range(_MOST_SCHEMAS):
            if not left:
                break
            prefix = b"" if self._decode.framing == "bare" else self._decode.prefix_of(bodies[left[0]])
            same = left[:1] if prefix is None else [at for at in left if bodies[at].startswith(prefix)]
            columns = None if prefix is None else self._columns_of(prefix)
            left = [] if len(same) == len(left) else sorted({*left}.difference(same))
            unusual: Sequence[int] = range(len(same))
            # A cast fails for a value that does not fit: it must not affect the other records.
            with suppress(pa.ArrowException, ValueError):
                if columns is not None and prefix is not None:
                    made, unusual_ones = columns.decode([bodies[at] for at in same], len(prefix))
                    parts.append(self._cast(made))
                    unusual = unusual_ones
            if len(unusual) == 0 and len(same) == len(bodies):
                return parts
            not_done = {same[at] for at in unusual}
            done += [at for at in same if at not in not_done]
            others += sorted(not_done)
        others = sorted([*others, *left])
        if not done:
            return self._in_dicts(records)
        found = pa.concat_arrays([*parts, *self._in_dicts([records[at] for at in others])])
        rows = {at: row for row, at in enumerate([*done, *others])}
        return [found.take(pa.array([rows[at] for at in range(len(records))], pa.int64()))]

    def _columns_of(self, prefix: bytes) -> BulkColumns | None:
        """The decoder of bodies that begin so. None: they are decoded in Python."""
        if prefix not in self._columns:
            if len(self._columns) >= _MAX_PREFIXES:
                self._columns.clear()
            self._columns[prefix] = self._columns_by(self._writer_by(prefix))
        return self._columns[prefix]

    def _columns_by(self, writer: AvroSchema | None) -> BulkColumns | None:
        wanted, plain = self._config[0], self._plain
        if writer is None:
            return None
        return columns_of(wanted, self._made) if writer == wanted else evolved_columns_of(writer, plain, self._made)

    def _writer_by(self, prefix: bytes) -> AvroSchema | None:
        """The schema of bodies that begin so. None: it is not known, which Python reports."""
        wanted, written, *_ = self._config
        if not prefix:
            return written or wanted
        key = key_of(prefix)
        for known in (written, wanted):
            if known is not None and key == known.fingerprint:
                return known
        try:
            return AvroSchema(self._decode.text_of(key), is_writers=True)
        except (BadFraming, LocalError, RecursionError):
            return None

    def _in_dicts(self, records: list[Record]) -> list[pa.StructArray]:
        return [self._decoded(records[at : at + _DICTS]) for at in range(0, len(records), _DICTS)]

    def _decoded(self, records: list[Record]) -> pa.StructArray:
        values = list(map(self._decode if self._on_error == "raise" else self._or_none, records))
        try:
            return self._array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if len(records) > 1:  # one bad value must not affect the other records
                half = len(records) // 2
                return pa.concat_arrays([self._decoded(records[:half]), self._decoded(records[half:])])
            if self._on_error == "raise":
                raise undecodable(records[0], "a value that its Arrow type does not hold") from error
            return self._array([None])

    def _array(self, values: list[Any]) -> pa.StructArray:
        return self._cast(pa.array(values, self._made))

    def _cast(self, found: pa.StructArray) -> pa.StructArray:
        return found if self._made == self._type else found.cast(self._type)

    def _or_none(self, record: Record) -> Any:
        try:
            return self._decode(record)
        except SerdeError:
            return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroToArrow) and self._config == other._config

    def __hash__(self) -> int:
        return hash((self._config[0], self._config[2]))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, self._config

    def __repr__(self) -> str:
        return f"AvroToArrow({self._config[0]!r}, framing={self._config[2]!r})"


def arrow_type(schema: AvroSchema) -> pa.DataType:
    """The Arrow type of a schema's values. Raises `LocalError` if Arrow has no such type."""
    return _Types(schema).of(schema.parsed, schema.name, ())[0]


class _Types:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def of(self, node: Node, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, bool]:
        """The type, and whether it is nullable."""
        node = self._schema.resolve(node)
        if isinstance(node, list):
            others = [each for each in node if not _is_null(each)]
            if not others:
                return pa.null(), True
            if len(others) > 1:
                raise LocalError(f"{path}: Arrow has columns of one type, but this is a union of {len(others)}")
            return self.of(others[0], path, within)[0], len(others) < len(node)
        if isinstance(node, str) or _is_null(node):
            return (pa.null(), True) if _is_null(node) else (_PRIMITIVE[node](), False)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.of(kind, path, within)
        if kind in ("record", "error"):
            if node["name"] in within:
                raise LocalError(f"{path}: Arrow has no type for records within themselves")
            inside = (*within, node["name"])
            return pa.struct([self._field(field, f"{path}.{field['name']}", inside) for field in node["fields"]]), False
        if kind == "array":
            item, may_be_null = self.of(node["items"], f"{path}[]", within)
            return pa.list_(pa.field("element", item, may_be_null)), False
        if kind == "map":
            value, may_be_null = self.of(node["values"], f"{path}[]", within)
            return pa.map_(pa.string(), pa.field("value", value, may_be_null)), False
        return _leaf(kind, node, path), False

    def _field(self, field: Node, path: str, within: tuple[str, ...]) -> pa.Field:
        kind, may_be_null = self.of(field["type"], path, within)
        return pa.field(field["name"], kind, may_be_null)


def _shape(kind: pa.DataType) -> Any:
    """The names of the fields in a type."""
    if pa.types.is_struct(kind):
        return [(field.name, _shape(field.type)) for field in kind]
    if pa.types.is_list(kind):
        return ["list", _shape(kind.value_type)]
    return ["map", _shape(kind.item_type)] if pa.types.is_map(kind) else None


def _is_null(node: Node) -> bool:
    return bool(node == "null" or (isinstance(node, dict) and node["type"] == "null"))


def _leaf(kind: str, node: Node, path: str) -> pa.DataType:
    logical = node.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if node["precision"] > _MOST_DIGITS:
            raise LocalError(f"{path}: a decimal of {node['precision']} digits; columns hold up to {_MOST_DIGITS}")
        return pa.decimal128(node["precision"], node.get("scale", 0))
    if logical == "duration" and kind == "fixed":
        raise LocalError(f"{path}: Arrow has no type for Avro's durations")
    return _LOGICAL.get((kind, logical)) or _PRIMITIVE[kind]()


def _without_logical_types(node: Any) -> Any:
    """A schema (JSON values) without logical types, except those that are decoded."""
    if isinstance(node, list):
        return list(map(_without_logical_types, node))
    if not isinstance(node, dict):
        return node
    made = {name: each for name, each in node.items() if name != "logicalType" or each in _DECODED}
    kind = made["type"]
    if not isinstance(kind, str):
        made["type"] = _without_logical_types(kind)
    elif kind in ("array", "map"):
        inside = "items" if kind == "array" else "values"
        made[inside] = _without_logical_types(made[inside])
    elif kind in ("record", "error"):
        made["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in made["fields"]]
    return made


def _rebuilt(wanted: Any, written: Any, framing: Any, registry: Any, on_error: Any, cast_to: Any) -> AvroToArrow:
    return AvroToArrow(wanted, written, framing=framing, registry=registry, on_error=on_error, cast_to=cast_to)
