"""Encodes elements as Avro."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from fastavro import schemaless_writer, writer

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.serde.avro.framing import Framing, confluent_head, require_framing, single_object_head
from rmqio.serde.avro.schemas.leaves import BadValue
from rmqio.serde.avro.schemas.schema import AvroSchema, is_subject, schema_of
from rmqio.serde.avro.writing.checked import checker
from rmqio.serde.avro.writing.usual import UNUSUAL, usual
from rmqio.serde.base import message_of, unencodable
from rmqio.serde.fields import keys_of, names_of_keys, tag_of

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry


class AvroSerializer:
    """Encodes an element as Avro: a dict, a NamedTuple, a dataclass or a `beam.Row`, also within each other.

    An element is written exactly or refused: nothing is rounded, other types are not converted to booleans, and fields
    that the schema does not have are refused. In a union, the first branch that accepts the value is written. A pair of
    a record's full name and a value selects the branch.

    Args:
      schema: a dict or list as from JSON, JSON text, the path of an `.avsc` file, or, with a registry, a subject, whose
        newest version is requested once, here.
      framing: the bytes before the value (`rmqio.serde.avro.framing`): "bare", "single_object", "confluent" or
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
