"""The contract of every serializer and deserializer (`rmqio.serde.base`), over one table of them.

A `Case` is a pair of them and what it can hold; each test below is one clause and runs over all cases.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("jsonschema_rs", reason="JSON Schemas need the extra 'json-schema'")

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler
from apache_beam.typehints.row_type import RowTypeConstraint
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio import serde
from rmqio.errors import SerdeError
from rmqio.model import Message, Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.registry import MemoryRegistry
from rmqio.wire.properties import encode_properties

SECRET = "SECRET"
THREADS = 8


@dataclass(frozen=True, eq=False)
class Case:
    """A serializer, a deserializer that reads it, and what they can and cannot hold."""

    name: str
    write: Callable[[], Any]
    read: Callable[[], Any]
    elements: st.SearchStrategy[Any]
    bad_elements: tuple[Any, ...] = ()
    bad_bodies: tuple[bytes, ...] = ()
    is_delimited: bool = False
    """A body that ends early or goes on is none."""
    is_typed: bool = True
    """`output_type` holds for all that is read; where not, it is what the caller expects."""

    @cached_property
    def writer(self) -> Any:
        return self.write()

    @cached_property
    def reader(self) -> Any:
        return self.read()


# ---- elements -------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LONG = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
# No white space at its ends, which separates keys, and none of the characters that separate properties.
KEY = st.lists(st.text("abcXYZ019-_浙é", min_size=1, max_size=5), min_size=1, max_size=3).map(" ".join)

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "first", "type": LINE},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
    ],
}


class LineTuple(NamedTuple):
    sku: str
    count: int  # type: ignore[assignment]  # the name of a method of tuples, as users have it


class OrderTuple(NamedTuple):
    id: int
    customer: str | None
    amount: Decimal
    at: datetime.datetime
    state: str
    first: LineTuple
    lines: list[LineTuple]
    prices: dict[str, float]


@dataclass(frozen=True)
class LineData:
    sku: str
    count: int


@dataclass(frozen=True)
class OrderData:
    id: int
    customer: str | None
    amount: Decimal
    at: datetime.datetime
    state: str
    first: LineData
    lines: list[LineData]
    prices: dict[str, float]


def orders(order: Callable[..., Any], line: Callable[..., Any]) -> st.SearchStrategy[Any]:
    lines = st.builds(line, sku=TEXT, count=st.integers(-(2**31), 2**31 - 1))
    return st.builds(
        order,
        id=LONG,
        customer=st.none() | TEXT,
        amount=st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
        at=st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)),
        state=st.sampled_from(["NEW", "SENT"]),
        first=lines,
        lines=st.lists(lines, max_size=3),
        prices=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    )


GOOD_ORDER: dict[str, Any] = {
    "id": 1, "customer": SECRET, "amount": Decimal("1.50"), "at": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    "state": "NEW", "first": {"sku": SECRET, "count": 1}, "lines": [], "prices": {SECRET: 1.0},
}  # fmt: skip
BAD_ORDERS = tuple(
    {**GOOD_ORDER, **change}
    for change in (
        {"id": SECRET},
        {"id": 2**63},
        {"customer": SECRET.encode()},
        {"amount": Decimal("1.505")},
        {"at": datetime.datetime(2020, 1, 2)},
        {"state": SECRET},
        {"first": {"sku": SECRET}},
        {"first": [SECRET]},
        {"lines": [{"sku": SECRET, "count": SECRET}]},
        {"prices": {SECRET: SECRET}},
        {"prices": {1: 1.0}},
    )
)

# ---- functions of the adapters --------------------------------------------------------------------------------------


def to_hex(element: bytes) -> bytes:
    if not isinstance(element, bytes):
        raise TypeError(f"{element!r} is not bytes")
    return element.hex().encode()


def from_hex(body: bytes) -> bytes:
    try:
        return bytes.fromhex(body.decode())
    except ValueError as error:
        raise ValueError(f"{body!r} is not hexadecimal") from error


# ---- cases ----------------------------------------------------------------------------------------------------------

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
    """`to` and what makes its elements."""
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
pytestmark = pytest.mark.timeout(60)  # nothing hangs
of_all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
few = settings(max_examples=25, derandomize=True, database=None)


def record(message: Message) -> Record:
    """As the broker would hand it out."""
    properties = encode_properties(message, message_id="X")
    return Record("orders", "broker-a", 3, 42, message.body, 0, 0, properties, 0, 0, 0, 0, 0, b"", b"", 0, 0)


def plain(value: Any) -> Any:
    """With the type of each value: == tells neither 1, 1.0 and True apart, nor 0.0 and -0.0."""
    if isinstance(value, beam.Row):
        return ("row", {name: plain(each) for name, each in value.as_dict().items()})
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), plain(vars(value)))
    if isinstance(value, (list, tuple)):
        return (type(value), [plain(each) for each in value])
    return (type(value), str(value)) if isinstance(value, float) else (type(value), value)


# ---- clauses --------------------------------------------------------------------------------------------------------


@of_all_cases
@few
@given(data=st.data())
def test_what_is_written_is_read_back(case: Case, data: st.DataObject) -> None:
    element = data.draw(case.elements)
    found = case.reader(record(case.writer(element)))
    assert plain(found) == plain(element)
    assert holds(found, case.reader.output_type)


@of_all_cases
def test_a_bad_element_is_refused_without_being_quoted(case: Case) -> None:
    for element in case.bad_elements:
        with pytest.raises(SerdeError) as caught:
            case.writer(element)
        assert str(caught.value).startswith(f"element of type {type(element).__qualname__} does not serialize: ")
        assert SECRET not in str(caught.value)


@of_all_cases
def test_a_bad_body_is_refused_by_its_place_without_being_quoted(case: Case) -> None:
    for body in case.bad_bodies:
        with pytest.raises(SerdeError) as caught:
            case.reader(record(Message(body)))
        start = f"queue orders/broker-a/3, offset 42: body of {len(body)} bytes does not deserialize: "
        assert str(caught.value).startswith(start)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("case", [each for each in CASES if each.is_delimited], ids=lambda case: case.name)
@settings(few, max_examples=5)
@given(data=st.data())
def test_a_body_that_ends_early_or_goes_on_is_refused(case: Case, data: st.DataObject) -> None:
    body = case.writer(data.draw(case.elements)).body
    for other in [*(body[:end] for end in range(len(body))), body + SECRET.encode()]:
        with pytest.raises(SerdeError) as caught:
            case.reader(record(Message(other)))
        assert SECRET not in str(caught.value)


@of_all_cases
@settings(few, max_examples=40)
@given(data=st.data())
def test_any_body_is_an_element_of_the_type_or_a_serde_error(case: Case, data: st.DataObject) -> None:
    """Random bytes, and bodies that were right before some of their bytes changed."""
    body = data.draw(st.binary(max_size=40) | mutations(case.writer(data.draw(case.elements)).body))
    try:
        found = case.reader(record(Message(body)))
    except SerdeError:
        return
    assert not case.is_typed or holds(found, case.reader.output_type)


@of_all_cases
@settings(few, max_examples=3)
@given(data=st.data())
def test_a_pickled_copy_is_equal_and_does_the_same_also_after_use(case: Case, data: st.DataObject) -> None:
    element = data.draw(case.elements)
    serializer, deserializer = case.write(), case.read()
    unused = [(copy(serializer), copy(deserializer)) for copy in COPIES]
    stored = record(serializer(element))
    expected = plain(deserializer(stored))
    used = [(copy(serializer), copy(deserializer)) for copy in COPIES]
    for write, read in [*unused, *used]:
        assert (write, read) == (serializer, deserializer)
        assert (hash(write), hash(read)) == (hash(serializer), hash(deserializer))
        assert plain(read(stored)) == plain(deserializer(record(write(element)))) == expected
        assert read.output_type == deserializer.output_type


@of_all_cases
@settings(few, max_examples=1)
@given(data=st.data())
def test_threads_may_share_one(case: Case, data: st.DataObject) -> None:
    """From the first use on, which is when caches are filled; with bad elements between."""
    elements = data.draw(st.lists(case.elements, min_size=30, max_size=30))
    expected = [plain(each) for each in elements]
    serializer, deserializer = case.write(), case.read()

    def work(shift: int) -> list[Any]:
        order = [*range(shift, len(elements)), *range(shift)]
        found: list[Any] = [None] * len(elements)
        for at in order:
            found[at] = plain(deserializer(record(serializer(elements[at]))))
            for bad in case.bad_elements[:1]:
                with pytest.raises(SerdeError):
                    serializer(bad)
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(work, range(0, THREADS * 3, 3)))
    finally:
        sys.setswitchinterval(interval)
    assert results == [expected] * THREADS


COPIES: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value)),
    lambda value: cloudpickle_pickler.loads(cloudpickle_pickler.dumps(value)),
]


def mutations(body: bytes) -> st.SearchStrategy[bytes]:
    """One to three times a byte is replaced, a piece cut out, or bytes are put in."""
    at = st.integers(0, len(body))
    replaced = st.tuples(at, st.just(1), st.binary(min_size=1, max_size=1))
    cut_out = st.tuples(at, st.integers(1, 4), st.just(b""))
    put_in = st.tuples(at, st.just(0), st.binary(min_size=1, max_size=9))

    def changed(edits: list[tuple[int, int, bytes]]) -> bytes:
        result = body
        for start, length, new in edits:
            result = result[:start] + new + result[start + length :]
        return result

    return st.lists(replaced | cut_out | put_in, min_size=1, max_size=3).map(changed)


def holds(value: Any, hint: Any) -> bool:
    """Whether a value is of a type hint; of those that the cases have."""
    if hint is Any:
        return True
    if isinstance(hint, RowTypeConstraint):
        return isinstance(value, beam.Row) and all(
            holds(getattr(value, name), inner) for name, inner in hint._fields  # Beam has no public way
        )  # fmt: skip
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, type(int | str)):
        return any(holds(value, each) for each in inner)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(holds(k, inner[0]) and holds(v, inner[1]) for k, v in value.items())
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list) and all(holds(each, inner[0]) for each in value)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        fields = typing.get_type_hints(hint)
        return type(value) is hint and all(holds(getattr(value, name), each) for name, each in fields.items())
    return type(value) is hint


# ---- configurations -------------------------------------------------------------------------------------------------

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
MAKERS: list[Callable[[], Any]] = [
    *(make for case in CASES for make in (case.write, case.read)),
    lambda: serde.StringDeserializer("gb18030", "replace"),
    lambda: serde.JsonSerializer(deterministic=True, key_fields=["id"], tag_field="kind"),
    lambda: serde.JsonDeserializer(schema={"type": "object"}),
    lambda: serde.SimpleKeyValueDeserializer("id", None),
    lambda: serde.SimpleKeyValueSerializer(None, "address"),
    lambda: AvroDeserializer(RECORD, "long", framing="auto"),
    lambda: AvroSerializer(RECORD, framing="single_object", key_fields=["a"], tag_field="a"),
]


def test_equal_by_configuration_and_by_nothing_else() -> None:
    made, again = [make() for make in MAKERS], [make() for make in MAKERS]
    for each, same in zip(made, again, strict=True):
        assert each == same
        assert hash(each) == hash(same)
        assert len(repr(each)) < 200
    # Cases share writers and readers; of two that differ in their arguments none are equal.
    shown = {repr(each) + repr(getattr(each, "_config", "")) for each in made}
    assert len(set(made)) == len(shown) > len(CASES)


def test_serde_needs_neither_beam_nor_spark_nor_a_socket() -> None:
    heavy = {"apache_beam", "pyspark", "socket", "rmqio.client", "fastavro", "jsonschema_rs"}
    program = f"import sys, rmqio.serde; print(*({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == []
