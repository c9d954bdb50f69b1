"""Encodes elements as Avro."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from fastavro import schemaless_writer, writer

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.serde.avro.encoding import Framing, confluent_head, require_framing, single_object_head
from rmqio.serde.avro.nodes import LOGICAL, PRIMITIVE, BadValue, Check, Node, enum_of, fixed_of, type_of
from rmqio.serde.avro.schema import AvroSchema, is_subject, schema_of
from rmqio.serde.avro.types import is_record_class
from rmqio.serde.avro.usual import UNUSUAL, usual
from rmqio.serde.base import keys_of, message_of, names_of_keys, tag_of, unencodable

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry


# Checks an element against a schema, and prepares it for fastavro.
#
# fastavro itself writes 1.5 as the int 1, 2**40 as an int that Java cannot read, "no" as the boolean true, and 1e300
# as the float infinity, and drops what a date or a time of milliseconds cannot hold. These checks prevent that: an
# element is written exactly, or refused with the name of the invalid field.


def checker(schema: AvroSchema) -> Check:
    """The check for elements of a schema: dicts, NamedTuples, dataclasses and `beam.Row`s."""
    check = _Checkers(schema).of(schema.parsed)

    def checked(element: Any) -> Any:
        try:
            return check(element)
        except BadValue as error:
            raise error.within(schema.name) from None
        except RecursionError:
            raise BadValue("nested too deeply, or contains itself").within(schema.name) from None

    return checked


class _Checkers:
    """One check for each type. That of a named type is created once, because it can contain itself."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._named: dict[str, Check] = {}

    def of(self, node: Node) -> Check:
        if isinstance(node, str) and node in self._schema.names:
            return self._reference(node)
        if isinstance(node, list):
            return _union(node, [self.of(branch) for branch in node], self._schema)
        if isinstance(node, str):
            return PRIMITIVE[node]
        kind = node["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        if "name" in node:
            self._named[node["name"]] = made = self._of_named(node, kind)
            return made
        if kind == "array":
            return _array(self.of(node["items"]))
        if kind == "map":
            return _map(self.of(node["values"]))
        logical = LOGICAL.get((kind, node.get("logicalType", "")))
        return logical(node) if logical is not None else PRIMITIVE[kind]

    def _of_named(self, node: Node, kind: str) -> Check:
        if kind == "enum":
            return enum_of(frozenset(node["symbols"]))
        if kind == "fixed":
            logical = LOGICAL.get((kind, node.get("logicalType", "")))
            return logical(node) if logical is not None else fixed_of(node["size"])
        fields = node["fields"]
        return _record(
            [(field["name"], self.of(field["type"])) for field in fields],
            {field["name"]: field["default"] for field in fields if "default" in field},
        )

    def _reference(self, name: str) -> Check:
        named = self._named

        def refer(value: Any) -> Any:
            return named[name](value)

        return named.get(name, refer)


# ---- what has parts -------------------------------------------------------------------------------------------------


def fields_of(value: Any) -> Mapping[str, Any]:
    """A record's fields by name. Raises `BadValue`."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "as_dict"):  # beam.Row
        found: Mapping[str, Any] = value.as_dict()
        return found
    raise BadValue(f"{type_of(value)} is not a record: a dict, a NamedTuple, a dataclass or a beam.Row")


def _record(fields: list[tuple[str, Check]], defaults: dict[str, Any]) -> Check:
    names = {name for name, _ in fields}

    def check(value: Any) -> Any:
        given = value if type(value) is dict else fields_of(value)
        made = {}
        for name, check_field in fields:
            if name not in given:  # a look-up could create one, as in a defaultdict
                if name not in defaults:
                    raise BadValue("is missing, and has no default").within(f".{name}")
                continue
            try:
                made[name] = check_field(given[name])
            except BadValue as error:
                raise error.within(f".{name}") from None
        if len(made) != len(given) and (unknown := [each for each in given if each not in names]):
            raise BadValue(f"has fields that the schema does not have: {', '.join(map(str, unknown))}")
        return made

    return check


def _array(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__len__"):
            raise BadValue(f"{type_of(value)} is not an array: a list or a tuple")
        made = []
        for at, item in enumerate(value):
            try:
                made.append(check_item(item))
            except BadValue as error:
                raise error.within(f"[{at}]") from None
        return made

    return check


def _map(check_value: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise BadValue(f"{type_of(value)} is not a map: a dict with text as keys")
        made = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise BadValue(f"a key is {type_of(key)}, not text")
            try:
                made[key] = check_value(each)
            except BadValue as error:
                raise error.within("[]") from None
        return made

    return check


def _union(branches: list[Node], checks: list[Check], schema: AvroSchema) -> Check:
    """Returns the name of the first branch that accepts a value: fastavro would guess again, without inner names.

    A class with the name of a branch selects that branch.
    """
    found = [(_name(schema.resolve(branch)), check) for branch, check in zip(branches, checks, strict=True)]
    # A float has fewer digits than a double.
    others = sorted((each for each in found if each[0] != "null"), key=lambda each: each[0] == "float")
    named = {name: check for name, check in found if name in schema.names}
    short = [name.rpartition(".")[2] for name in named]
    by_class = {each: (name, named[name]) for name, each in zip(named, short, strict=True) if short.count(each) == 1}
    may_be_none = len(others) < len(branches)
    kinds = ", ".join(map(_called, map(schema.resolve, branches)))

    def check(value: Any) -> Any:
        if value is None and may_be_none:
            return None
        if type(value) is tuple and len(value) == 2 and value[0] in named:
            return value[0], named[value[0]](value[1])
        if len(others) == 1:
            name, check_other = others[0]
            return name, check_other(value)
        if (own := by_class.get(type(value).__name__)) is not None and is_record_class(type(value)):
            return own[0], own[1](value)
        for name, check_other in others:
            try:
                return name, check_other(value)
            except BadValue:
                continue
        raise BadValue(f"{type_of(value)} fits no branch of the union of {kinds}")

    return check


def _name(node: Node) -> str:
    """The name by which fastavro identifies a branch."""
    return str(node.get("name", node["type"]) if isinstance(node, dict) else node)


def _called(node: Node) -> str:
    return str(node.get("name", node["type"])) if isinstance(node, dict) else str(node)


class AvroSerializer:
    """Encodes an element as Avro: a dict, a NamedTuple, a dataclass or a `beam.Row`, also within each other.

    An element is written exactly or refused: nothing is rounded, other types are not converted to booleans, and fields
    that the schema does not have are refused. In a union, the first branch that accepts the value is written. A pair of
    a record's full name and a value selects the branch.

    Args:
      schema: a dict or list as from JSON, JSON text, the path of an `.avsc` file, or, with a registry, a subject, whose
        newest version is requested once, here.
      framing: the bytes before the value (`rmqio.serde.avro.encoding`): "bare", "single_object", "confluent" or
        "container".
      registry: provides the id for Confluent's framing.
      subject: the subject to register the schema under; None: it is already registered, and `schema` is its subject.
      key_fields: fields whose values become the message's keys: text without white space, or whole numbers.
      tag_field: the field that becomes the tag; if it is missing or None, the message has no tag.

    Raises `LocalError` for arguments that cannot be combined, `SchemaRegistryError` if the registry refuses.

    A call raises `SerdeError`, which names the field, for a value that the schema cannot hold.
    """

    __slots__ = (
        "_check",
        "_config",
        "_head",
        "_named",
        "_parsed",
        "_usual",
        "framing",
        "key_fields",
        "schema",
        "tag_field",
    )

    def __init__(
        self,
        schema: object,
        *,
        framing: Framing = "bare",
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        key_fields: Sequence[str] = (),
        tag_field: str | None = None,
    ) -> None:
        require_framing(framing)
        self.schema: Final = schema_of(schema, registry)
        self.framing: Framing = framing
        self.key_fields, self.tag_field = names_of_keys(key_fields), tag_field
        self._usual, self._check = usual(self.schema) or _unusual, checker(self.schema)
        # Each call uses these, with one attribute look-up each.
        self._parsed = self.schema.parsed
        self._named = [*self.key_fields, *([] if tag_field is None else [tag_field])]
        self._require_fields()
        schema_id = _id(schema, self.schema, registry, subject) if framing == "confluent" else 0
        self._set_head(schema_id)
        self._config = (self.schema, framing, schema_id, self.key_fields, tag_field)

    def __call__(self, element: Any) -> Message:
        if (ready := self._usual(element)) is UNUSUAL:
            ready = self._checked(element)
        stream = BytesIO()
        try:
            if self._head is None:
                writer(stream, self._parsed, [ready])
            else:
                if self._head:
                    stream.write(self._head)
                schemaless_writer(stream, self._parsed, ready)
        except Exception as error:  # of fastavro, by type and value
            self._checked(element)  # says what is wrong, and where; fastavro's text may quote it
            raise unencodable(element, f"{self.schema.name}: fastavro refuses it ({type(error).__name__})") from error
        if not self._named and (body := stream.getvalue()):
            return Message(body)
        fields = {name: _value(ready.get(name)) for name in self._named}
        keys, tag = keys_of(element, fields, self.key_fields), tag_of(element, fields, self.tag_field)
        return message_of(element, stream.getvalue(), keys=keys, tags=tag)

    def _checked(self, element: Any) -> Any:
        try:
            return self._check(element)
        except BadValue as error:
            raise unencodable(element, str(error)) from error

    def _require_fields(self) -> None:
        """Raises `LocalError` if a field for keys or tags is not in the schema."""
        fields = [field["name"] for field in self.schema.parsed["fields"]] if self.schema.is_record else []
        if unknown := [each for each in self._named if each not in fields]:
            raise LocalError(f"keys and tags are taken from fields of the record {self.schema.name}; no {unknown[0]!r}")

    def _set_head(self, schema_id: int) -> None:
        """Set the bytes before the value; None: the value is written as a container file."""
        heads = {
            "bare": b"",
            "single_object": single_object_head(self.schema.fingerprint),
            "confluent": confluent_head(schema_id),
        }
        self._head = heads.get(self.framing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSerializer) and self._config == other._config

    def __hash__(self) -> int:
        return hash(self._config)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, self._config

    def __repr__(self) -> str:
        return f"AvroSerializer({self.schema!r}, framing={self.framing!r})"


def _value(made: Any) -> Any:
    """The value; for a union, `made` is the branch's name and the value."""
    return made[1] if type(made) is tuple else made


def _unusual(_: Any) -> Any:
    return UNUSUAL


def _id(given: object, schema: AvroSchema, registry: SchemaRegistry | None, subject: str | None) -> int:
    if registry is None:
        raise LocalError("Confluent's framing needs the schema's id from a registry: give registry= and subject=")
    if subject is not None:
        return registry.register(subject, schema.text)
    if isinstance(given, str) and is_subject(given):
        return registry.by_version(given).id
    raise LocalError("under which subject is the schema registered? Give subject=")


def _rebuilt(
    schema: AvroSchema, framing: Framing, schema_id: int, key_fields: Sequence[str], tag_field: str | None
) -> AvroSerializer:
    """Rebuilds the serializer in another process, without another request to the registry."""
    made = AvroSerializer(
        schema, framing="bare" if framing == "confluent" else framing, key_fields=key_fields, tag_field=tag_field
    )
    if framing == "confluent":
        made.framing = framing
        made._set_head(schema_id)
        made._config = (schema, framing, schema_id, made.key_fields, tag_field)
    return made
