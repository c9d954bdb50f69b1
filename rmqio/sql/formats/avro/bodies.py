"""Avro bodies: the value without a frame (`avro`), or after a schema's id in a registry (`avro-confluent`).

Columns are the fields of a record with their names. A field that the writer's schema does not have is NULL. Without an
option for the schema it is the one that Flink derives from the table. A BIGINT can be a date or time as its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmqio.addresses import require_folder
from rmqio.errors import LocalError, SerdeError
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.avro.values import Misfit, Types, schema_of, without_times
from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, bounded, reason_of, required
from rmqio.sql.formats.confluent import TIMES
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.planning.plan import Field
from rmqio.sql.values import ValueFailure

if TYPE_CHECKING:
    from rmqio.serde.avro import AvroSchema
    from rmqio.serde.registry import SchemaRegistry


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
        return AvroSchema(without_times(source), is_writers=is_writers)
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
