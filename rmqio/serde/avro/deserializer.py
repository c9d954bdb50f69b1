"""Decodes Avro bodies to dicts, NamedTuples, dataclasses or rows."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Literal

from fastavro import block_reader

from rmqio.errors import LocalError, RmqioError
from rmqio.internal_errors import internal_error
from rmqio.model import Record
from rmqio.serde.avro.framing import (
    FINGERPRINT_END,
    ID_END,
    BadFraming,
    Framing,
    fingerprint_of,
    framing_of,
    id_of,
    require_framing,
)
from rmqio.serde.avro.reading.decoder import Decoder, decoder
from rmqio.serde.avro.reading.walk import BrokenValue
from rmqio.serde.avro.schemas.schema import AvroSchema, schema_of
from rmqio.serde.avro.schemas.types import is_record_class
from rmqio.serde.base import error_of_record, undecodable

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry

MAX_SCHEMA_CHARACTERS: Final = 128 * 1024
"""Limit for a schema in a body: creating a decoder for a longer one takes seconds."""


class AvroDeserializer:
    """Decodes the body as Avro.

    Args:
      reader_schema: the schema of the elements: a dict or list as from JSON, JSON text, the path of an `.avsc` file,
        or, with a registry, a subject, whose newest version is requested once, here. None: the writer's schema.
      writer_schema: the schema that bare bodies were written with; None: the reader's. For single objects, one more
        known schema.
      framing: the bytes before the value (`rmqio.serde.avro.framing`): "bare", "single_object", "confluent",
        "container", or "auto", which distinguishes the last three.
      registry: where to find the schemas of ids and fingerprints; each is requested once per process.
      to: the type for records: `dict`; "row" for `beam.Row`, which gives PCollections a schema; or a NamedTuple or
        dataclass. Fields that the class does not have are left out, and fields that the schema does not have need a
        default. Fields annotated with such a class, with an `enum.Enum`, or with lists and dicts of them are converted,
        too. In a union of several records, the name of the record selects the class.

    Raises `LocalError` for arguments that cannot be combined, `SchemaRegistryError` if a subject cannot be loaded.

    A call raises `SerdeError` if the body does not match its framing or its schema, has bytes after its value, is
    nested deeper than 200 levels, or if its schema is unknown or cannot be read with the reader's. A registry that does
    not answer, or sends an invalid answer, raises its own error: no record goes to the error output because of that.
    """

    __slots__ = ("_bare", "_config", "_decoders", "_reader", "_target", "framing", "output_type", "registry")

    def __init__(
        self,
        reader_schema: object = None,
        writer_schema: object = None,
        *,
        framing: Framing | Literal["auto"] = "bare",
        registry: SchemaRegistry | None = None,
        to: Any = dict,
    ) -> None:
        require_framing(framing, auto=True)
        if to is not dict and to != "row" and not is_record_class(to):
            raise LocalError(f"to is {to!r}; it must be dict, 'row', a NamedTuple or a dataclass")
        wanted, written = (
            None if each is None else schema_of(each, registry) for each in (reader_schema, writer_schema)
        )
        known = [each for each in (written, wanted) if each is not None]
        if framing == "bare" and not known:
            raise LocalError("bare Avro does not contain its schema: give reader_schema, or writer_schema, or both")
        if framing == "confluent" and registry is None:
            raise LocalError("Confluent's framing contains ids of schemas, which a registry knows: give registry=")
        self.framing, self.registry, self._reader, self._target = framing, registry, wanted, to
        self._config: Final = (wanted, written, framing, registry, to)
        self._decoders: dict[object, Decoder] = {}
        try:
            for each in known:
                self._decoders.setdefault(each.fingerprint, self._decoder(each))
        except BrokenValue as error:
            raise LocalError(str(error)) from error
        self._bare = self._decoders[known[0].fingerprint] if framing == "bare" else None
        self.output_type: Final = _output_type(wanted or written, to)

    def __call__(self, record: Record) -> Any:
        try:
            if self._bare is not None:
                return self._bare(record.body, 0)
            return self._framed(record.body)
        except (BadFraming, BrokenValue) as error:
            raise undecodable(record, str(error)) from error

    def many(self, records: Sequence[Record]) -> tuple[list[Any], dict[int, Exception]]:
        """The elements of the records that decode, in order, and the error of each other one by its position."""
        try:
            found = self._in_bulk([record.body for record in records])
        except RmqioError:
            raise
        except Exception as error:  # noqa: BLE001  # one by one, only the body is bad that it is about
            internal_error(error, "bodies of Avro")
            found = None
        elements: list[Any] = []
        errors: dict[int, Exception] = {}
        values, left = found if found is not None else ([], range(len(records)))
        if not left:
            return values, errors
        each = iter(values)
        others = set(left)
        for at, record in enumerate(records):
            if at not in others:
                elements.append(next(each))
                continue
            try:
                elements.append(self(record))
            except Exception as error:  # noqa: BLE001  # it raises what no record caused
                errors[at] = error_of_record(error, self)
        return elements, errors

    def _in_bulk(self, bodies: list[bytes]) -> tuple[list[Any], Sequence[int]] | None:
        """The values of bodies with the first one's schema, and the positions of the others. None: there is no bulk."""
        if self._bare is not None:
            return None if self._bare.fast is None else self._bare.fast.many(bodies, 0)
        prefix = self.prefix_of(bodies[0]) if bodies else None
        if prefix is None:
            return None
        try:
            fast = self._known(key_of(prefix)).fast
        except (BadFraming, BrokenValue):
            return None
        if fast is None:
            return None
        same = [at for at, body in enumerate(bodies) if body.startswith(prefix)]
        if len(same) == len(bodies):
            return fast.many(bodies, len(prefix))
        values, left = fast.many([bodies[at] for at in same], len(prefix))
        done = set(same) - {same[at] for at in left}
        return values, [at for at in range(len(bodies)) if at not in done]

    def prefix_of(self, body: bytes) -> bytes | None:
        """The bytes before a value that say which schema it has; None: there are none, or they are broken."""
        try:
            framing = framing_of(body) if self.framing == "auto" else self.framing
            if framing == "single_object":
                fingerprint_of(body)
                return body[:FINGERPRINT_END]
            if framing == "confluent":
                id_of(body)
                return body[:ID_END]
        except BadFraming:
            pass
        return None

    def _framed(self, body: bytes) -> Any:
        framing = framing_of(body) if self.framing == "auto" else self.framing
        if framing == "single_object":
            return self._known(fingerprint_of(body))(body, FINGERPRINT_END)
        if framing == "confluent":
            return self._known(id_of(body))(body, ID_END)
        return self._of_container(body)

    def _known(self, key: bytes | int) -> Decoder:
        """The decoder for a writer's schema by fingerprint or id. Two threads can both create it, without harm."""
        found = self._decoders.get(key)
        if found is None:
            found = self._decoders[key] = self._decoder_of(self.text_of(key))
        return found

    def text_of(self, key: bytes | int) -> str:
        """The text of a writer's schema, from the registry. Raises `BadFraming` if it is not known there."""
        if self.registry is None:
            what = f"id {key}" if isinstance(key, int) else f"fingerprint {key.hex()}"
            raise BadFraming(f"written with the schema of {what}, which is not known here: give registry=")
        from rmqio.serde.registry.base import UnknownSchema  # already imported by the code that created the registry

        try:
            return self.registry.by_id(key) if isinstance(key, int) else self.registry.by_fingerprint(key)
        except UnknownSchema as error:  # any other fault is the registry's, not the record's
            raise BadFraming(str(error)) from error

    def _of_container(self, body: bytes) -> Any:
        """Decodes the one value of an object container file."""
        try:
            file = block_reader(BytesIO(body))
            if file.codec != "null":
                raise BadFraming(f"an object container file compressed by {file.codec}: of unknown size, so not read")
            if len(file.metadata["avro.schema"]) > MAX_SCHEMA_CHARACTERS:
                raise BadFraming(
                    f"an object container file with a schema of more than {MAX_SCHEMA_CHARACTERS} characters"
                )
            blocks = [block for block, _ in zip(file, range(2), strict=False)]
        except BadFraming:
            raise
        except Exception as error:  # of fastavro on any bytes, which nothing else looks into
            raise BadFraming(f"no object container file that can be read ({type(error).__name__})") from error
        if [block.num_records for block in blocks] != [1]:
            raise BadFraming("an object container file without exactly one value: send each value in its own message")
        return self._decoder_of(file.writer_schema)(blocks[0].bytes_.getvalue(), 0)  # type: ignore[attr-defined]

    def _decoder_of(self, source: object) -> Decoder:
        """The decoder for another writer's schema. Raises `BrokenValue` for any error, because the record caused it."""
        try:
            return self._decoder(AvroSchema(source, is_writers=True))
        except LocalError as error:
            raise BrokenValue(f"the writer's schema: {error}") from error
        except RecursionError as error:
            raise BrokenValue("the writer's schema is nested too deeply") from error

    def _decoder(self, written: AvroSchema) -> Decoder:
        if self._target == "row":
            from rmqio.serde.avro.rows import make_row  # needs Beam

            return decoder(written, self._reader, make_row=make_row)
        return decoder(written, self._reader, None if self._target is dict else self._target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroDeserializer) and self._config == other._config

    def __hash__(self) -> int:
        wanted, written, framing, _, to = self._config
        return hash((wanted, written, framing, to))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, self._config

    def __repr__(self) -> str:
        return f"AvroDeserializer({self._reader!r}, framing={self.framing!r}, to={self._target!r})"


def _output_type(schema: AvroSchema | None, target: Any) -> Any:
    if target == "row":
        if schema is None:
            raise LocalError("to='row' needs reader_schema: the type of rows must be known when a pipeline is built")
        from rmqio.serde.avro.rows import row_type  # needs Beam

        return row_type(schema)
    if target is not dict:
        return target
    return dict[str, Any] if schema is not None and schema.is_record else Any


def key_of(prefix: bytes) -> bytes | int:
    """The fingerprint or id in the bytes before a value."""
    return id_of(prefix) if len(prefix) == ID_END else fingerprint_of(prefix)


def _rebuilt(
    wanted: AvroSchema | None, written: AvroSchema | None, framing: Any, registry: SchemaRegistry | None, to: Any
) -> AvroDeserializer:
    return AvroDeserializer(wanted, written, framing=framing, registry=registry, to=to)
