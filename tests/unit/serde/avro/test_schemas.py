"""The sources of schemas, the framing before a value, and how a reader's schema reads what another one wrote."""

from __future__ import annotations

import collections
import datetime
import decimal
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

import fastavro

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, AvroSerializer
from rmqio.serde.avro.compatibility import find_incompatibilities
from rmqio.serde.registry import MemoryRegistry
from rmqio.serde.registry.base import RegistryUnavailable, SchemaRegistryError, UnknownSchema
from tests.helpers.transforms.records import record_of


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


INT = record(field("a", "int"))


# ---- where they come from -------------------------------------------------------------------------------------------


def test_a_dict_text_and_a_file_are_the_same_schema(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(INT, indent=2), "utf-8-sig")
    schemas = [AvroSchema(each) for each in (INT, json.dumps(INT), file, str(file))]
    assert len(set(schemas)) == 1
    assert pickle.loads(pickle.dumps(schemas[0])) == schemas[0]
    file.unlink()
    assert AvroSerializer(schemas[2])({"a": 1}).body == b"\x02", "the file was read once"


def test_a_schema_is_no_longer_the_callers_to_change() -> None:
    given = record(field("a", "int"))
    schema = AvroSchema(given)
    given["fields"].clear()
    assert AvroSerializer(schema)({"a": 1}).body == b"\x02"


NANOS = {"type": "long", "logicalType": "timestamp-nanos"}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"type": "record", "name": "R"}, "is not an Avro schema"),
        ({"type": "recrod", "name": "R", "fields": []}, "is not an Avro schema"),
        ("{", "is neither JSON nor the path of an .avsc file"),
        ("nowhere.avsc", "the schema's file nowhere.avsc cannot be read"),
        (5, "a schema is a dict, a list, JSON text or the path of an .avsc file, not int"),
        ({"type": object()}, "cannot be JSON"),
        (record(field("a", NANOS)), "no type of Python's standard library holds nanoseconds"),
        ({"type": "array", "items": "null"}, "an array of items that take no bytes"),
        ({"type": "array", "items": record()}, "an array of items that take no bytes"),
        (record(field("a", "int", default="x")), "is not an Avro schema: Default value"),
        (record(field("a", ["null", "int"], default=1)), "the default of R.a is not a value of its type"),
        (record(field("a", "int", default=True)), "the default of R.a is not a value of its type"),
    ],
    ids=lambda each: None,
)
def test_what_is_no_schema_or_would_harm(source: Any, why: str) -> None:
    with pytest.raises(LocalError) as caught:
        AvroSchema(source)
    assert why in str(caught.value)


# ---- what precedes a value ------------------------------------------------------------------------------------------

REGISTRY = MemoryRegistry()
ID = REGISTRY.register("r", json.dumps(INT))
FRAMED: list[tuple[str, Callable[[], bytes]]] = [
    ("bare", lambda: b""),
    ("single_object", lambda: b"\xc3\x01" + AvroSchema(INT).fingerprint),
    ("confluent", lambda: b"\x00" + ID.to_bytes(4, "big")),
]


@pytest.mark.parametrize(("framing", "head"), FRAMED, ids=[each for each, _ in FRAMED])
def test_framings(framing: Any, head: Callable[[], bytes]) -> None:
    serializer = AvroSerializer(INT, framing=framing, registry=REGISTRY, subject="r")
    body = serializer({"a": 1}).body
    assert body == head() + b"\x02"
    assert AvroDeserializer(INT, framing=framing, registry=REGISTRY)(record_of(body)) == {"a": 1}
    again = pickle.loads(pickle.dumps(serializer))
    assert again == serializer
    assert again({"a": 1}).body == body


def test_the_fingerprint_is_that_of_the_specification() -> None:
    # of Avro's own file of test data for fingerprints: "int" is 7275d51a3f395c8f as a number, here its bytes
    assert AvroSchema("int").fingerprint.hex() == "8f5c393f1ad57572"


def test_an_object_container_file() -> None:
    body = AvroSerializer(INT, framing="container")({"a": 1}).body
    assert list(fastavro.reader(io.BytesIO(body))) == [{"a": 1}]
    for framing in ("container", "auto"):
        assert AvroDeserializer(framing=framing)(record_of(body)) == {"a": 1}


@pytest.mark.parametrize(
    ("rows", "codec", "why"),
    [([], "null", "exactly"), ([1, 2], "null", "exactly"), ([1], "deflate", "compressed by deflate")],
)
def test_a_container_that_is_not_one_value(rows: list[int], codec: Any, why: str) -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, "int", rows, codec=codec)
    with pytest.raises(SerdeError, match=why):
        AvroDeserializer(framing="auto")(record_of(stream.getvalue()))


def test_auto_tells_them_apart() -> None:
    deserializer = AvroDeserializer(framing="auto", registry=REGISTRY)
    for framing in ("single_object", "confluent", "container"):
        serializer = AvroSerializer(INT, framing=framing, registry=REGISTRY, subject="r")
        assert deserializer(record_of(serializer({"a": 7}).body)) == {"a": 7}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it begins with nothing"),
        (b"\x02", "it begins with 02, which none of single_object"),
        (b"\xc3\x01\x00", "no single object"),
        (b"\x00\x00", "no Confluent framing"),
        (b"\xc3\x01" + bytes(8) + b"\x02", "0000000000000000"),
        (b"\x00\x00\x00\x00\x07\x02", "no schema with the id 7"),
        (b"Obj\x01garbage", "no object container file that can be read"),
    ],
)
def test_bodies_that_do_not_begin_as_they_should(body: bytes, why: str) -> None:
    with pytest.raises(SerdeError) as caught:
        AvroDeserializer(framing="auto", registry=REGISTRY)(record_of(body))
    assert why in str(caught.value)


class Ill(MemoryRegistry):
    def __init__(self, error: type[SchemaRegistryError]) -> None:
        super().__init__()
        self._error = error

    def by_id(self, schema_id: int) -> str:
        raise self._error("it does not answer as it should")


@pytest.mark.parametrize("error", [RegistryUnavailable, SchemaRegistryError])
def test_an_ill_registry_is_no_fault_of_the_record(error: type[SchemaRegistryError]) -> None:
    with pytest.raises(error):
        AvroDeserializer(framing="confluent", registry=Ill(error))(record_of(b"\x00\x00\x00\x00\x07\x02"))


def test_a_subject_of_a_registry() -> None:
    serializer = AvroSerializer("r", framing="confluent", registry=REGISTRY)
    assert AvroDeserializer("r", framing="confluent", registry=REGISTRY)(record_of(serializer({"a": 1}).body)) == {
        "a": 1
    }
    with pytest.raises(UnknownSchema):
        AvroDeserializer("nobody", registry=REGISTRY)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: AvroDeserializer(), "bare Avro does not contain its schema"),
        (lambda: AvroDeserializer(INT, framing="confluent"), "which a registry knows"),
        (lambda: AvroDeserializer(INT, framing="json"), "it must be one of bare, single_object"),  # type: ignore[arg-type]
        (lambda: AvroDeserializer(framing="auto", to="row"), "to='row' needs reader_schema"),
        (lambda: AvroSerializer(INT, framing="confluent"), "give registry= and subject="),
        (lambda: AvroSerializer(INT, framing="confluent", registry=REGISTRY), "Give subject="),
        (lambda: AvroSerializer(INT, key_fields=["b"]), "no 'b'"),
        (lambda: AvroSerializer("int", tag_field="b"), "no 'b'"),
        (lambda: AvroSerializer(INT, key_fields="a"), "it must be several names"),
    ],
    ids=lambda each: None,
)
def test_arguments_that_do_not_go_together(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(LocalError) as caught:
        make()
    assert why in str(caught.value)


def test_keys_and_a_tag() -> None:
    schema = record(field("id", "long"), field("kind", ["null", "string"]))
    serializer = AvroSerializer(schema, key_fields=["id"], tag_field="kind")
    message = serializer({"id": 7, "kind": "new"})
    assert (message.keys, message.tags) == (("7",), "new")
    assert serializer({"id": 7, "kind": None}).tags is None


# ---- evolution ------------------------------------------------------------------------------------------------------

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# writer, reader, written, read
EVOLVED: list[tuple[Any, Any, Any, Any]] = [
    ("int", "long", 1, 1),
    ("long", "double", 1, 1.0),
    ("bytes", "string", b"a", "a"),
    (INT, record(field("b", "int", aliases=["a"])), {"a": 1}, {"b": 1}),
    (INT, record(field("a", "int"), field("b", "string", default="x")), {"a": 1}, {"a": 1, "b": "x"}),
    (record(field("a", "int"), field("b", "int")), INT, {"a": 1, "b": 2}, {"a": 1}),
    (INT, record(field("a", ["null", "int"])), {"a": 1}, {"a": 1}),
    (INT, record(field("d", DECIMAL, default="\u00ff")), {"a": 1}, {"d": decimal.Decimal("-0.01")}),
    (INT, record(field("t", MILLIS, default=0)), {"a": 1}, {"t": EPOCH}),
    ("long", MILLIS, 0, EPOCH),
    (MILLIS, "long", EPOCH, 0),
    (record(field("a", ["null", "long"])), record(field("a", ["null", MILLIS])), {"a": 0}, {"a": EPOCH}),
    ({"type": "array", "items": MILLIS}, {"type": "array", "items": "long"}, [EPOCH], [0]),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        "B",
        "A",
    ),
]


@pytest.mark.parametrize(("writer", "reader", "written", "read"), EVOLVED, ids=lambda each: None)
def test_a_reader_of_another_version(writer: Any, reader: Any, written: Any, read: Any) -> None:
    body = AvroSerializer(writer, framing="single_object")(written).body
    found = AvroDeserializer(reader, writer, framing="single_object")(record_of(body))
    assert found == read
    assert type(found) is type(read)


def test_each_record_has_a_default_of_its_own() -> None:
    reader = record(field("a", "int"), field("l", {"type": "array", "items": "int"}, default=[1]))
    deserializer = AvroDeserializer(reader, INT)
    first, second = (deserializer(record_of(b"\x02")) for _ in range(2))
    first["l"].append(2)
    assert second["l"] == [1]


@pytest.mark.parametrize(
    ("writer", "reader", "body"),
    [
        ("string", "int", b"\x02a"),
        *(("double", reader, bytes(8)) for reader in ("int", "float", "boolean", ["null", "long"])),
        (record(field("a", "double")), record(field("a", "long")), bytes(8)),
        ({"type": "array", "items": "double"}, {"type": "array", "items": "int"}, b"\x02" + bytes(9)),
    ],
)
def test_schemas_that_do_not_resolve_are_an_error_of_the_record(writer: Any, reader: Any, body: bytes) -> None:
    with pytest.raises(SerdeError, match="cannot be read with the reader's schema"):
        AvroDeserializer(reader, writer)(record_of(body))


def test_decimals_of_another_scale_are_refused() -> None:
    with pytest.raises(LocalError, match=r"decimal\(4, 2\) cannot be read as decimal\(4, 1\)"):
        AvroDeserializer({**DECIMAL, "scale": 1}, DECIMAL)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (MILLIS, MILLIS | {"logicalType": "timestamp-micros"}),
        ({"type": "int", "logicalType": "date"}, MILLIS),
        (["null", MILLIS], ["null", MILLIS | {"logicalType": "local-timestamp-millis"}]),
    ],
)
def test_numbers_of_another_unit_are_not_taken_for_each_other(written: Any, read: Any) -> None:
    writer, reader = record(field("a", written)), record(field("a", read))
    with pytest.raises(LocalError, match=r"what was written as .* cannot be read as"):
        AvroDeserializer(reader, writer)
    assert find_incompatibilities(reader, writer)


FIXED = {"type": "fixed", "name": "F", "size": 2}


@pytest.mark.parametrize(
    ("plain", "more", "value"),
    [
        *(("bytes", {"logicalType": "decimal", **each}, b"x") for each in (
            {}, {"precision": 0}, {"precision": "4"}, {"precision": -4}, {"precision": 4, "scale": 5},
            {"precision": 4, "scale": -1}, {"precision": 4, "scale": 1.0}, {"precision": None},
        )),
        (FIXED, {"logicalType": "decimal", "precision": 5}, b"xy"),
        (FIXED, {"logicalType": "decimal", "precision": 4, "scale": 5}, b"xy"),
        (FIXED, {"logicalType": "duration"}, b"xy"),
        (FIXED, {"logicalType": "uuid"}, b"xy"),
        *(("string", {"logicalType": each, "precision": 4}, "x") for each in ("date", "timestamp-millis", "decimal")),
        *(("double", {"logicalType": each}, 1.5) for each in ("date", "timestamp-micros", "timestamp-nanos")),
        *(("long", {"logicalType": each}, 1 << 40) for each in ("date", "time-millis", "decimal")),
        *(("int", {"logicalType": each}, 7) for each in ("timestamp-millis", "time-micros", "local-timestamp-micros")),
        ("boolean", {"logicalType": "time-millis"}, True),
        ("bytes", {"logicalType": "uuid"}, b"x"),
        ({"type": "array", "items": "int"}, {"logicalType": "date"}, [1]),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"logicalType": "uuid"}, "A"),
        ("int", {"logicalType": ["date"]}, 7),
    ],
    ids=str,
)  # fmt: skip
def test_a_logical_type_that_does_not_fit_is_ignored(plain: Any, more: dict[str, Any], value: Any) -> None:
    bare = plain if isinstance(plain, dict) else {"type": plain}
    schema, without = record(field("a", {**bare, **more})), record(field("a", plain))
    body = AvroSerializer(schema)({"a": value}).body
    assert body == AvroSerializer(without)({"a": value}).body
    for writer in (schema, without):
        assert AvroDeserializer(schema, writer)(record_of(body)) == {"a": value}
        assert not find_incompatibilities(schema, writer)
    assert json.loads(AvroSchema(schema).text) == schema, "it is registered as it was given"


def test_types_that_are_shared_are_compiled_once() -> None:
    """Each of 40 records has two fields of the next: a trillion places."""
    kind: Any = "int"
    for number in range(40):
        kind = {"type": "record", "name": f"R{number}", "fields": [field("a", kind), field("b", f"R{number - 1}")]}
        if number == 0:
            kind["fields"][1]["type"] = "int"
    AvroSerializer(kind)
    AvroDeserializer(kind)


def test_a_look_up_makes_no_field() -> None:
    element: dict[str, int] = collections.defaultdict(int, a=1)
    schema = record(field("a", "int"), field("b", "int", default=7))
    body = AvroSerializer(schema)(element).body
    assert AvroDeserializer(schema)(record_of(body)) == {"a": 1, "b": 7}
    assert dict(element) == {"a": 1}


NANOS_LATER = record(field("a", "int"), field("at", {"type": "long", "logicalType": "timestamp-nanos"}))
SECOND_BRANCH = record(field("a", "int"), field("b", ["null", "int"], default=1))


@pytest.mark.parametrize(
    ("written", "rest"),
    [pytest.param(NANOS_LATER, b"\2", id="nanoseconds"), pytest.param(SECOND_BRANCH, b"\2\2", id="a later default")],
)
def test_what_only_the_writer_has_is_none_of_the_readers_business(written: Any, rest: bytes) -> None:
    registry = MemoryRegistry()
    head = bytes([0]) + registry.register("r", json.dumps(written)).to_bytes(4)
    reader = AvroDeserializer(INT, framing="confluent", registry=registry)
    assert reader(record_of(head + b"\2" + rest)) == {"a": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        field("a", {"type": "enum", "name": "E", "symbols": ["A"]}, default="B"),
        field("a", {"type": "fixed", "name": "F", "size": 2}, default="x"),
        field("a", "int", default=2**31),
    ],
    ids=["a symbol", "a size", "a range"],
)
def test_a_default_that_its_type_cannot_hold(wrong: Any) -> None:
    with pytest.raises(LocalError, match=r"the default of R\.a is not a value of its type"):
        AvroSchema(record(wrong))


def test_a_field_goes_before_an_alias_of_its_name() -> None:
    writer = record(field("created", MILLIS | {"logicalType": "none"}))
    reader = record(field("created", MILLIS), field("old", "long", aliases=["created"], default=7))
    body = AvroSerializer(record(field("created", "long")))({"created": 0}).body
    assert AvroDeserializer(reader, writer)(record_of(body))["created"] == EPOCH


@pytest.mark.parametrize(
    "inner", [["int", "string"], {"type": ["int", "string"]}, {"type": {"type": ["int", "string"]}}, []], ids=str
)
def test_a_union_directly_within_a_union_is_refused(inner: object) -> None:
    schema = {"type": "record", "name": "X", "fields": [{"name": "a", "type": ["null", inner]}]}
    with pytest.raises(LocalError, match="given value is not an Avro schema: branch 1 of a union is a union: put"):
        AvroSchema(schema)
    AvroSchema({**schema, "fields": [{"name": "a", "type": ["null", {"type": "array", "items": ["int", "string"]}]}]})
