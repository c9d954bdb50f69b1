"""Decodes Avro bodies to dicts, NamedTuples, dataclasses or rows."""

from __future__ import annotations

import copy
import re
import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Literal

from fastavro import block_reader, schemaless_reader
from fastavro.read import SchemaResolutionError

from rmqio.errors import LocalError, RmqioError
from rmqio.internal_errors import internal_error
from rmqio.model import Record
from rmqio.serde.avro.bulk import Values
from rmqio.serde.avro.bulk_plans import resolved_values_of, values_of
from rmqio.serde.avro.encoding import (
    FINGERPRINT_END,
    ID_END,
    MAX_DEPTH,
    BadFraming,
    BrokenValue,
    Framing,
    fingerprint_of,
    framing_of,
    id_of,
    require_framing,
    walk,
)
from rmqio.serde.avro.exact import own_copy, strict_schema, with_exact_ints, with_exact_types
from rmqio.serde.avro.nodes import LOGICAL, WRITTEN_AS_INT, Node, nodes_of
from rmqio.serde.avro.schema import AvroSchema, by_name, schema_of
from rmqio.serde.avro.typed import MakeRow, converter
from rmqio.serde.avro.types import is_record_class
from rmqio.serde.base import error_of_record, undecodable

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry


# Gives a writer's schema the logical types of the reader's.
#
# The specification leaves logical types to the reader, but fastavro uses the writer's: a long that the reader wants
# as a timestamp stays a number, and the other way round.

_LOGICAL: Final = ("logicalType", "precision", "scale")
_KNOWN: Final = frozenset(name for _, name in LOGICAL)
_SAME_BYTES: Final = frozenset({("int", "long"), ("string", "bytes"), ("bytes", "string")})
_WIDENED: Final = frozenset(
    {("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")}
)
"""Promotions. Types with the same bytes can be read as if they had been written as the target type."""


def like_reader(writer: AvroSchema, reader: AvroSchema) -> Node:
    """The parsed schema for fastavro. Raises `BrokenValue` for decimals whose precision or scale differ."""
    if not any(
        isinstance(node, dict) and "logicalType" in node for s in (writer, reader) for node in nodes_of(s.parsed)
    ):
        return writer.parsed
    whole = {"type": copy.deepcopy(writer.parsed)}
    _Alignment(whole, reader).align(whole, "type", reader.parsed)
    return whole["type"]


class _Alignment:
    """Changes a copy of the writer's schema in place."""

    def __init__(self, whole: Node, reader: AvroSchema) -> None:
        self._reader = reader
        self._names = {
            node["name"]: node for node in nodes_of(whole["type"]) if isinstance(node, dict) and "name" in node
        }
        self._done: set[tuple[str, str]] = set()

    def align(self, holder: Any, key: Any, wanted: Node) -> None:
        """Align the schema that `holder` has at `key`, and all its descendants."""
        written, wanted = (
            self._names.get(holder[key], holder[key]) if isinstance(holder[key], str) else holder[key],
            self._reader.resolve(wanted),
        )
        if isinstance(written, list):
            for at, branch in enumerate(written):
                self.align(written, at, self._branch_for(branch, wanted))
            return
        wanted = self._branch_for(written, wanted)
        kind = _kind(written)
        if (kind, _kind(wanted)) in _SAME_BYTES:
            logical = written if isinstance(written, dict) else {}
            holder[key] = {"type": _kind(wanted)} | {name: logical[name] for name in _LOGICAL if name in logical}
            _take_logical_type(holder, key, holder[key], wanted)
            if kind == "int":
                holder[key][WRITTEN_AS_INT] = True
        elif (kind, _kind(wanted)) in _WIDENED:
            holder[key] = kind
        elif kind != _kind(wanted):
            return
        elif kind == "record":
            self._align_records(written, wanted)
        elif kind == "array":
            self.align(written, "items", wanted["items"])
        elif kind == "map":
            self.align(written, "values", wanted["values"])
        else:
            _take_logical_type(holder, key, written, wanted)

    def _align_records(self, written: Node, wanted: Node) -> None:
        pair = written["name"], wanted["name"]
        if pair in self._done:
            return
        self._done.add(pair)
        by_name = {name: field for field in wanted["fields"] for name in field.get("aliases", ())}
        by_name |= {field["name"]: field for field in wanted["fields"]}
        for field in written["fields"]:
            if field["name"] in by_name:
                self.align(field, "type", by_name[field["name"]]["type"])

    def _branch_for(self, written: Node, wanted: Node) -> Node:
        """The branch of the reader's union for a value; `wanted` itself if it is not a union."""
        if not isinstance(wanted, list):
            return wanted
        written = self._names.get(written, written) if isinstance(written, str) else written
        branches = [self._reader.resolve(each) for each in wanted]
        kind = _kind(written)
        fit = [each for each in branches if _kind(each) == kind or (kind, _kind(each)) in _SAME_BYTES | _WIDENED]
        return next((each for each in fit if _short(each) == _short(written)), fit[0] if fit else None)


def _kind(node: Node) -> str:
    return str(node["type"] if isinstance(node, dict) else node)


def _short(node: Node) -> str:
    return str(node.get("name", "")).rpartition(".")[2] if isinstance(node, dict) else ""


def _take_logical_type(holder: Any, key: Any, written: Node, wanted: Node) -> None:
    has, takes = (
        {name: node[name] for name in _LOGICAL if name in node} if isinstance(node, dict) else {}
        for node in (written, wanted)
    )
    if has.get("logicalType") == takes.get("logicalType") == "decimal":
        if (has["precision"], has.get("scale", 0)) != (takes["precision"], takes.get("scale", 0)):
            raise BrokenValue(
                f"what was written as decimal({has['precision']}, {has.get('scale', 0)}) cannot be read as "
                f"decimal({takes['precision']}, {takes.get('scale', 0)})"
            )
    elif has.get("logicalType") in _KNOWN and takes.get("logicalType") in _KNOWN and has != takes:
        raise BrokenValue(f"what was written as {has['logicalType']} cannot be read as {takes['logicalType']}")
    elif has != takes:
        if isinstance(written, dict) and "name" in written:
            for name in has:
                del written[name]
            written.update(takes)
        else:
            holder[key] = {"type": _kind(written), **takes}


# Decodes one value of a writer's schema with a reader's. The value must fill the body: no bytes may follow it.

_LONGEST: Final = 200
_MAY_BE_LONGER: Final = re.compile(rb"[\x80-\xff]{4}[\x10-\xff]").search
"""Finds what each number of more than 32 bits has, and most bodies do not have."""
_OF_BYTES: Final = (EOFError, LookupError, ValueError, ArithmeticError, struct.error, SchemaResolutionError)
"""What fastavro raises on broken bytes, and on values that a logical type or the reader's schema cannot have."""


class Decoder:
    """Decodes values of one schema.

    Args:
      exact: decodes a value with fastavro.
      fast: decodes usual values as `exact` does; None: it cannot, or is not built.
    """

    __slots__ = ("_exact", "fast")

    def __init__(self, exact: Callable[[bytes, int], Any], fast: Values | None) -> None:
        self._exact, self.fast = exact, fast

    def __call__(self, body: bytes, at: int) -> Any:
        """Return the value that begins at an offset in a body and ends with it. Raises `BrokenValue`."""
        if self.fast is not None:
            try:
                return self.fast.one(body, at)
            except LookupError:
                pass
        return self._exact(body, at)


def decoder(
    writer: AvroSchema, reader: AvroSchema | None, target: type | None = None, make_row: MakeRow | None = None
) -> Decoder:
    """A decoder that is compiled once, for many values. Raises `LocalError` if `target` does not fit the schema."""
    if reader == writer:
        reader = None
    seen = reader or writer
    convert, named = converter(seen, target, make_row, own_copy if reader is not None else None)
    wanted = None if reader is None else by_name(reader.parsed)
    written = with_exact_types(writer.parsed if reader is None else by_name(like_reader(writer, reader)))
    checked = with_exact_ints(written) if any(map(_is_int, nodes_of(writer.parsed))) else None
    strict = strict_schema(writer.parsed)
    shape = writer.shape
    may_harm = shape.is_recursive or shape.is_hollow or shape.levels > MAX_DEPTH

    def decode(body: bytes, at: int) -> Any:
        if may_harm:
            walk(body, at, writer)
        elif strict is not None:
            _require(strict, body, at, writer)
        # fastavro skips what the reader does not want, even if the body ends within it. The extra byte detects that.
        stream = BytesIO(body if wanted is None else body + b"\0")
        if at:
            stream.seek(at)
        how = written if checked is None or _MAY_BE_LONGER(body, at) is None else checked
        try:
            value = (
                schemaless_reader(stream, how, wanted, return_named_type=True)
                if named
                else schemaless_reader(stream, how, wanted)
            )
        except Exception as error:
            walk(body, at, writer)  # says where
            if not isinstance(error, _OF_BYTES):
                internal_error(error, "a body of Avro")
            raise BrokenValue(_reason(error, writer)) from error
        if (end := stream.tell()) != len(body):
            walk(body, at, writer)
            raise BrokenValue(f"{len(body) - end} bytes are left after a {writer.name}")
        try:
            return value if convert is None else convert(value)
        except Exception as error:  # a dataclass can check its arguments
            raise BrokenValue(f"{writer.name}: cannot be converted to the target ({type(error).__name__})") from error

    fast = (
        values_of(writer, target, make_row) if reader is None else resolved_values_of(writer, reader, target, make_row)
    )
    return Decoder(decode, fast)


def _require(strict: Node, body: bytes, at: int, writer: AvroSchema) -> None:
    """Raises `BrokenValue` for a branch or a boolean that there is not. It takes less time than to walk."""
    stream = BytesIO(body)
    stream.seek(at)
    try:
        schemaless_reader(stream, strict)
    except Exception as error:
        walk(body, at, writer)  # says where
        if not isinstance(error, _OF_BYTES):
            internal_error(error, "a body of Avro")
        raise BrokenValue(_reason(error, writer)) from error


def _is_int(node: Node) -> bool:
    return bool(node == "int" or (isinstance(node, dict) and node["type"] == "int"))


def _reason(error: Exception, writer: AvroSchema) -> str:
    """The reason for an error in well-formed bytes. The error's text can quote the value, except for schema errors."""
    if isinstance(error, SchemaResolutionError):
        return f"what was written as {writer.name} cannot be read with the reader's schema: {str(error)[:_LONGEST]}"
    return f"{writer.name}: a value that its logical type or the reader's schema cannot have ({type(error).__name__})"


MAX_SCHEMA_CHARACTERS: Final = 128 * 1024
"""Limit for a schema in a body: creating a decoder for a longer one takes seconds."""


class AvroDeserializer:
    """Decodes the body as Avro.

    Args:
      reader_schema: the schema of the elements: a dict or list as from JSON, JSON text, the path of an `.avsc` file,
        or, with a registry, a subject, whose newest version is requested once, here. None: the writer's schema.
      writer_schema: the schema that bare bodies were written with; None: the reader's. For single objects, one more
        known schema.
      framing: the bytes before the value (`rmqio.serde.avro.encoding`): "bare", "single_object", "confluent",
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
