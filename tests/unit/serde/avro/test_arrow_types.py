"""Avro bodies as Arrow batches: what `AvroDeserializer` reads, in columns."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import uuid
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing.util import assert_that, equal_to
from fastavro import schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.model import Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.avro.arrow import AvroToArrow
from rmqio.serde.registry import FolderRegistry, MemoryRegistry, RegistryUnavailable, UnknownSchema
from tests.helpers.avro_values import Draw, Model, values
from tests.helpers.records import record_of

UTC = datetime.UTC


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def record(name: str = "R", /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def written(schema: Any, *elements: Any, **arguments: Any) -> list[Record]:
    """Records, one at each offset from 0."""
    serializer = AvroSerializer(schema, **arguments)
    return [record_of(serializer(each).body)._replace(queue_offset=n) for n, each in enumerate(elements)]


def body_of(schema: Any, value: Any) -> Record:
    """Written by fastavro, which writes also what ours refuses to."""
    stream = BytesIO()
    schemaless_writer(stream, schema, value)
    return record_of(stream.getvalue())


# ---- types ----------------------------------------------------------------------------------------------------------

FIXED = {"type": "fixed", "name": "F", "size": 3}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 3}
FIXED_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
NO_DURATION = {"type": "fixed", "name": "N", "size": 3, "logicalType": "duration"}
ENUM = {"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}
LINE = record("Line", sku="string", quantity=["null", "int"])
AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ONE_LINE = {"sku": "a", "quantity": None}
TWELVE = decimal.Decimal("12.34")
NOON = datetime.datetime(2024, 2, 29, 12, 30, 1, 5000)
PRECISE = NOON.replace(microsecond=5_678)
ARROW_LINE = pa.struct([pa.field("sku", pa.string(), False), pa.field("quantity", pa.int32())])
# Avro, Arrow, a value as it is written, and as Arrow gives it where that is not the same
TYPES: list[tuple[Any, Any, Any, Any]] = [
    ("boolean", pa.bool_(), True, ...),
    ("int", pa.int32(), -(2**31), ...),
    ("long", pa.int64(), 2**63 - 1, ...),
    ("float", pa.float32(), 1.5, ...),
    ("double", pa.float64(), 0.1, ...),
    ("string", pa.string(), "省", ...),
    ("bytes", pa.binary(), b"\x00\xff", ...),
    (FIXED, pa.binary(), b"abc", ...),
    (NO_DURATION, pa.binary(), b"abc", ...),
    (ENUM, pa.string(), "PAID", ...),
    ({"type": "long"}, pa.int64(), 5, ...),
    (logical("bytes", "decimal", precision=4, scale=2), pa.decimal128(4, 2), TWELVE, ...),
    (logical("bytes", "decimal", precision=38), pa.decimal128(38, 0), decimal.Decimal(10**38 - 1), ...),
    (FIXED_DECIMAL, pa.decimal128(9, 3), decimal.Decimal("-1.500"), ...),
    (logical("int", "date"), pa.date32(), NOON.date(), ...),
    (logical("int", "time-millis"), pa.time32("ms"), NOON.time(), ...),
    (logical("long", "time-micros"), pa.time64("us"), PRECISE.time(), ...),
    (logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=UTC), ...),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), PRECISE.replace(tzinfo=UTC), ...),
    (logical("long", "local-timestamp-millis"), pa.timestamp("ms"), NOON, ...),
    (logical("long", "local-timestamp-micros"), pa.timestamp("us"), PRECISE, ...),
    (logical("string", "uuid"), pa.string(), AN_ID, str(AN_ID)),
    (FIXED_UUID, pa.binary(), AN_ID, AN_ID.bytes),
    (logical("long", "no-such-type"), pa.int64(), 7, ...),
    ({"type": "array", "items": "long"}, pa.list_(pa.field("element", pa.int64(), False)), [1, 2], ...),
    ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.field("element", pa.int64())), [1, None], ...),
    (
        {"type": "map", "values": logical("int", "date")},
        pa.map_(pa.string(), pa.field("value", pa.date32(), False)),
        {"a": NOON.date()},
        [("a", NOON.date())],
    ),
    ({"type": "map", "values": ["long", "null"]}, pa.map_(pa.string(), pa.int64()), {"a": None}, [("a", None)]),
    (LINE, ARROW_LINE, ONE_LINE, ...),
    (
        {"type": "array", "items": {"type": "map", "values": LINE}},
        pa.list_(pa.field("element", pa.map_(pa.string(), pa.field("value", ARROW_LINE, False)), False)),
        [{"x": ONE_LINE}, {}],
        [[("x", ONE_LINE)], []],
    ),
]  # fmt: skip
NAMES = [f"{number}-{str(kind)[:30]}" for number, (_, kind, _, _) in enumerate(TYPES)]


@pytest.mark.parametrize(("avro", "arrow", "value", "expected"), TYPES, ids=NAMES)
def test_a_type_with_and_without_null(avro: Any, arrow: Any, value: Any, expected: Any) -> None:
    expected = value if expected is ... else expected
    plain = AvroToArrow(record(a=avro))
    assert plain.schema == pa.schema([pa.field("a", arrow, False)])
    batch = plain(written(record(a=avro), {"a": value}, {"a": value}))
    batch.validate(full=True)
    assert batch.schema == plain.schema
    assert batch.to_pylist() == [{"a": expected}] * 2
    for union in (["null", avro], [avro, "null"]):
        optional = AvroToArrow(record(a=union))
        assert optional.schema == pa.schema([pa.field("a", arrow, True)])
        batch = optional(written(record(a=union), {"a": None}, {"a": value}))
        batch.validate(full=True)
        assert batch.to_pylist() == [{"a": None}, {"a": expected}]


def test_null_alone_and_a_union_of_one() -> None:
    schema = record(a="null", b=["null"], c=["long"], d={"type": "null"})
    batch = AvroToArrow(schema)(written(schema, {"a": None, "b": None, "c": 1, "d": None}))
    nothing = pa.field("", pa.null())
    assert batch.schema == pa.schema([nothing.with_name("a"), nothing.with_name("b"), pa.field("c", pa.int64(), False),
                                      nothing.with_name("d")])  # fmt: skip
    assert batch.to_pylist() == [{"a": None, "b": None, "c": 1, "d": None}]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("long", "an Arrow batch needs the schema of a record, not of long"),
        (record(a=["int", "string"]), "R.a: Arrow has columns of one type, and this is a union of 2"),
        (record(a={"type": "array", "items": ["null", "int", "string"]}), r"R.a\[\]: Arrow has columns of one type"),
        (record(a=["null", "R"]), "R.a: Arrow has no type for records within themselves"),
        (record(a=record("B", c={"type": "map", "values": "R"})), r"R.a.c\[\]: Arrow has no type for records within"),
        (record(a=logical("bytes", "decimal", precision=39)), "R.a: a decimal of 39 digits; columns hold up to 38"),
        (record(a=FIXED | {"size": 12, "logicalType": "duration"}), "R.a: Arrow has no type for Avro's durations"),
        (record(a=logical("long", "timestamp-nanos")), "nanoseconds"),
    ],
)
def test_what_arrow_has_no_type_for_is_refused_by_name(schema: Any, text: str) -> None:
    with pytest.raises(LocalError, match=text):
        AvroToArrow(schema)


def test_arguments_are_checked() -> None:
    with pytest.raises(LocalError, match="on_error is 'skip'; it must be 'raise' or 'null'"):
        AvroToArrow(LINE, on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="framing is 'kafka'"):
        AvroToArrow(LINE, framing="kafka")  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="give registry="):
        AvroToArrow(LINE, framing="confluent")
    with pytest.raises(LocalError, match="cast_to: the Arrow type of Line cannot be cast to it: Unsupported cast"):
        AvroToArrow(LINE, cast_to=pa.schema([("sku", pa.string()), ("quantity", pa.timestamp("us"))]))
    for fields in ([("sku", pa.string()), ("number", pa.int32())], [("sku", pa.list_(pa.string()))]):
        with pytest.raises(LocalError, match="cast_to does not have the fields of Line in this order: struct<sku"):
            AvroToArrow(LINE, cast_to=pa.schema(fields))


def test_custom_properties_of_a_schema_are_not_taken_for_types() -> None:
    schema = record(a=ENUM | {"values": {"NEW": 1}, "items": 5, "fields": [1]})
    assert AvroToArrow(schema)(written(schema, {"a": "NEW"})).to_pylist() == [{"a": "NEW"}]


def test_a_type_that_is_named_again() -> None:
    schema = record(a=LINE, b={"type": "array", "items": "Line"}, c=["null", "Line"])
    element = {"a": ONE_LINE, "b": [ONE_LINE], "c": ONE_LINE}
    assert AvroToArrow(schema)(written(schema, element)).to_pylist() == [element]


# ---- beside the deserializer ----------------------------------------------------------------------------------------

LEAVES = [avro for avro, _, _, _ in TYPES if avro == "null" or isinstance(avro, str) or avro["type"] in ("int", "long")]


@st.composite
def models(draw: Draw) -> Model:
    """Of all that Arrow has a type for."""
    number = iter(range(100))

    def node(depth: int) -> Any:
        kind = draw(st.sampled_from(["leaf", "leaf", "named", *(["array", "map", "record"] if depth < 3 else [])]))
        if kind == "leaf":
            decimals = st.integers(1, 38).flatmap(lambda precision: st.builds(
                lambda scale: logical("bytes", "decimal", precision=precision, scale=scale), st.integers(0, precision)
            ))  # fmt: skip
            made: Any = draw(st.sampled_from([*LEAVES, logical("string", "uuid")]) | decimals)
        elif kind == "named":
            made = draw(st.sampled_from([FIXED, FIXED_DECIMAL, FIXED_UUID, ENUM])) | {"name": f"N{next(number)}"}
        elif kind == "record":
            made = some_record(depth + 1)
        else:
            made = {"type": kind, "items" if kind == "array" else "values": node(depth + 1)}
        return draw(st.sampled_from([made, made, ["null", made], [made, "null"]]))

    def some_record(depth: int) -> Any:
        kinds = [node(depth) for _ in range(draw(st.integers(1, 4)))]
        return record(f"R{next(number)}", **{f"f{at}": kind for at, kind in enumerate(kinds)})

    return Model(some_record(0), {})


def in_arrow(node: Any, value: Any) -> Any:
    """A value of AvroDeserializer as Arrow gives it back."""
    if value is None:
        return None
    if isinstance(node, list):
        return in_arrow(next(each for each in node if each != "null"), value)
    if isinstance(value, uuid.UUID):
        return str(value) if node["type"] == "string" else value.bytes
    if isinstance(value, list):
        return [in_arrow(node["items"], each) for each in value]
    if isinstance(value, dict) and node["type"] == "map":
        return [(key, in_arrow(node["values"], each)) for key, each in value.items()]
    if isinstance(value, dict):
        return {each["name"]: in_arrow(each["type"], value[each["name"]]) for each in node["fields"]}
    return value


def same(one: Any, other: Any) -> bool:
    """Also where a number is none."""
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return bool(one == other) and type(one) is type(other)


@given(st.data())
@settings(max_examples=150)
def test_a_batch_holds_what_the_deserializer_gives(data: st.DataObject) -> None:
    model = data.draw(models())
    elements = [element for element, _ in data.draw(st.lists(values(model), max_size=4))]
    records = written(model.root, *elements)
    batch = AvroToArrow(model.root)(records)
    batch.validate(full=True)
    assert batch.schema == AvroToArrow(model.root).schema
    expected = [in_arrow(model.root, AvroDeserializer(model.root)(each)) for each in records]
    assert same(batch.to_pylist(), expected)


def test_years_that_python_has_not_are_columns_all_the_same() -> None:
    schema = record(a=logical("long", "timestamp-millis"), b=logical("int", "date"))
    plain = record(a="long", b="int")
    far = body_of(plain, {"a": 10**15, "b": 2**31 - 1})
    batch = AvroToArrow(schema)([far])
    assert batch.column("a").cast(pa.int64()).to_pylist() == [10**15]
    assert batch.column("b").cast(pa.int32()).to_pylist() == [2**31 - 1]
    with pytest.raises(SerdeError):
        AvroDeserializer(schema)(far)


@pytest.mark.parametrize(
    ("kind", "plain", "value"),
    [
        (logical("int", "time-millis"), "int", 86_400_000),
        (logical("long", "time-micros"), "long", 86_400_000_000),
        (logical("bytes", "decimal", precision=2), "bytes", b"\x64"),
        (logical("bytes", "decimal", precision=2), "bytes", b""),
    ],
)
def test_numbers_that_a_logical_type_cannot_have_are_refused(kind: Any, plain: str, value: Any) -> None:
    bad = body_of(record(a=plain), {"a": value})
    with pytest.raises(SerdeError, match="offset 42"):
        AvroToArrow(record(a=kind))([bad])
    assert AvroToArrow(record(a=kind), on_error="null").decode([bad]).to_pylist() == [None]


def test_more_than_one_part_keeps_the_order() -> None:
    schema = record(a="long")
    records = written(schema, *({"a": n} for n in range(1_001)))
    assert AvroToArrow(schema)(records).column("a").to_pylist() == list(range(1_001))
    assert AvroToArrow(schema).decode(iter(records[:3])).to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
    nothing = AvroToArrow(schema)([])
    assert (nothing.num_rows, nothing.schema) == (0, AvroToArrow(schema).schema)


# ---- evolution and framings -----------------------------------------------------------------------------------------

ONE = record("Order", id="int", gone="string", day=logical("int", "date"), amount="double")
TWO = record(
    "Order",
    amount="double",
    id="long",
    state={"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]},
    day="int",
    due=["null", logical("int", "date")],
    tags={"type": "array", "items": "string"},
)
for field, default in (("state", "NEW"), ("due", None), ("tags", ["a"])):
    next(each for each in TWO["fields"] if each["name"] == field)["default"] = default
WRITTEN = {"id": 1, "gone": "x", "day": datetime.date(1970, 1, 3), "amount": 1.5}
READ = {"amount": 1.5, "id": 1, "state": "NEW", "day": 2, "due": None, "tags": ["a"]}


def test_bare_bodies_of_an_older_schema() -> None:
    records = written(ONE, WRITTEN)
    assert AvroToArrow(TWO, ONE)(records).to_pylist() == [READ]
    with pytest.raises(LocalError, match=r"decimal\(4, 2\) cannot be read as decimal\(4, 1\)"):
        AvroToArrow(*(record(a=logical("bytes", "decimal", precision=4, scale=each)) for each in (1, 2)))


def test_logical_types_are_the_readers_also_where_a_number_is_widened() -> None:
    writer, reader = record(a=logical("int", "date")), record(a=logical("long", "timestamp-millis"))
    batch = AvroToArrow(reader, writer)(written(writer, {"a": datetime.date(1970, 1, 3)}))
    assert batch.column("a").cast(pa.int64()).to_pylist() == [2]


@pytest.fixture(params=["folder", "memory"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: Any = FolderRegistry(tmp_path) if request.param == "folder" else MemoryRegistry()
    made.register("order", json.dumps(ONE))
    made.register("order", json.dumps(TWO))
    return made


@pytest.mark.parametrize("framing", ["single_object", "confluent", "container", "auto"])
def test_each_body_says_what_it_was_written_with(framing: Any, registry: Any) -> None:
    by = ["single_object", "confluent", "container"] if framing == "auto" else [framing]
    newer = READ | {"tags": [], "id": 2**40}
    records = [
        each
        for name in by
        for schema, element in ((ONE, WRITTEN), (TWO, newer), (ONE, WRITTEN))
        for each in written(
            schema, element, framing=name, **({"registry": registry, "subject": "order"} if name == "confluent" else {})
        )
    ]
    made = AvroToArrow("order", framing=framing, registry=registry)
    assert made(records).to_pylist() == [READ, newer, READ] * len(by)
    assert pickle.loads(pickle.dumps(made))(records) == made(records)


def test_a_single_object_of_the_same_schema_needs_no_registry() -> None:
    records = written(LINE, ONE_LINE, framing="single_object")
    assert AvroToArrow(LINE, framing="single_object")(records).to_pylist() == [ONE_LINE]
    other = written(record(a="int"), {"a": 1}, framing="single_object")
    with pytest.raises(SerdeError, match="which is not known here: give registry="):
        AvroToArrow(LINE, framing="single_object")(other)


# ---- what cannot be decoded -----------------------------------------------------------------------------------------


def broken(records: list[Record], *numbers: int) -> list[Record]:
    return [each._replace(body=b"\x02") if n in numbers else each for n, each in enumerate(records)]


def test_the_first_broken_body_is_named() -> None:
    records = broken(written(LINE, *[ONE_LINE] * 500), 321, 400)
    with pytest.raises(SerdeError, match="queue orders/broker-a/3, offset 321: body of 1 bytes does not deserialize"):
        AvroToArrow(LINE)(records)


def test_broken_bodies_as_rows_of_nulls() -> None:
    records = broken(written(LINE, *[ONE_LINE] * 500), 0, 321)
    made = AvroToArrow(LINE, on_error="null")
    assert made.decode(records).to_pylist() == [None if n in (0, 321) else ONE_LINE for n in range(500)]
    batch = made(records)
    batch.validate(full=True)
    assert all(field.nullable for field in batch.schema)
    assert batch.schema == made.schema
    assert batch.to_pylist()[0] == {"sku": None, "quantity": None}
    assert batch.to_pylist()[1] == ONE_LINE


class Away:
    """A registry that cannot be asked."""

    def by_id(self, schema_id: int) -> str:
        raise (UnknownSchema if schema_id == 1 else RegistryUnavailable)("away")


def test_a_registry_that_does_not_answer_is_no_broken_body() -> None:
    made = AvroToArrow(LINE, framing="confluent", registry=Away(), on_error="null")  # type: ignore[arg-type]
    assert made.decode([record_of(b"\0\0\0\0\1x")]).to_pylist() == [None]
    with pytest.raises(RmqioError, match="away"):
        made.decode([record_of(b"\0\0\0\0\2x")])


def test_a_cast_and_values_that_do_not_fit_it() -> None:
    schema = record(a=logical("long", "timestamp-millis"), b={"type": "map", "values": logical("int", "time-millis")})
    micros = pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.map_(pa.string(), pa.int32()))])
    plain = record(a="long", b={"type": "map", "values": "int"})
    records = [body_of(plain, {"a": 2**62 if n == 150 else n, "b": {"x": n}}) for n in range(300)]
    records = [each._replace(queue_offset=n) for n, each in enumerate(records)]
    with pytest.raises(SerdeError, match=r"offset 150: body of .* a value that its Arrow type does not hold"):
        AvroToArrow(schema, cast_to=micros)(records)
    found = AvroToArrow(schema, cast_to=micros, on_error="null").decode(records)
    assert found.type == pa.struct(list(micros))
    assert [n for n, each in enumerate(found.is_null().to_pylist()) if each] == [150]
    assert found[299]["a"].cast(pa.int64()).as_py() == 299_000
    assert found[299]["b"].as_py() == [("x", 299)]


# ---- as a value, and in Beam ----------------------------------------------------------------------------------------


def test_it_is_a_value() -> None:
    made = AvroToArrow(TWO, ONE, on_error="null")
    same_again = pickle.loads(pickle.dumps(made))
    assert same_again == made == AvroToArrow(json.dumps(TWO), json.dumps(ONE), on_error="null")
    assert hash(same_again) == hash(made)
    assert made != AvroToArrow(TWO, ONE)
    assert same_again(written(ONE, WRITTEN)) == made(written(ONE, WRITTEN))
    assert repr(made) == "AvroToArrow(AvroSchema(Order), framing='bare')"


def _numbers(batch: Any) -> list[int]:
    assert isinstance(batch, pa.RecordBatch)
    found: list[int] = batch.column("a").to_pylist()
    return found


def test_batches_in_beam() -> None:
    schema = record(a="long")
    with beam.Pipeline() as pipeline:
        records = pipeline | beam.Create(written(schema, *({"a": n} for n in range(50))))
        batches = records | beam.BatchElements() | beam.Map(AvroToArrow(schema))
        assert_that(batches | beam.FlatMap(_numbers), equal_to(range(50)))
