"""Avro values both ways: what is written is what the specification says, what comes back is what was given."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from fastavro import schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, AvroSerializer, Duration
from rmqio.serde.avro.encoding import MAX_DEPTH
from rmqio.serde.avro.serializer import _Checkers
from rmqio.serde.avro.usual import UNUSUAL, usual
from tests.helpers.transforms.records import record_of

UTC = datetime.UTC
CANARY = "CANARY"


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in fields.items()]}


DECIMAL = logical("bytes", "decimal", precision=6, scale=2)
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
LIST = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}
# schema, value, bytes: those of the specification where it gives them, else by its rules
VALUES: list[tuple[Any, Any, str]] = [
    (record(a="long", b="string"), {"a": 27, "b": "foo"}, "3606666f6f"),
    ({"type": "array", "items": "long"}, [3, 27], "04063600"),
    (["null", "string"], "a", "020261"),
    (["null", "string"], None, "00"),
    ("int", -2, "03"),
    ("int", 2**31 - 1, "feffffff0f"),
    ("long", -(2**63), "ffffffffffffffffff01"),
    ("boolean", True, "01"),
    ("float", 1.5, "0000c03f"),
    ("double", -1.0, "000000000000f0bf"),
    ("bytes", b"\x00\xff", "0400ff"),
    ("string", "省", "06e79c81"),
    ({"type": "map", "values": "int"}, {"a": 1}, "0202610200"),
    (COLOUR, "BLUE", "02"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", "6162"),
    (DECIMAL, decimal.Decimal("1.23"), "027b"),
    (DECIMAL, decimal.Decimal("-1.00"), "029c"),
    (logical("bytes", "decimal", precision=40), decimal.Decimal(10**40 - 1), "221d6329f1c35ca4bfabb9f560ffffffffff"),
    (logical("fixed", "decimal", name="D", size=4, precision=6, scale=2), decimal.Decimal("-0.00"), "00000000"),
    (logical("fixed", "decimal", name="D", size=4, precision=6, scale=2), decimal.Decimal("1.23"), "0000007b"),
    (logical("int", "date"), datetime.date(1970, 1, 2), "02"),
    (logical("int", "date"), datetime.date(1969, 12, 31), "01"),
    (logical("int", "time-millis"), datetime.time(0, 0, 1), "d00f"),
    (logical("long", "time-micros"), datetime.time(0, 0, 0, 1), "02"),
    (logical("long", "timestamp-millis"), datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "d00f"),
    (logical("long", "timestamp-micros"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "02"),
    (logical("long", "local-timestamp-millis"), datetime.datetime(1970, 1, 1, 0, 0, 1), "d00f"),
    (logical("long", "local-timestamp-micros"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1), "02"),
    (logical("string", "uuid"), uuid.UUID(int=1), "48" + str(uuid.UUID(int=1)).encode().hex()),
    (logical("fixed", "uuid", name="U", size=16), uuid.UUID(int=1), "00" * 15 + "01"),
    (logical("fixed", "duration", name="D", size=12), Duration(1, 2, 3), "010000000200000003000000"),
    (["null", DECIMAL], decimal.Decimal("1.23"), "02027b"),
    (["int", "string", record(a="int")], {"a": 1}, "0402"),
    (LIST, {"value": 1, "next": {"value": 2, "next": None}}, "02020400"),
    (logical("long", "no-such-type"), 1, "02"),
    (record(a=["null", "int"]), {"a": None}, "00"),
]


@pytest.mark.parametrize(("schema", "value", "body"), VALUES, ids=lambda each: None)
def test_both_ways(schema: Any, value: Any, body: str) -> None:
    assert AvroSerializer(schema)(value).body.hex() == body
    found = AvroDeserializer(schema)(record_of(bytes.fromhex(body)))
    assert found == value
    assert type(found) is type(value)


NAN = float("nan")
REFUSED: list[tuple[Any, Any, str]] = [
    ("int", 2**31, "a number of more than 32 bits is not a valid int"),
    ("long", -(2**63) - 1, "more than 64 bits"),
    ("int", 1.5, "type float is not int"),
    ("int", True, "type bool is not int"),
    ("double", True, "type bool is not a number"),
    ("double", 2**53 + 1, "more digits than a double has"),
    ("double", 10**400, "too large for a double"),
    ("float", 1e300, "too large for a float"),
    ("boolean", 1, "type int is not boolean"),
    ("string", b"a", "type bytes is not text"),
    ("string", "\ud800", "surrogate"),
    ("bytes", "a", "type str is not bytes"),
    ("null", 0, "type int is not null"),
    (COLOUR, "GREEN", "Colour: is not one of the 2 symbols"),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc", "3 bytes are not 2"),
    ({"type": "array", "items": "int"}, "12", "type str is not an array"),
    ({"type": "array", "items": "int"}, [1, "2"], "array[1]: a value of type str"),
    ({"type": "map", "values": "int"}, {1: 1}, "a key is a value of type int, not text"),
    ({"type": "map", "values": "int"}, {"a": "b"}, "map[]: a value of type str"),
    (record(a="int"), {}, "R.a: is missing, and has no default"),
    (record(a="int"), {"a": 1, "b": 2}, "R: has fields that the schema does not have: b"),
    (record(a="int"), 5, "R: a value of type int is not a record"),
    (record(a=record(b="int") | {"name": "S"}), {"a": {"b": "x"}}, "R.a.b: a value of type str is not int"),
    (["int", "string"], 1.5, "fits no branch of the union of int, string"),
    (DECIMAL, decimal.Decimal("1.234"), "more than 2 digits after the decimal point"),
    (DECIMAL, decimal.Decimal("12345.67"), "more than 6 digits"),
    (DECIMAL, decimal.Decimal("NaN"), "not a finite number"),
    (DECIMAL, 1, "type int is not decimal.Decimal"),
    (logical("int", "date"), datetime.datetime(2020, 1, 1), "type datetime is not datetime.date"),
    (logical("int", "time-millis"), datetime.time(0, 0, 0, 1), "has microseconds, but the schema has milliseconds"),
    (logical("int", "time-millis"), datetime.time(0, tzinfo=UTC), "not datetime.time without a time zone"),
    (logical("long", "timestamp-micros"), datetime.datetime(2020, 1, 1), "not datetime.datetime with a time zone"),
    (logical("long", "timestamp-millis"), datetime.datetime(2020, 1, 1, 0, 0, 0, 1, UTC), "has microseconds"),
    (
        logical("long", "local-timestamp-micros"),
        datetime.datetime(2020, 1, 1, tzinfo=UTC),
        "not datetime.datetime without a time zone",
    ),
    (logical("string", "uuid"), CANARY, "type str is not uuid.UUID"),
    (logical("fixed", "duration", name="D", size=12), Duration(-1, 0, 0), "not from 0 to 2**32 - 1"),
]


@pytest.mark.parametrize(("schema", "value", "why"), REFUSED, ids=lambda each: None)
def test_what_a_schema_cannot_hold_is_refused(schema: Any, value: Any, why: str) -> None:
    with pytest.raises(SerdeError) as caught:
        AvroSerializer(schema)(value)
    assert why in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(("schema", "value", "why"), REFUSED, ids=lambda each: None)
def test_what_is_refused_is_not_the_usual_case_or_fastavro_does_not_write_it(schema: Any, value: Any, why: str) -> None:
    parsed = AvroSchema(schema)
    ready = usual(parsed)
    if ready is not None and (made := ready(value)) is not UNUSUAL:
        with pytest.raises((OverflowError, TypeError, ValueError)):
            schemaless_writer(BytesIO(), parsed.parsed, made)


def test_the_usual_case_is_written_as_after_a_close_look() -> None:
    ordinary = 0
    for schema, value, _ in VALUES:
        parsed = AvroSchema(schema)
        ready = usual(parsed)
        if ready is not None and (made := ready(value)) is not UNUSUAL:
            ordinary += 1
            assert made == value
            usually, closely = BytesIO(), BytesIO()
            schemaless_writer(usually, parsed.parsed, made)
            schemaless_writer(closely, parsed.parsed, _Checkers(parsed).of(parsed.parsed)(value))
            assert usually.getvalue() == closely.getvalue()
    assert ordinary == len(VALUES) - 5, "a recursive schema, -0, and what takes other bytes"


def test_numpys_whole_numbers() -> None:
    numpy = pytest.importorskip("numpy", reason="comes with Beam")
    assert AvroSerializer("long")(numpy.int64(-1)).body == b"\x01"
    assert AvroSerializer(["null", "int"])(numpy.int32(1)).body == b"\x02\x02"


def test_an_element_that_holds_itself_is_refused() -> None:
    element: dict[str, Any] = {"value": 1}
    element["next"] = element
    with pytest.raises(SerdeError, match="nested too deeply, or contains itself"):
        AvroSerializer(LIST)(element)


# schema, body, why
BROKEN: list[tuple[Any, str, str]] = [
    ("int", "", "int: the body ends within it"),
    ("int", "80", "the body ends within it"),
    ("int", "ff" * 11, "a number of more than 64 bits"),
    ("int", "0202", "1 bytes are left after a int"),
    ("string", "0661", "string: 3 bytes are announced, 1 are left"),
    ("string", "0161", "string: -1 bytes are announced"),
    ("string", "02ff", "string: not UTF-8 text: invalid start byte at byte 0 of 1"),
    ("double", "00", "the body ends within a double"),
    (COLOUR, "04", "Colour: no symbol 2 in an enum of 2"),
    (COLOUR, "01", "Colour: no symbol -1 in an enum of 2"),  # fastavro takes it for the last one
    (["null", "int"], "04", "union: no branch 2 in a union of 2"),
    ({"type": "fixed", "name": "F", "size": 2}, "61", "F: the body ends within a fixed"),
    (record(a="int", b="string"), "02", "R.b: the body ends within it"),
    (record(a={"type": "array", "items": "string"}), "0202ff00", "R.a[]: not UTF-8 text"),
    ({"type": "array", "items": "int"}, "04", "array[]: the body ends within it"),
    ({"type": "map", "values": "int"}, "0202ff0200", "map, a key: not UTF-8 text"),
    (logical("string", "uuid"), "02" + b"x".hex(), "a value that its logical type"),
    (logical("int", "time-millis"), "01", "a value that its logical type"),  # fastavro takes it for 00:00:00.999
    (logical("long", "time-micros"), "80e0b2f3830a", "a value that its logical type"),
    (logical("bytes", "decimal", precision=2), "047fff", "a value that its logical type"),  # fastavro rounds it
    (logical("bytes", "decimal", precision=2), "00", "a value that its logical type"),
    (logical("fixed", "decimal", name="D", size=2, precision=2), "7fff", "a value that its logical type"),
    (logical("int", "date"), "feffffff0f", "a value that its logical type"),
]


@pytest.mark.parametrize(("schema", "body", "why"), BROKEN, ids=lambda each: None)
def test_a_broken_body_is_reported_with_its_field(schema: Any, body: str, why: str) -> None:
    with pytest.raises(SerdeError) as caught:
        AvroDeserializer(schema)(record_of(bytes.fromhex(body)))
    assert why in str(caught.value)


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, 1_000_000])
def test_a_body_nested_without_end_is_an_error_and_not_the_end_of_the_process(levels: int) -> None:
    body = bytes.fromhex("0202") * levels + bytes.fromhex("0200")
    deserializer = AvroDeserializer(LIST)
    if levels < MAX_DEPTH:
        assert deserializer(record_of(body))["value"] == 1
    else:
        with pytest.raises(SerdeError, match="more than 200 records, arrays and maps within each other"):
            deserializer(record_of(body))


ANY = record(
    a="long", b=["null", "string", COLOUR], c={"type": "array", "items": {"type": "map", "values": "bytes"}},
    d=DECIMAL, e=logical("long", "timestamp-millis"), f=LIST,
)  # fmt: skip


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_any_body_is_an_element_or_an_error(body: bytes) -> None:
    serializer, deserializer = AvroSerializer(ANY), AvroDeserializer(ANY)
    try:
        element = deserializer(record_of(body))
    except SerdeError:
        return
    assert deserializer(record_of(serializer(element).body)) == element


# ---- typed ----------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Line(NamedTuple):
    sku: str
    price: decimal.Decimal


@dataclass
class Order:
    id: int
    colour: Colour
    lines: list[Line]
    first: Line | None
    by_name: dict[str, Line]
    note: str = "none"


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": DECIMAL}],
}
ORDER = record(
    id="long", colour=COLOUR, lines={"type": "array", "items": LINE}, first=["null", "Line"],
    by_name={"type": "map", "values": "Line"},
)  # fmt: skip
ONE = Line("a", decimal.Decimal("1.23"))


@pytest.mark.parametrize("first", [None, ONE])
def test_records_as_classes_of_the_user(first: Line | None) -> None:
    order = Order(1, Colour.BLUE, [ONE, ONE], first, {"x": ONE})
    without_note = {name: each for name, each in vars(order).items() if name != "note"}
    body = AvroSerializer(ORDER)(without_note).body
    assert AvroDeserializer(ORDER, to=Order)(record_of(body)) == order
    plain = AvroDeserializer(ORDER)(record_of(body))
    assert plain["lines"] == [{"sku": "a", "price": decimal.Decimal("1.23")}] * 2
    assert plain["colour"] == "BLUE"


class Chain(NamedTuple):
    value: int
    next: Chain | None


def test_a_recursive_class() -> None:
    chain = Chain(1, Chain(2, Chain(3, None)))
    body = AvroSerializer(LIST)(chain).body
    assert AvroDeserializer(LIST, to=Chain)(record_of(body)) == chain


class Cat(NamedTuple):
    name: str


class Dog(NamedTuple):
    name: str


class Owner(NamedTuple):
    pet: Cat | Dog | None


PETS = record(pet=["null", *({**record(name="string"), "name": each} for each in ("Cat", "Dog"))])


def test_records_of_a_union_are_told_by_their_name() -> None:
    deserializer = AvroDeserializer(PETS, to=Owner)
    for body, pet in (("00", None), ("020261", Cat("a")), ("040261", Dog("a"))):
        assert deserializer(record_of(bytes.fromhex(body))) == Owner(pet)
    assert AvroSerializer(PETS)({"pet": ("Dog", {"name": "a"})}).body.hex() == "040261"


class Wrong(NamedTuple):
    a: str


class Needs(NamedTuple):
    a: int
    b: int


class NotNull(NamedTuple):
    a: int


class Lacks(enum.Enum):
    RED = 1


class OfEnum(NamedTuple):
    a: Lacks


@pytest.mark.parametrize(
    ("schema", "cls", "why"),
    [
        (record(a="int"), Wrong, "R.a is annotated str, and is int by the schema"),
        (record(a="int"), Needs, "Needs needs b, which R in the schema does not have"),
        (record(a=["null", "int"]), NotNull, "R.a is annotated <class 'int'>, and may be null in the schema"),
        (record(a=COLOUR), OfEnum, "R.a: Lacks lacks the symbols BLUE"),
        (record(a={"type": "array", "items": "int"}), NotNull, "R.a is annotated <class 'int'>, and is an array"),
        (record(a=LINE), NotNull, "and is the record Line in the schema"),
        ("int", int, "it must be dict, 'row', a NamedTuple or a dataclass"),
    ],
    ids=lambda each: None,
)
def test_a_class_that_does_not_go_with_the_schema(schema: Any, cls: Any, why: str) -> None:
    with pytest.raises(LocalError) as caught:
        AvroDeserializer(schema, to=cls)
    assert why in str(caught.value)
