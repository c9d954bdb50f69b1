"""Avro in each of its framings, with schemas in a registry, and with schemas that the body brings along."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, AvroSerializer
from rmqio.serde.avro.encoding import BrokenValue, confluent_head, single_object_head, walk
from rmqio.serde.registry.memory import MemoryRegistry
from tests.fuzz.checks import KIB, bounded, outcome, require
from tests.helpers.transforms.records import record_of


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


_COLOUR: Final = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}
SCHEMAS: Final[tuple[Any, ...]] = (
    _record(
        "Leaves",
        a="boolean", b="int", c="long", d="float", e="double", f="bytes", g="string", h=_COLOUR,
        i={"type": "fixed", "name": "Four", "size": 4},
    ),
    _record(
        "Logical",
        a=_logical("bytes", "decimal", precision=9, scale=2),
        b=_logical("int", "date"),
        c=_logical("int", "time-millis"),
        d=_logical("long", "timestamp-millis"),
        e=_logical("long", "local-timestamp-micros"),
        f=_logical("string", "uuid"),
        g={**_logical("fixed", "duration"), "name": "Span", "size": 12},
    ),
    _record(
        "Tree",
        value=["null", "long", "string"],
        children={"type": "array", "items": "Tree"},
        named={"type": "map", "values": ["null", "Tree"]},
    ),
    _record(
        "Order",
        id="long",
        lines={"type": "array", "items": _record("Line", sku="string", count="int")},
        first=["null", "Line"],
        choice=["int", "string", _COLOUR, {"type": "map", "values": "bytes"}],
    ),
)  # fmt: skip
# Schemas that read the same bodies: promotions, fields that are new or left out, a union where there was none.
_READERS: Final[tuple[Any, ...]] = (
    _record("Leaves", b="double", c="float", f="string", g="bytes", h=["null", _COLOUR]),
    _record("Logical", a=_logical("bytes", "decimal", precision=9, scale=2), b="int", d="long", f="string"),
    _record("Tree", value=["null", "double", "string"], children={"type": "array", "items": "Tree"}),
    {
        **_record("Order", id="double", lines={"type": "array", "items": _record("Line", count="long")}),
        "aliases": ["Old"],
    },
)
MODES: Final = (
    "auto",
    "bare",
    "confluent",
    "single_object",
    "container",
    "schema and value",
    "registered schema and value",
    "container head",
)
"""The kinds of input behind the first byte: all of the body, a value, a schema and a value with a zero byte between,
or what follows the four bytes that a container begins with."""
SYNC: Final = bytes(range(16))


def options(mode: str, schema: int = 0, *, evolves: bool = False) -> bytes:
    """The first byte of an input."""
    return bytes([MODES.index(mode) | schema << 3 | evolves << 5])


class _Case(NamedTuple):
    schema: AvroSchema
    plain: Mapping[str, AvroDeserializer]
    """By framing."""
    evolving: Mapping[str, AvroDeserializer]
    schema_id: int
    serializer: AvroSerializer


@lru_cache(maxsize=1)
def _cases() -> tuple[_Case, ...]:
    registry = MemoryRegistry()
    ids = [registry.register(schema["name"], json.dumps(schema)) for schema in SCHEMAS]

    def deserializers(schema: Any, reader: Any) -> Mapping[str, AvroDeserializer]:
        framed = AvroDeserializer(reader, framing="auto", registry=registry)
        return MappingProxyType({"bare": AvroDeserializer(reader, schema), "framed": framed})

    return tuple(
        _Case(
            AvroSchema(schema),
            deserializers(schema, None),
            deserializers(schema, reader),
            schema_id,
            AvroSerializer(schema),
        )
        for schema, reader, schema_id in zip(SCHEMAS, _READERS, ids, strict=True)
    )


def fuzz_avro(data: bytes) -> None:
    """A body. The first byte chooses what is around the input, the schema, and whether it is read as another one."""
    choice, given = data[0] if data else 0, data[1:]
    mode, case = MODES[choice & 7], _cases()[choice >> 3 & 3]
    body = _body(mode, given, case)
    of = case.evolving if choice & 32 else case.plain
    deserialize = of["bare" if mode == "bare" else "framed"]
    if mode == "registered schema and value":
        schema, _, value = given.partition(b"\0")
        registry = MemoryRegistry()
        try:
            body = confluent_head(registry.register("s", schema.decode("utf-8", "replace"))) + value
        except LocalError:
            return
        deserialize = AvroDeserializer(framing="confluent", registry=registry)
    record = record_of(body)
    element = bounded(body, lambda: outcome(lambda: deserialize(record), SerdeError), times=512, plus=512 * KIB)
    if isinstance(element, tuple) and element and element[0] is SerdeError:
        return
    if mode in ("bare", "confluent", "single_object"):
        evolves = bool(choice & 32)
        if _is_well_formed(given, case, (*_TAKEN, *_LEFT_OUT) if evolves else _TAKEN) and not evolves:
            again = case.plain["bare"](record_of(case.serializer(element).body))
            require(repr(again) == repr(element), "an element written again differs", again, element)


def _body(mode: str, given: bytes, case: _Case) -> bytes:
    if mode == "confluent":
        return confluent_head(case.schema_id) + given
    if mode == "single_object":
        return single_object_head(case.schema.fingerprint) + given
    if mode == "container":
        return container(case.schema.text.encode(), given)
    if mode == "schema and value":
        schema, _, value = given.partition(b"\0")
        return container(schema, value)
    if mode == "container head":
        return b"Obj\x01" + given
    return given


def container(schema: bytes, value: bytes, *, number: int = 1, codec: bytes = b"null") -> bytes:
    """An object container file of one block."""
    entries = b"".join(map(_sized, (b"avro.schema", schema, b"avro.codec", codec)))
    return b"".join((b"Obj\x01", long(2), entries, long(0), SYNC, long(number), _sized(value), SYNC))


def _sized(data: bytes) -> bytes:
    return long(len(data)) + data


def long(number: int) -> bytes:
    """A number as Avro has it."""
    left = number << 1 if number >= 0 else (~number << 1) | 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*encoded, left))


# fastavro takes numbers of more bits than the specification has, counts branches from the end, and does not compare a
# block with its size. To refuse them each value would have to be gone through twice; they do no harm, but in values of
# recursive schemas, which are gone through.
_TAKEN: Final = (
    "a number of more than 64 bits",
    "a number of more than 32 bits is not a valid int",
    ": no branch -",
    ": a block that does not end where it says",
)
_LEFT_OUT: Final = (": not UTF-8 text", ": no symbol ")
"""Faults that are permitted in a field that the reader does not want."""


def _is_well_formed(value: bytes, case: _Case, taken: Sequence[str]) -> bool:
    """Whether what was taken for a value is one, to its last byte; no other faults than the `taken` may be in it."""
    try:
        end = walk(value, 0, case.schema)
    except BrokenValue as error:
        require(any(each in str(error) for each in taken), f"a value was read that is broken: {error}", value)
        return False
    require(end == len(value), "bytes behind a value were ignored", value)
    return True
