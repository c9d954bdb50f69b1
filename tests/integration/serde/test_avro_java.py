"""Avro exchanged with Java's own library, both ways, random schemas and values; and how a reader's schema reads."""

from __future__ import annotations

import datetime
import json
import math
import re
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.avro.java import avro_command
from bench.common.jvm import find_jdk
from bench.common.process import LineProcess
from bench.common.tally import BenchError
from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, AvroSerializer, Duration
from rmqio.serde.avro.encoding import Framing
from tests.helpers.serde.avro_evolution import readers
from tests.helpers.serde.avro_schemas import schema_texts, schemas
from tests.helpers.serde.avro_values import values
from tests.helpers.transforms.records import record_of

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).resolve().parents[2] / "helpers" / "peers" / "java" / "AvroPeer.java"
FRAMINGS: tuple[Framing, ...] = ("bare", "single_object")
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def enum(name: str, *symbols: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def fixed(name: str, size: int, logical_type: str) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, "logicalType": logical_type}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


class JavaAvro:
    """Java's library, as one long-lived process."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def decode(
        self, bodies: Sequence[bytes], writer: str, reader: str | None = None, framing: str = "bare"
    ) -> dict[str, list[Any]]:
        asked = {"do": "decode", "writer": writer, "reader": reader, "framing": framing}
        return self._encoded(asked | {"bodies": [body.hex() for body in bodies]})

    def generate(self, schema: str, seed: int, count: int) -> dict[str, list[Any]]:
        return self._encoded({"do": "generate", "schema": schema, "seed": seed, "count": count})

    def fingerprint(self, schema: str) -> tuple[str, str]:
        answer = self._process.ask(json.dumps({"do": "fingerprint", "schema": schema}))
        return answer["fingerprint"], answer["canonical"]

    def _encoded(self, asked: dict[str, Any]) -> dict[str, list[Any]]:
        answer = self._process.ask(json.dumps(asked))
        bodies: dict[str, list[Any]] = {framing: list(map(bytes.fromhex, answer[framing])) for framing in FRAMINGS}
        return {"values": list(map(value_of, answer["values"])), **bodies}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAvro]:
    try:
        jdk = find_jdk()
    except BenchError as error:
        pytest.skip(f"no JDK: {error}")
    folder = tmp_path_factory.mktemp("avro")
    with LineProcess("Java's Avro", avro_command(jdk, SOURCE), folder / "java.log", cwd=folder) as process:
        yield JavaAvro(process)


MARKED = {
    "s": str,
    "e": str,
    "b": bytes.fromhex,
    "f": float.fromhex,
    "decimal": Decimal,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "instant": datetime.datetime.fromisoformat,
    "local": datetime.datetime.fromisoformat,
    "uuid": uuid.UUID,
    "duration": lambda text: Duration(*map(int, text.split(","))),
}


def value_of(shown: Any) -> Any:
    """A value as AvroPeer.java shows it."""
    if isinstance(shown, str):
        mark, _, text = shown.partition(":")
        return MARKED[mark](text)  # type: ignore[operator]
    if isinstance(shown, list):
        return list(map(value_of, shown))
    return {name: value_of(each) for name, each in shown.items()} if isinstance(shown, dict) else shown


def require_same(found: Any, wanted: Any) -> None:
    assert is_same(found, wanted), f"{found} is not {wanted}"


def is_same(one: Any, other: Any) -> bool:
    """Whether both are of the same types and values, with every NaN the same and -0.0 not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float):
        return math.isnan(one) == math.isnan(other) and (
            math.isnan(one) or (one == other and math.copysign(1, one) == math.copysign(1, other))
        )
    return bool(one == other)


# ---- random schemas and values --------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=200)
def test_java_reads_what_ours_writes(java: JavaAvro, data: st.DataObject) -> None:
    model = data.draw(schemas())
    text = data.draw(schema_texts(model))
    pairs = data.draw(st.lists(values(model), min_size=1, max_size=4))
    for framing in FRAMINGS:
        serializer, deserializer = AvroSerializer(text, framing=framing), AvroDeserializer(text, framing=framing)
        bodies = [serializer(element).body for element, _ in pairs]
        found = java.decode(bodies, text, framing=framing)
        for number, (_, wanted) in enumerate(pairs):
            require_same(found["values"][number], wanted)
            require_same(deserializer(record_of(bodies[number])), wanted)
            require_same(deserializer(record_of(found[framing][number])), wanted)
            # Java does not keep the order of a map's entries; all else is written in one way only.
            assert found[framing][number] == bodies[number] or '"map"' in text


@given(st.data(), st.integers(0, 2**32))
@settings(max_examples=200)
def test_ours_reads_what_java_writes(java: JavaAvro, data: st.DataObject, seed: int) -> None:
    model = data.draw(schemas())
    text = data.draw(schema_texts(model))
    made = java.generate(text, seed, 8)
    for framing in FRAMINGS:
        deserializer = AvroDeserializer(text, framing=framing)
        for body, wanted in zip(made[framing], made["values"], strict=True):
            require_same(deserializer(record_of(body)), wanted)


@given(st.data())
@settings(max_examples=200)
def test_fingerprints_are_those_of_java(java: JavaAvro, data: st.DataObject) -> None:
    text = data.draw(schema_texts(data.draw(schemas())))
    fingerprint, canonical = java.fingerprint(text)
    assert AvroSchema(text).fingerprint.hex() == fingerprint, canonical


@given(st.data())
@settings(max_examples=200)
def test_another_schema_reads_as_in_java(java: JavaAvro, data: st.DataObject) -> None:
    model = data.draw(schemas(is_plain=True))
    writer = data.draw(schema_texts(model))
    reader = data.draw(schema_texts(data.draw(readers(model))))
    pairs = data.draw(st.lists(values(model), min_size=1, max_size=4))
    for framing in FRAMINGS:
        serializer = AvroSerializer(writer, framing=framing)
        deserializer = AvroDeserializer(reader, writer, framing=framing)
        bodies = [serializer(element).body for element, _ in pairs]
        for body, wanted in zip(bodies, java.decode(bodies, writer, reader, framing)["values"], strict=True):
            require_same(deserializer(record_of(body)), wanted)


NODE = {**record({"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}), "name": "Node"}
LONGER = {
    **record(
        {"name": "below", "type": ["null", "Tree"], "aliases": ["next"]},
        {"name": "v", "type": "double"},
        {"name": "extra", "type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]},
    ),
    "name": "Tree",
    "aliases": ["Node"],
}


def test_another_schema_reads_recursive_values_as_in_java(java: JavaAvro) -> None:
    writer, reader = json.dumps(NODE), json.dumps(LONGER)
    body = AvroSerializer(writer)({"v": 1, "next": {"v": 2, "next": None}}).body
    found = AvroDeserializer(reader, writer)(record_of(body))
    require_same(found, java.decode([body], writer, reader)["values"][0])
    assert found["below"] == {"below": None, "v": 2.0, "extra": [b"\xff"]}


# ---- what random schemas have found ---------------------------------------------------------------------------------

A = record({"name": "x", "type": "int"}) | {"name": "A"}
B = A | {"name": "B"}
FOUND = [
    pytest.param([DATE, "long"], 5, None, id="a long beside a date in a union"),
    pytest.param([DATE, "string"], "x", None, id="text beside a date in a union"),
    pytest.param(["null", array(["int", enum("E", "A")])], ["A"], None, id="an enum in a union in a union"),
    pytest.param(["boolean", fixed("U", 16, "uuid")], uuid.UUID(int=7), None, id="a fixed uuid in a union"),
    pytest.param(["int", array(fixed("D", 12, "duration"))], [Duration(1, 2, 3)], None, id="a duration in one"),
    pytest.param(
        array(record({"name": "a", "type": "bytes", "default": ""})),
        [{"a": b"x"}],
        None,
        id="an array of records with defaults of bytes",
    ),
    pytest.param(
        record({"name": "a", "type": [A, B]}, {"name": "b", "type": ["int", array(["A", "B"])]}),
        {"a": ("A", {"x": 1}), "b": [("B", {"x": 2})]},
        None,
        id="a record of several in an array in a union",
    ),
    pytest.param("int", 1, MILLIS, id="the reader's logical type where a number is widened"),
]


def without_names(value: Any) -> Any:
    """Pairs say of which record a value is when it is written; it is read without."""
    if isinstance(value, dict):
        return {name: without_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(without_names, value))
    return without_names(value[1]) if type(value) is tuple else value


@pytest.mark.parametrize(("schema", "value", "reader"), FOUND)
def test_what_was_wrong_once(java: JavaAvro, schema: Any, value: Any, reader: Any) -> None:
    written, wanted = json.dumps(schema), None if reader is None else json.dumps(reader)
    body = AvroSerializer(written)(value).body
    theirs = java.decode([body], written, wanted)["values"][0]
    if reader is None:
        require_same(theirs, without_names(value))
    require_same(AvroDeserializer(wanted or written, written)(record_of(body)), theirs)


# ---- where the two differ -------------------------------------------------------------------------------------------

ONLY_B = record({"name": "b", "type": "int"})
# The writer's schema, a body, the reader's schema, what ours reads, what Java reads. A text is of the error.
DIFFERENCES = [
    # The specification takes the first branch that matches, promotions included; Java prefers one of the same type.
    pytest.param("int", "0a", ["double", "int"], 5.0, 5, id="first branch: double"),
    pytest.param("string", "0278", ["bytes", "string"], b"x", "s:x", id="first branch: bytes"),
    # Python's floats are doubles: what is read as a float is not rounded to one.
    pytest.param("int", "82808010", "float", 16777217.0, 16777216.0, id="a whole number as float"),
    pytest.param(
        ONLY_B, "02", record({"name": "f", "type": "float", "default": 0.1}), {"f": 0.1},
        {"f": 0.10000000149011612}, id="a float's default",
    ),
    # Python's years end with 9999.
    pytest.param(MILLIS, "80f0fea1fa9d73", None, "logical type", "+10000-01-01", id="the year 10000"),
    # "For purposes of schema resolution, two schemas that are decimal match if the scales and precisions match."
    pytest.param(decimal(4, 2), "027b", decimal(4, 1), "cannot be read", Decimal("12.3"), id="another scale"),
    # Java puts U+FFFD for what is not UTF-8, and of a single object it does not look after the value.
    pytest.param("string", "02ff", None, "not UTF-8", "s:\ufffd", id="no UTF-8"),
    # To Java, names of records that are no branches need not match.
    pytest.param(ONLY_B, "02", ONLY_B | {"name": "Other"}, "mismatch", {"b": 1}, id="another name"),
    # A default is of a union's first branch; since Avro 1.12 of any.
    pytest.param(
        ONLY_B, "02", record({"name": "f", "type": ["null", "int"], "default": 1}), "not a value of its type",
        {"f": 1}, id="a default of the second branch",
    ),
    # Java renames the writer's fields by the reader's aliases, and finds its defaults then lacking.
    pytest.param(
        record({"name": "f", "type": ONLY_B | {"name": "A"}, "default": {"b": 1}}), "02",
        record({"name": "f", "type": {**record({"name": "c", "type": "int", "aliases": ["b"]}), "name": "A"}}),
        {"f": {"c": 1}}, "Invalid default for field f", id="an alias of a field in a default",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "body", "reader", "ours", "theirs"), DIFFERENCES)
def test_differences(java: JavaAvro, writer: Any, body: str, reader: Any, ours: Any, theirs: Any) -> None:
    written, wanted = json.dumps(writer), None if reader is None else json.dumps(reader)
    raw = bytes.fromhex(body)

    def read_by_ours() -> Any:
        return AvroDeserializer(wanted or written, written)(record_of(raw))

    def read_by_java() -> Any:
        return java.decode([raw], written, wanted)["values"][0]

    for read, result in ((read_by_ours, ours), (read_by_java, theirs)):
        if isinstance(result, str) and not result.startswith("s:"):
            with pytest.raises((SerdeError, LocalError, BenchError, ValueError), match=re.escape(result)):
                read()
        else:
            require_same(read(), result.removeprefix("s:") if isinstance(result, str) else result)
