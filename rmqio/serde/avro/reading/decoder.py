"""Decodes one value of a writer's schema with a reader's. The value must fill the body: no bytes may follow it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from rmqio.internal_errors import internal_error
from rmqio.serde.avro.bulk import Values
from rmqio.serde.avro.bulk.resolved import resolved_values_of
from rmqio.serde.avro.bulk.values import values_of
from rmqio.serde.avro.reading.exact import strict_schema, with_exact_ints, with_exact_types
from rmqio.serde.avro.reading.typed import MakeRow, converter
from rmqio.serde.avro.reading.walk import MAX_DEPTH, BrokenValue, walk
from rmqio.serde.avro.schemas.defaults import own_copy
from rmqio.serde.avro.schemas.nodes import Node, nodes_of
from rmqio.serde.avro.schemas.references import by_name
from rmqio.serde.avro.schemas.resolution import like_reader
from rmqio.serde.avro.schemas.schema import AvroSchema

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
