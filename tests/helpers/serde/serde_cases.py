"""Every pair of a serializer and a deserializer, and the values that it can hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import apache_beam as beam
from hypothesis import strategies as st

from rmqio import serde
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.registry import MemoryRegistry
from tests.helpers.serde.serde_orders import (
    BAD_ORDERS,
    LINE,
    LONG,
    ORDER,
    SECRET,
    TEXT,
    LineData,
    LineTuple,
    OrderData,
    OrderTuple,
    orders,
)


@dataclass(frozen=True, eq=False)
class Case:
    """A serializer, a deserializer that reads its bodies, and what they can and cannot hold."""

    name: str
    write: Callable[[], Any]
    read: Callable[[], Any]
    elements: st.SearchStrategy[Any]
    bad_elements: tuple[Any, ...] = ()
    bad_bodies: tuple[bytes, ...] = ()
    is_delimited: bool = False
    """Whether a body that ends early, or has trailing bytes, is invalid."""
    is_typed: bool = True
    """Whether `output_type` holds for all values that are read. If not, the caller determines the type."""

    @cached_property
    def writer(self) -> Any:
        return self.write()

    @cached_property
    def reader(self) -> Any:
        return self.read()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
# No white space at the ends, which separates keys, and no characters that separate properties.
KEY = st.lists(st.text("abcXYZ019-_浙é", min_size=1, max_size=5), min_size=1, max_size=3).map(" ".join)


def to_hex(element: bytes) -> bytes:
    if not isinstance(element, bytes):
        raise TypeError(f"{element!r} is not bytes")
    return element.hex().encode()


def from_hex(body: bytes) -> bytes:
    try:
        return bytes.fromhex(body.decode())
    except ValueError as error:
        raise ValueError(f"{body!r} is not hexadecimal") from error


REGISTRY = MemoryRegistry()
ORDER_ID = REGISTRY.register("orders", json.dumps(ORDER))
LINE_ID = REGISTRY.register("lines", json.dumps(LINE))
JSON_ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 12},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"], "maxProperties": 2}},
    },
    "required": ["id", "name"],
    "additionalProperties": False,
}
JSON_ORDERS = st.fixed_dictionaries(
    {"id": st.integers(), "name": TEXT},
    optional={"lines": st.lists(st.builds(lambda sku, more: {"sku": sku, "x": more}, TEXT, JSON), max_size=3)},
)
NOT_JSON = (b"", b"SECRET", b'{"SECRET', b'"SECRET" 1', b"[NaN]", b'"SECRET\xff"', b"1e999", b"[" * 100_000)


def avro(framing: str, reading: str, name: str, to: Any, order: Any, line: Any) -> Case:
    """Returns a case. `to` and the two strategies describe its elements."""
    read_with: Any = None if reading == "container" and to is dict else ORDER
    given: Any = {"registry": REGISTRY} if "confluent" in (framing, reading) else {}
    subject: Any = {"subject": "orders"} if framing == "confluent" else {}
    own = {"single_object": b"\xc3\x01" + SECRET.encode() * 2, "confluent": b"\x00\x7f\x00\x00\x01" + SECRET.encode()}
    return Case(
        f"avro {framing} read as {reading} to {name}",
        lambda: AvroSerializer(ORDER, framing=framing, **given, **subject),  # type: ignore[arg-type]
        lambda: AvroDeserializer(read_with, framing=reading, to=to, **given),  # type: ignore[arg-type]
        orders(order, line),
        (*BAD_ORDERS, SECRET, [SECRET], None, {}),
        (b"", b"\x02", SECRET.encode(), b"\xff" * 30, b"\x00" * 4, own.get(framing, b"Obj\x01" + SECRET.encode() * 9)),
        is_delimited=True,
    )


TARGETS: list[tuple[str, Any, Any, Any]] = [
    ("dict", dict, dict, dict),
    ("NamedTuple", OrderTuple, OrderTuple, LineTuple),
    ("dataclass", OrderData, OrderData, LineData),
    ("row", "row", beam.Row, beam.Row),
]
READINGS = [
    ("bare", "bare"),
    ("single_object", "single_object"),
    ("confluent", "confluent"),
    ("container", "container"),
    ("single_object", "auto"),
    ("confluent", "auto"),
    ("container", "auto"),
]
CASES = [
    Case("bytes", serde.BytesSerializer, serde.BytesDeserializer, st.binary(min_size=1), (SECRET, b"", None, [1])),
    Case(
        "string",
        serde.StringSerializer,
        serde.StringDeserializer,
        TEXT.filter(bool),
        (SECRET.encode(), "", f"{SECRET}\ud800", None, 1),
        (b"SECRET\xff", b"\xed\xa0\x80SECRET", b"SECRET\xc3"),
    ),
    Case(
        "string gb18030",
        lambda: serde.StringSerializer("gb18030"),
        lambda: serde.StringDeserializer("gb18030"),
        TEXT.filter(bool),
        (f"{SECRET}\ud800",),
        (b"SECRET\xff", b"SECRET\x81"),
    ),
    Case(
        "string latin-1, replaced",
        lambda: serde.StringSerializer("latin-1", "replace"),
        lambda: serde.StringDeserializer("latin-1"),
        st.text(st.characters(max_codepoint=255), min_size=1),
        (SECRET.encode(),),
    ),
    Case(
        "json",
        serde.JsonSerializer,
        serde.JsonDeserializer,
        JSON,
        ({SECRET}, {(SECRET,): 1}, {SECRET: float("nan")}, {SECRET: "\ud800"}, [SECRET.encode()], object()),
        NOT_JSON,
    ),
    Case(
        "json, sorted, of a type",
        lambda: serde.JsonSerializer(deterministic=True),
        lambda: serde.JsonDeserializer(dict[str, Any]),
        st.dictionaries(TEXT, JSON),
        ({1: SECRET, SECRET: 1},),
        NOT_JSON,
        is_typed=False,
    ),
    Case(
        "json with keys and a tag",
        lambda: serde.JsonSerializer(key_fields=["id"], tag_field="kind"),
        serde.JsonDeserializer,
        st.fixed_dictionaries({"id": st.integers(), "kind": st.none() | KEY}),
        (
            [SECRET],
            {"id": SECRET + " x"},
            {"id": SECRET + "\x01"},
            {"id": 1.5, "x": SECRET},
            {"id": 1, "kind": [SECRET]},
        ),
    ),
    Case(
        "json with a schema",
        lambda: serde.JsonSerializer(schema=JSON_ORDER),
        lambda: serde.JsonDeserializer(dict[str, Any], schema=JSON_ORDER),
        JSON_ORDERS,
        (
            SECRET,
            [SECRET],
            {},
            {"id": SECRET, "name": ""},
            {"id": 1, "name": SECRET * 9},
            {"id": 1, "name": [SECRET]},
            {"id": 1, "name": "", SECRET: 1},
            {"id": 1, "name": "", "lines": [{SECRET: 1}]},
            {"id": {SECRET}},
            {"id": 1, "name": "", "lines": [{"sku": 1, SECRET: 2, "x": 3}]},
        ),
        (*NOT_JSON, b'"SECRET"', b"{}", b'{"id": "SECRET", "name": ""}', b'{"id": 1, "name": "", "SECRET": 1}'),
        is_delimited=True,
    ),
    Case(
        "key/value",
        lambda: serde.SimpleKeyValueSerializer("id", "address"),
        lambda: serde.SimpleKeyValueDeserializer("id", "address"),
        st.fixed_dictionaries({"id": st.none() | KEY, "address": TEXT.filter(bool)}),
        (
            SECRET,
            [SECRET],
            {},
            {"id": SECRET},
            {"id": SECRET, "address": ""},
            {"address": [SECRET]},
            {"address": f"{SECRET}\ud800"},
            {"id": [SECRET], "address": "x"},
            {"id": SECRET + "\x02", "address": "x"},
        ),
        (b"SECRET\xff",),
    ),
    Case(
        "functions",
        lambda: serde.BodySerializer(to_hex),
        lambda: serde.BodyDeserializer(from_hex, bytes),
        st.binary(min_size=1),
        (SECRET, b"", None),
        (b"SECRET", b"SECRET\xff", b"4"),
    ),
    Case(
        "avro long",
        lambda: AvroSerializer("long"),
        lambda: AvroDeserializer("long"),
        LONG,
        (SECRET, True, 1.5, 2**63),
        (b"", b"SECRET", b"\xff" * 11),
        is_delimited=True,
    ),
    *(
        avro(framing, reading, name, to, order, line)
        for framing, reading in READINGS
        for name, to, order, line in TARGETS
    ),
]
