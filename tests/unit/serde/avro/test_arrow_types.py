"""The Arrow type of each Avro type; its columns hold what `AvroDeserializer` reads."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer
from rmqio.serde.avro.arrow import AvroToArrow
from tests.helpers.serde.avro_records import LINE, ONE_LINE, body_of, logical, record, written
from tests.helpers.serde.avro_values import Draw, Model, values

UTC = datetime.UTC

# ---- types ----------------------------------------------------------------------------------------------------------

FIXED = {"type": "fixed", "name": "F", "size": 3}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 3}
FIXED_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
NO_DURATION = {"type": "fixed", "name": "N", "size": 3, "logicalType": "duration"}
ENUM = {"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}
AN_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
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
        (record(a=["int", "string"]), "R.a: Arrow has columns of one type, but this is a union of 2"),
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
    """Draws models of all that Arrow has a type for."""
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
    with pytest.raises(SerdeError, match="offset 42"):
        AvroDeserializer(record(a=kind))(bad)


def test_more_than_one_part_keeps_the_order() -> None:
    schema = record(a="long")
    records = written(schema, *({"a": n} for n in range(1_001)))
    assert AvroToArrow(schema)(records).column("a").to_pylist() == list(range(1_001))
    assert AvroToArrow(schema).decode(iter(records[:3])).to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
    nothing = AvroToArrow(schema)([])
    assert (nothing.num_rows, nothing.schema) == (0, AvroToArrow(schema).schema)
