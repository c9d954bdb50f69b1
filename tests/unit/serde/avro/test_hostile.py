"""Avro that was made to harm its reader: each body is an error of its record, soon and in little memory."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, deserializer
from rmqio.serde.avro.deserializer import MAX_SCHEMA_CHARACTERS
from rmqio.serde.avro.encoding import MAX_DEPTH
from rmqio.serde.avro.schema import MAX_PRECISION
from rmqio.serde.registry import MemoryRegistry
from tests.fuzz.avro_target import container, long
from tests.helpers.own_process import in_own_process
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import in_python

REGISTRY = MemoryRegistry()


def record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": chr(ord("a") + number), "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def doubled(kind: Any, times: int) -> Any:
    """A record of two records of two records."""
    for number in range(times):
        kind = record(f"R{number}", kind, kind["name"] if isinstance(kind, dict) else kind)
    return kind


def chain(length: int) -> dict[str, Any]:
    """Types that each hold the one before, none within another, so that the schema is flat and a value is deep."""
    links = [record(f"R{number}", ["null", f"R{number - 1}"] if number else "int") for number in range(length)]
    fields = [{"name": f"f{number}", "type": link} for number, link in enumerate(links)]
    return {"type": "record", "name": "Chain", "fields": fields}


JUST_PARSED = 450 if sys.version_info < (3, 12) else 1_400
"""Levels of JSON that Python parses, and that are too many for what comes after it."""


def nested(levels: int) -> str:
    """As text: what takes it apart may go deeper than what would write it."""
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


def decimal(**more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", **more}


HARMFUL: list[tuple[str, Any, bytes, str]] = [
    ("a billion records of nothing", doubled("null", 30), b"", "too many records"),
    ("the same by one byte", ["null", doubled("null", 30)], b"\2", "too many records"),
    (
        "the same in an array",
        {"type": "array", "items": record("L", "int", doubled("null", 30))},
        b"\2\2\0",
        "too many",
    ),
    ("an array of nothing", {"type": "array", "items": "null"}, long(10**9) + b"\0", "items that take no bytes"),
    (
        "an array of errors of nothing",
        {"type": "array", "items": {"type": "error", "name": "E", "fields": []}},
        long(10**9) + b"\0",
        "items that take no bytes",
    ),
    ("an array of doubled nothing", {"type": "array", "items": doubled("null", 40)}, b"\2\0", "items that take no"),
    ("a schema that is nested", nested(JUST_PARSED), b"\0", "nested too deeply"),
    ("a flat schema of deep values", chain(300), bytes(299) + b"\2" * 299 + b"\0", f"more than {MAX_DEPTH} records"),
    ("a decimal of many digits", decimal(precision=10**9), b"\2a", f"at most are {MAX_PRECISION}"),
    ("a fixed of no size", {"type": "fixed", "name": "F", "size": "x"}, b"abc", "the size of a fixed is 'x'"),
    ("a fixed of less", {"type": "fixed", "name": "F", "size": -1}, b"abc", "the size of a fixed is -1"),
    ("a name of Avro's own", record("string", ["null", "string"]), b"\2\0", "'string' is a type of Avro's own"),
]


@pytest.mark.parametrize("framing", ["container", "confluent"])
@pytest.mark.parametrize(("schema", "value", "why"), [row[1:] for row in HARMFUL], ids=[row[0] for row in HARMFUL])
@in_own_process
def test_a_schema_that_harms_is_an_error_of_its_record(schema: Any, value: bytes, why: str, framing: Any) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    if framing == "container":
        body = container(text.encode(), value)
    else:
        body = b"\0" + REGISTRY.register("harmful", text).to_bytes(4, "big") + value
    deserializer = AvroDeserializer(framing=framing, registry=REGISTRY)
    tracemalloc.start()
    try:
        with pytest.raises(SerdeError) as caught:
            deserializer(record_of(body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert why in str(caught.value)
    assert peak < 4 << 20


def test_a_large_schema_in_a_body_is_refused() -> None:
    text = json.dumps(chain(2000)).encode()
    assert len(text) > MAX_SCHEMA_CHARACTERS
    with pytest.raises(SerdeError, match=f"more than {MAX_SCHEMA_CHARACTERS} characters"):
        AvroDeserializer(framing="container")(record_of(container(text, bytes(2000))))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (decimal(precision=5, scale=None), b"\2a", b"a"),
        (decimal(precision=True), b"\2a", b"a"),
        ({"type": "int", "logicalType": ["date"]}, b"\2", 1),
        ({"type": "int", "logicalType": {}}, b"\2", 1),
    ],
    ids=lambda each: None,
)
def test_a_logical_type_that_is_none_is_left_out(schema: Any, value: bytes, expected: object) -> None:
    assert AvroDeserializer(schema)(record_of(value)) == expected


def test_what_is_not_harmful_is_read() -> None:
    hollow = record("H", "null", doubled("null", 8), "int")
    assert AvroDeserializer(hollow)(record_of(b"\2"))["c"] == 1
    value = AvroDeserializer(chain(100))(record_of(bytes(99) + b"\2" * 99 + b"\x0e"))["f99"]
    for _ in range(99):
        value = value["a"]
    assert value == {"a": 7}


class Line(NamedTuple):
    sku: str


def test_a_writers_record_that_the_class_does_not_fit_is_an_error_of_the_record() -> None:
    body = container(json.dumps(record("Other", "int")).encode(), b"\2")
    with pytest.raises(SerdeError, match="Line needs sku"):
        AvroDeserializer(framing="container", to=Line)(record_of(body))


def test_a_body_that_ends_within_what_the_reader_leaves_out() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 4}
    for kind, value in ((fixed, b"four"), ("bytes", b"\x08four"), ("double", bytes(8)), ("int", b"\x80\x01")):
        deserializer = AvroDeserializer(record("R", "int"), record("R", "int", kind))
        assert deserializer(record_of(b"\2" + value)) == {"a": 1}
        for length in range(len(value)):
            with pytest.raises(SerdeError, match=r"R\.b"):
                deserializer(record_of(b"\2" + value[:length]))
        with pytest.raises(SerdeError, match="1 bytes are left after a R"):
            deserializer(record_of(b"\2" + value + b"x"))


def test_a_block_whose_size_leads_into_a_value_that_nobody_has_looked_at() -> None:
    """fastavro goes by the size where the reader leaves the block out, and thousands of levels end the process."""
    link = {"name": "next", "type": ["null", "Tree"]}
    blobs = {"name": "blobs", "type": {"type": "map", "values": "bytes"}}
    writer, reader = ({"type": "record", "name": "Tree", "fields": fields} for fields in ([blobs, link], [link]))
    deserializer = AvroDeserializer(reader, writer)
    deep = b"\0" + b"\2\0" * (2 * MAX_DEPTH) + b"\0"
    key, size = long(1) + b"k", long(len(deep))
    entry, end = key + size + deep, b"\0" + b"\0"
    assert deserializer(record_of(long(-1) + long(len(entry)) + entry + end)) == {"next": None}
    with pytest.raises(SerdeError, match="a block that does not end where it says"):
        deserializer(record_of(long(-1) + long(len(key + size)) + entry + end))


@pytest.mark.parametrize(("number", "bits"), [(long(1 << 31), 32), (b"\x80" * 9 + b"\x02", 64)])
def test_a_number_of_more_bits_is_none_where_a_value_is_gone_through(number: bytes, bits: int) -> None:
    deserializer = AvroDeserializer(record("Link", "int", ["null", "Link"]))
    assert deserializer(record_of(long(-1 << 31) + b"\0"))["a"] == -1 << 31
    with pytest.raises(SerdeError, match=f"a number of more than {bits} bits"):
        deserializer(record_of(number + b"\0"))


INT = {"type": "int"}
DATE = {"type": "int", "logicalType": "date"}
MORE_BITS = [  # the writer's type, the reader's, the bytes before the number, and those after it
    pytest.param("int", "int", b"", b"", id="an int"),
    pytest.param(INT, INT, b"", b"", id="an int as a dict"),
    pytest.param(["null", "int"], ["null", "int"], b"\2", b"", id="in a union"),
    pytest.param({"type": "array", "items": "int"}, {"type": "array", "items": "int"}, b"\2", b"\0", id="an array"),
    pytest.param({"type": "map", "values": INT}, {"type": "map", "values": "int"}, b"\2\2k", b"\0", id="in a map"),
    pytest.param(record("S", "int"), record("S", "int"), b"", b"", id="in a record"),
    pytest.param("int", "long", b"", b"", id="read as a long"),
    pytest.param("int", "double", b"", b"", id="read as a double"),
    pytest.param("int", ["null", "float"], b"", b"", id="read as a float or null"),
    pytest.param("int", {"type": "long", "logicalType": "timestamp-millis"}, b"", b"", id="read as a timestamp"),
    pytest.param(DATE, DATE, b"", b"", id="a date"),
    pytest.param({"type": "int", "logicalType": "x"}, {"type": "int", "logicalType": "x"}, b"", b"", id="of no type"),
]


@pytest.mark.parametrize("make", [lambda made: made(), in_python], ids=["C", "Python"])
@pytest.mark.parametrize(("writer", "reader", "before", "after"), MORE_BITS)
def test_an_int_of_more_bits_is_none(writer: Any, reader: Any, before: bytes, after: bytes, make: Any) -> None:
    writer, reader = record("R", "string", writer), record("R", "string", reader)
    moved = {**reader, "fields": reader["fields"][::-1]}
    deserializers = [make(lambda wanted=each: AvroDeserializer(wanted, writer)) for each in (reader, moved)]
    if "date" not in str(writer):
        for number in (-1 << 31, (1 << 31) - 1, 7):
            one, other = (each(record_of(b"\2x" + before + long(number) + after)) for each in deserializers)
            assert one == other
    for number in (1 << 31, (-1 << 31) - 1, 1 << 62):
        of_record = record_of(b"\2x" + before + long(number) + after)
        for each in deserializers:
            with pytest.raises(SerdeError, match=r": R\.b.*: a number of more than 32 bits is not a valid int"):
                each(of_record)
            assert [*each.many([of_record])[1]] == [0]


OPTIONAL = ["null", "int"]
NO_VALUES = [  # the type, the bytes, and why they are no value
    (OPTIONAL, long(-1) + long(5), "no branch -1 in a union of 2"),
    (["int", "string"], long(-2) + long(5), "no branch -2 in a union of 2"),
    (["null", "int", "string"], long(-3), "no branch -3 in a union of 3"),
    ({"type": "array", "items": OPTIONAL}, b"\2" + long(-2) + b"\0", "no branch -2 in a union of 2"),
    ({"type": "map", "values": OPTIONAL}, b"\2\2k" + long(-1) + long(5) + b"\0", "no branch -1 in a union of 2"),
    (record("S", OPTIONAL), long(-1) + long(5), "no branch -1 in a union of 2"),
    ({"type": "enum", "name": "E", "symbols": ["A", "boolean"]}, long(-1), "no symbol -1 in an enum of 2"),
    ("boolean", b"\2", "2 is no boolean, which is 0 or 1"),
    ({"type": "boolean"}, b"\xff", "255 is no boolean, which is 0 or 1"),
    (["null", "boolean"], b"\2\x80", "128 is no boolean, which is 0 or 1"),
    ({"type": "array", "items": "boolean"}, b"\2\2\0", "2 is no boolean, which is 0 or 1"),
    ({"type": "map", "values": "boolean"}, b"\2\2k\3\0", "3 is no boolean, which is 0 or 1"),
    ("string", long(-1), "-1 bytes are announced, 0 are left"),
    ("bytes", long(-3) + b"abc", "-3 bytes are announced, 3 are left"),
    ({"type": "map", "values": "int"}, b"\2" + long(-1) + long(5) + b"\0", "-1 bytes are announced, 2 are left"),
]


@pytest.mark.parametrize("make", [lambda made: made(), in_python], ids=["C", "Python"])
@pytest.mark.parametrize(("kind", "value", "why"), NO_VALUES, ids=[f"{row[0]} {row[2]}" for row in NO_VALUES])
def test_what_is_no_value_is_not_taken_for_another_one(kind: Any, value: bytes, why: str, make: Any) -> None:
    """Read as it was written, in another order, and left out; what an enum that is left out has does not matter."""
    writer = record("R", "string", kind)
    without = [] if "symbol" in why else [record("R", "string")]
    for wanted in (writer, {**writer, "fields": writer["fields"][::-1]}, *without):
        deserializer = make(lambda wanted=wanted: AvroDeserializer(wanted, writer))
        of_record = record_of(b"\2x" + value)
        with pytest.raises(SerdeError, match=rf": R\.b.*: {why}"):
            deserializer(of_record)
        assert [*deserializer.many([of_record])[1]] == [0]


@pytest.mark.parametrize("make", [lambda made: made(), in_python], ids=["C", "Python"])
@pytest.mark.parametrize("schema", ["int", INT, ["null", "int"], {"type": "array", "items": "int"}], ids=str)
def test_an_int_of_more_bits_outside_of_a_record_is_none(schema: Any, make: Any) -> None:
    deserializer = make(lambda: AvroDeserializer(schema))
    before = b"" if schema in ("int", INT) else b"\2"
    after = b"\0" if isinstance(schema, dict) and "items" in schema else b""
    found = deserializer(record_of(before + long(-1 << 31) + after))
    assert found == ([-1 << 31] if after else -1 << 31)
    with pytest.raises(SerdeError, match="a number of more than 32 bits is not a valid int"):
        deserializer(record_of(before + long(1 << 31) + after))


@pytest.mark.parametrize("make", [lambda made: made(), in_python], ids=["C", "Python"])
def test_a_column_of_ints_has_none_of_more_bits(make: Any) -> None:
    pytest.importorskip("pyarrow", reason="columns need pyarrow")
    from rmqio.serde.avro.arrow import AvroToArrow

    records = [record_of(long(number)) for number in (5, 1 << 31)]
    decode = make(lambda: AvroToArrow(record("R", "int"), on_error="null"))
    assert decode.decode(records).to_pylist() == [{"a": 5}, None]
    with pytest.raises(SerdeError, match=r"R\.a: a number of more than 32 bits is not a valid int"):
        make(lambda: AvroToArrow(record("R", "int")))(records)


def test_a_schema_of_ones_own_that_is_nested_too_deeply_says_so() -> None:
    for levels in (2_000, 100_000):  # the first can just be parsed by some versions of Python
        with pytest.raises(LocalError, match=r"nested too deeply|is neither JSON"):
            AvroSchema(nested(levels))


@pytest.mark.parametrize(
    ("owner", "name", "good"),
    [
        pytest.param(AvroDeserializer, "_in_bulk", {0: 1, 2: 2}, id="together"),
        pytest.param(deserializer, "schemaless_reader", {}, id="one by one"),
    ],
)
def test_an_exception_that_nobody_expects_is_counted(
    owner: Any, name: str, good: dict[int, int], monkeypatch: pytest.MonkeyPatch, no_internal_errors: list[int]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise AttributeError("nobody expects it")

    make = (lambda made: made()) if good else in_python
    deserializer = make(lambda: AvroDeserializer('"long"'))
    monkeypatch.setattr(owner, name, broken)
    found, errors = deserializer.many([record_of(body) for body in (b"\2", b"", b"\4")])
    assert found == [*good.values()]
    assert {*errors} == {0, 1, 2} - {*good}
    assert all(isinstance(error, SerdeError) for error in errors.values())
    assert sum(no_internal_errors) == (1 if good else 2)  # an empty body is broken whatever reads it
    no_internal_errors.clear()
