"""Avro bodies: the value without a frame (`avro`), or after a schema's id in a registry (`avro-confluent`).

Columns are the fields of a record with their names. A field that the writer's schema does not have is NULL. Without an
option for the schema it is the one that Flink derives from the table. A BIGINT can be a date or time as its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqio.addresses import require_folder
from rmqio.errors import LocalError, SerdeError
from rmqio.serde.logical_types import without_ignored
from rmqio.sql import values
from rmqio.sql.casts import single
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.base import (
    CONVERSIONS,
    TIMES,
    Convert,
    Fields,
    RowFailure,
    bounded,
    reason_of,
    required,
    whole,
)
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, ValueFailure

if TYPE_CHECKING:
    from rmqio.serde.avro import AvroSchema
    from rmqio.serde.registry import SchemaRegistry


# Avro's values and SQL's: schemas of tables, and conversions by the types of both.
#
# Schemas are used without logical types for dates and times, so that those are numbers both in Avro and in SQL, and
# no `datetime` is made. `Logical` remembers what they were.

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
    found.pop(MARK, None)  # of somebody else
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


def given_schema(table: Table, options: FormatOptions) -> Any:
    """Returns the schema of the option, or the one that Flink derives from the table. Raises `Refusal`."""
    if options.has("avro_schema"):
        try:
            found = json.loads(options.text("avro_schema", ""))
            parsed(found)
        except (ValueError, RecursionError) as error:
            raise options.refusal("avro_schema", f"is not the JSON of a schema: {error}") from None
        except Refusal as refusal:
            raise options.refusal("avro_schema", f"gives no schema: {refusal.message}") from None
        return found
    try:
        return schema_of([(each.name, each.type) for each in table.columns if each.is_physical])
    except Misfit as error:
        raise Refusal(str(error), None) from None


def parsed(source: Any, *, is_writers: bool = False) -> AvroSchema:
    """Returns the schema without times. Raises `Refusal`."""
    try:
        from rmqio.serde.avro import AvroSchema
    except ImportError as error:
        raise Refusal(str(error), None) from None
    try:
        return AvroSchema(without_times(without_ignored(source)), is_writers=is_writers)
    except (TypeError, AttributeError):  # a number in place of a list, for example
        raise Refusal("the schema is not valid: a value in it has another type than Avro says", None) from None
    except (LocalError, LookupError) as error:
        raise Refusal(f"the schema is not valid: {error}", None) from None


def registry_of(options: FormatOptions) -> SchemaRegistry:
    """Returns the registry: a URL, or the path of a folder. Raises `Refusal`."""
    if not options.has("registry_url"):
        raise Refusal("the format avro-confluent needs the option 'avro-confluent.url'", None)
    from rmqio.serde.registry import FolderRegistry, RestRegistry

    url = options.text("registry_url", "").strip()
    try:
        is_http = url.lower().startswith(("http://", "https://"))
        return RestRegistry(url, **TIMES) if is_http else FolderRegistry(require_folder(url.removeprefix("file://")))
    except LocalError as error:
        raise options.refusal("registry_url", f"is {url!r}: {error}") from None


class Plan:
    """How bodies of one schema become the values of columns. Raises `Refusal` for a column that does not fit.

    Args:
      schema: the writer's, as of JSON.
    """

    def __init__(self, source: Any, fields: Fields) -> None:
        from rmqio.serde.avro.deserializer import decoder

        schema = parsed(source, is_writers=True)
        self.decode = decoder(schema, None)
        self.converters: list[Convert | None] = []
        types = Types(schema.names)
        for each in fields:
            name, kind = each.name, each.type
            try:
                known = types.fields(schema.parsed)
                convert = types.reader(known[name], kind) if name in known else None
            except Misfit as error:
                raise Refusal(f"column {name}: {error}", None) from None
            self.converters.append(required(kind, convert))

    def row(self, body: bytes, at: int, fields: Fields) -> tuple[Any, ...]:
        """Returns the SQL values of the body from an offset on. Raises `RowFailure`."""
        from rmqio.serde.avro.encoding import BrokenValue

        try:
            found = self.decode(body, at)
        except BrokenValue as error:
            raise RowFailure(f"the body is not Avro of the schema: {error}") from None
        row = []
        for each, convert in zip(fields, self.converters, strict=True):
            name, given = each.name, found.get(each.name)
            try:
                value = given if convert is None or given is None else convert(given)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), name) from None
            if value is None and not each.type.is_nullable:
                raise RowFailure("it is NOT NULL, but the body has no value for it", name)
            row.append(value)
        return tuple(row)


class AvroDecoder:
    """See `formats.base.Decoder`. `fast` returns the record as a dict."""

    def __init__(self, source: Any, fields: Fields) -> None:
        self._fields, self._plan = fields, Plan(source, fields)
        decode = self._plan.decode.fast
        self._one: Callable[[bytes, int], Any] = self._plan.decode if decode is None else decode.one
        self.columns = []
        for i, each in enumerate(fields):
            name = repr(each.name).replace("{", "{{").replace("}", "}}")
            # NULL where it may not be raises KeyError, as a missing field does: `exact` says why.
            given = f"(a{i} if (a{i} := {{0}}[{name}]) is not None else {{0}}[None])"
            self.columns.append(f"{{}}.get({name})" if each.type.is_nullable else given)
        self.converters = self._plan.converters

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""
        return self._one(body, 0)

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        return self._plan.row(body, 0, self._fields)


class SchemasById(Protocol):
    """The part of a registry that a decoder needs."""

    def by_id(self, schema_id: int, /) -> str:
        """The schema with an id. Raises `UnknownSchema`."""


class RegistryDecoder:
    """See `formats.base.Decoder`. Schemas come from a registry by the id in the body, each once."""

    def __init__(self, registry: SchemasById, fields: Fields) -> None:
        self._registry, self._fields = registry, fields
        self._plans: dict[int, Plan | RowFailure] = {}  # schemas that do not fit, too
        self.columns = [f"{{}}[{position}]" for position in range(len(fields))]
        self.converters: list[Convert | None] = [None] * len(fields)

    def fast(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`, or the registry's error."""
        number, end = self._head(body)
        plan = self._plans.get(number) or self._new_plan(number)
        if isinstance(plan, RowFailure):
            raise plan
        return plan.row(body, end, self._fields)

    def _head(self, body: bytes) -> tuple[int, int]:
        """Returns the id of the schema, and where the value begins. Raises `RowFailure`."""
        from rmqio.serde.avro.encoding import ID_END, BadFraming, id_of

        try:
            return id_of(body), ID_END
        except BadFraming as error:
            raise RowFailure(f"the body is not Avro of a registry: {error}") from None

    exact = fast

    def _new_plan(self, number: int) -> Plan | RowFailure:
        from rmqio.serde.registry import UnknownSchema

        try:
            text = self._registry.by_id(number)
        except UnknownSchema as error:  # not kept: the registry can know it later
            return RowFailure(f"the schema of id {number} is unknown: {error}")
        try:
            self._plans[number] = Plan(json.loads(text), self._fields)
        except Refusal as refusal:
            self._plans[number] = RowFailure(f"the writer's schema of id {number}: {refusal.message}")
        return self._plans[number]


class AvroEncoder:
    """See `formats.base.Encoder`.

    Args:
      source: the schema, as of JSON.
      registry, subject: for bodies with a schema's id: where the schema is registered.
    """

    def __init__(
        self, source: Any, fields: Fields, registry: SchemaRegistry | None = None, subject: str | None = None
    ) -> None:
        plain = parsed(source)
        self._names = [each.name for each in fields]
        self._writers = writers_of(plain, fields)
        self._write = _writer_of(source, plain, registry, subject)
        self.constants: dict[str, Any] = {"avro_body": self._body}

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"avro_body(({', '.join(names)}{',' * bool(names)}))"

    def _body(self, row: tuple[Any, ...]) -> bytes:
        element = {}
        for name, write, value in zip(self._names, self._writers, row, strict=True):
            try:
                element[name] = value if write is None or value is None else write(value)
            except CONVERSIONS as error:
                raise ValueFailure(f"column {name}: {reason_of(error)}") from None
        try:
            return self._write(element)
        except SerdeError as error:
            reason = str(error.__cause__ or error)
            name = reason.partition(":")[0].rpartition(".")[2]
            shown = f" ({bounded(str(element[name]))})" if name in element else ""
            raise ValueFailure(f"the schema does not have the row: {reason}{shown}") from None


def writers_of(schema: AvroSchema, fields: Sequence[Field], unset: Collection[str] = ()) -> list[Convert | None]:
    """Returns what makes Avro's values of the columns. Raises `Refusal` if the schema and the columns do not fit.

    Args:
      unset: names of columns that are NULL in each row.
    """
    types = Types(schema.names)
    try:
        known = types.fields(schema.parsed)
    except Misfit as error:
        raise Refusal(str(error), None) from None
    names = {each.name for each in fields}
    with_default = {each["name"] for each in schema.parsed["fields"] if "default" in each}
    if missing := [each for each in known if each not in names and each not in with_default]:
        raise Refusal(f"the schema has the field {missing[0]}, which is not a column and has no default", None)
    found = []
    for each in fields:
        name, kind = each.name, each.type
        if name not in known:
            raise Refusal(f"the schema has no field {name}: add it there, or leave out the column", None)
        if name in unset and not types.is_nullable(known[name]):
            raise Refusal(f"the column {name} gets no value, and the schema's field takes no null", None)
        try:
            found.append(types.writer(known[name], kind))
        except Misfit as error:
            raise Refusal(f"column {name}: {error}", None) from None
    return found


def _writer_of(
    source: Any, plain: AvroSchema, registry: SchemaRegistry | None, subject: str | None
) -> Callable[[dict[str, Any]], bytes]:
    from rmqio.serde.avro import AvroSchema, AvroSerializer
    from rmqio.serde.avro.encoding import confluent_head

    serialize = AvroSerializer(plain)
    if registry is None:
        return lambda element: serialize(element).body
    # The registered schema has its logical types.
    head = confluent_head(registry.register(subject or "", AvroSchema(source).text))
    return lambda element: head + serialize(element).body
