"""Avro bodies: schemas of options, of files and of registries, and the values of both sides."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rmqio.model import Message
from rmqio.serde.avro import AvroSerializer
from rmqio.serde.registry import FolderRegistry
from rmqio.sql import types
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import avro, avro_openschema, base, decoder_of, encoder_of
from rmqio.sql.formats.avro import schema_of
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.syntax.statements import Option
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.support import decode, encode, fast_row, fields_of, table_with

ROW = SqlType("ROW", elements=(types.BIGINT, types.VARCHAR), names=("x", "y"))
MAP = SqlType("MAP", elements=(types.VARCHAR, types.DATE))
MICROS = SqlType("TIMESTAMP", precision=6)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """Returns a schema with a logical type."""
    return {"type": kind, "logicalType": name, **more}


def record(*fields: tuple[str, Any], **more: Any) -> str:
    """Returns the text of a record's schema."""
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": name, "type": kind, **more} for name, kind in fields]}
    )


def body_of(schema: str, element: dict[str, Any]) -> bytes:
    """Returns the body that a peer writes, here with numbers for times."""
    bare = json.loads(schema)
    for field in bare["fields"]:
        if isinstance(field["type"], dict) and field["type"].get("logicalType", "decimal") != "decimal":
            field["type"] = field["type"]["type"]
    message = AvroSerializer(bare)(element)
    assert isinstance(message, Message)
    return message.body


@pytest.mark.parametrize(
    ("schema", "kind", "given", "expected"),
    [
        ("int", types.BIGINT, 7, 7),
        ("int", types.DOUBLE, 7, 7.0),
        ("long", types.INTEGER, 7, 7),
        ("float", types.DOUBLE, 0.5, 0.5),
        ("double", types.FLOAT, 0.1, 0.10000000149011612),
        ("string", types.VARCHAR, "é", "é"),
        (logical("string", "uuid"), types.VARCHAR, "x", "x"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, types.VARCHAR, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, types.BYTES, b"ab", b"ab"),
        (["null", "int"], types.INTEGER, None, None),
        (["int", "null"], types.INTEGER, 5, 5),
        (logical("int", "date"), types.DATE, 18292, 18292),
        (logical("int", "time-millis"), SqlType("TIME", precision=3), 1500, 1_500_000),
        (logical("long", "time-micros"), types.TIME, 1_500_000, 1_000_000),
        (logical("long", "timestamp-millis"), types.TIMESTAMP, 1500, 1_500_000),
        (logical("long", "timestamp-millis"), types.TIMESTAMP_LTZ, -1, -1000),
        (logical("long", "timestamp-micros"), types.TIMESTAMP, 1_500_999, 1_500_000),
        (logical("long", "timestamp-nanos"), MICROS, 1_500_000_999, 1_500_000),
        (logical("long", "local-timestamp-micros"), MICROS, 1_500_999, 1_500_999),
        (logical("long", "timestamp-millis"), types.BIGINT, 1500, 1500),
        (logical("bytes", "decimal", precision=10, scale=2), types.decimal(10, 2), Decimal("1.50"), Decimal("1.50")),
        (logical("bytes", "decimal", precision=10, scale=2), types.decimal(3, 1), Decimal("1.55"), Decimal("1.6")),
        (logical("bytes", "decimal", precision=10, scale=2), types.decimal(2, 1), Decimal("10.00"), None),
        ("long", types.decimal(10, 2), 7, Decimal("7.00")),
        ({"type": "array", "items": ["null", "long"]}, types.array_of(types.BIGINT), [1, None], [1, None]),
        ({"type": "map", "values": logical("int", "date")}, MAP, None, None),
        (logical("string", "date"), types.VARCHAR, "x", "x"),
        (logical("double", "date"), types.DOUBLE, 1.5, 1.5),
        (logical("boolean", "time-millis"), types.BOOLEAN, True, True),
        (logical("int", "timestamp-nanos"), types.INTEGER, 7, 7),
        (logical("bytes", "decimal", precision=2, scale=3), types.BYTES, b"x", b"x"),
        ({"name": "F", "size": 1, **logical("fixed", "decimal", precision=3)}, types.BYTES, b"x", b"x"),
        (logical("string", "decimal", precision=2), types.VARCHAR, "1.5", "1.5"),
        ({"type": "string", "sqlLogicalType": "date"}, types.VARCHAR, "x", "x"),
    ],
)
def test_reading(schema: Any, kind: SqlType, given: Any, expected: Any) -> None:
    if isinstance(schema, dict) and schema["type"] == "map":
        schema, given, expected = {"type": "map", "values": "int"}, {"a": 1}, {"a": 1}
        kind = SqlType("MAP", elements=(types.VARCHAR, types.INTEGER))
    text = record(("z", "string"), ("a", schema))
    body = body_of(text, {"z": "other", "a": given})
    table = table_with({"a": kind}, format="avro", avro__schema=text)
    found = decode(table, body)
    assert found == (expected,)
    assert type(found[0]) is type(expected)
    assert decoder_of(table, fields_of(table)).exact(body) == found


def test_nested_records_maps_and_arrays() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    text = record(("a", inner), ("b", {"type": "array", "items": "I"}), ("c", ["null", "I"]))
    columns = {"a": ROW, "b": types.array_of(ROW), "c": ROW}
    table = table_with(columns, format="avro", avro__schema=text)
    row = ((1, "p"), [(2, "q"), (3, "r")], None)
    body = encode(table, row)
    assert body == body_of(text, {"a": {"x": 1, "y": "p"}, "b": [{"x": 2, "y": "q"}, {"x": 3, "y": "r"}], "c": None})
    assert decode(table, body) == row
    assert decode(table, body, ["b"]) == (row[1],)


def test_a_field_that_the_schema_does_not_have_is_null() -> None:
    text = record(("a", "int"))
    table = table_with({"b": types.BIGINT, "a": types.BIGINT}, format="avro", avro__schema=text)
    assert decode(table, body_of(text, {"a": 1})) == (None, 1)
    strict = table_with({"b": types.BIGINT.nullable(False)}, format="avro", avro__schema=text)
    with pytest.raises(RowFailure, match="column b: it is NOT NULL, but the body has no value for it"):
        decode(strict, body_of(text, {"a": 1}))


@pytest.mark.parametrize("kind", [types.INTEGER, types.VARCHAR, types.BIGINT, types.array_of(types.INTEGER)])
def test_null_of_a_nullable_field_does_not_fit_a_column_that_is_not_null(kind: SqlType) -> None:
    schema = {types.VARCHAR: "string", types.INTEGER: "int", types.BIGINT: "long"}
    text = record(("a", ["null", schema.get(kind, {"type": "array", "items": ["null", "int"]})]), ("b", "int"))
    table = table_with([("a", kind.nullable(False)), ("b", types.INTEGER)], format="avro", avro__schema=text)
    with pytest.raises(RowFailure, match="column a: it is NOT NULL, but the body has no value for it"):
        decode(table, body_of(text, {"a": None, "b": 1}))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x02\x02\x04ab\x02c", "the body is not Avro of the schema: "),
        (b"\x02", "the body is not Avro of the schema: "),
        (b"\x80\x02\x00", "column a: 128 is out of range of an integer of 8 bits"),
    ],
)
def test_bodies_that_do_not_fit_fail(body: bytes, reason: str) -> None:
    table = table_with({"a": types.TINYINT}, format="avro", avro__schema=record(("a", "int"), ("b", "string")))
    with pytest.raises(RowFailure, match=reason):
        decode(table, body)


_MOST, _LEAST = (1 << 63) - 1, -1 << 63


@pytest.mark.parametrize(
    ("schema", "kind", "number", "reason"),
    [
        (logical("long", "timestamp-millis"), types.TIMESTAMP, _MOST, None),
        (logical("long", "timestamp-millis"), types.TIMESTAMP_LTZ, _LEAST, None),
        (logical("long", "timestamp-millis"), types.TIMESTAMP, 253_402_300_800_000, None),
        (logical("long", "timestamp-millis"), types.TIMESTAMP, -62_135_596_800_001, None),
        (logical("long", "local-timestamp-millis"), SqlType("TIMESTAMP", precision=0), _MOST, None),
        (logical("long", "timestamp-micros"), MICROS, _MOST, None),
        (logical("long", "timestamp-micros"), types.TIMESTAMP, _LEAST, None),
        (logical("long", "local-timestamp-micros"), MICROS, _LEAST, None),
        (logical("long", "timestamp-millis"), types.TIMESTAMP, 1_700_000_000_000_000_000, None),  # nanoseconds
        (logical("int", "date"), types.DATE, 2_932_897, "2932897 days from 1970 are not in the years 1 to 9999"),
        (logical("int", "date"), types.DATE, -1 << 31, "-2147483648 days from 1970 are not in the years 1 to 9999"),
        (logical("int", "time-millis"), SqlType("TIME", precision=3), -1, "-1000 microseconds from midnight are not"),
        (logical("int", "time-millis"), types.TIME, 86_400_000, "86400000000 microseconds from midnight are not in a"),
        (logical("int", "time-millis"), types.TIME, (1 << 31) - 1, "2147483647000 microseconds from midnight are not"),
        (logical("long", "time-micros"), SqlType("TIME", precision=6), _MOST, "9223372036854775807 microseconds from"),
    ],
)
def test_a_time_that_sql_does_not_have_is_a_bad_row(
    schema: Any, kind: SqlType, number: int, reason: str | None
) -> None:
    text = record(("b", schema))
    body = body_of(text, {"b": number})
    nested = record(("b", {"type": "array", "items": schema}))
    tables = [
        (table_with({"b": kind}, format="avro", avro__schema=text), body),
        (table_with({"b": types.array_of(kind)}, format="avro", avro__schema=nested), b"\2" + body + b"\0"),
    ]
    for table, each in tables:
        with pytest.raises(RowFailure, match=f"^column b: {reason or '.* from 1970 are not in the years 1 to 9999'}"):
            decode(table, each)


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("timestamp-millis", 253_402_300_799_999, 253_402_300_799_999_000),
        ("timestamp-micros", -62_135_596_800_000_000, -62_135_596_800_000_000),
        ("timestamp-nanos", _MOST, 9_223_372_036_854_775),
        ("timestamp-nanos", _LEAST, -9_223_372_036_854_776),
    ],
)
def test_the_first_and_the_last_times_are_read(name: str, number: int, expected: int) -> None:
    text = record(("b", logical("long", name)))
    table = table_with({"b": MICROS}, format="avro", avro__schema=text)
    assert decode(table, body_of(text, {"b": number})) == (expected,)


def test_the_schema_of_a_table_is_that_of_flink() -> None:
    columns = [("a", types.BIGINT.nullable(False)), ("b", types.TIMESTAMP), ("c", ROW)]
    assert schema_of(columns) == {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.flink.avro.generated",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", logical("long", "timestamp-millis")], "default": None},
            {
                "name": "c",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "record_c",
                        "namespace": "org.apache.flink.avro.generated",
                        "fields": [
                            {"name": "x", "type": ["null", "long"], "default": None},
                            {"name": "y", "type": ["null", "string"], "default": None},
                        ],
                    },
                ],
                "default": None,
            },
        ],
    }


@pytest.mark.parametrize(
    ("schema", "kind", "value", "reason"),
    [
        ("int", types.BIGINT, 2**40, "a number of more than 32 bits is not a valid int"),
        ("int", types.BIGINT, None, "the schema does not have the row"),
        (logical("long", "timestamp-millis"), MICROS, 1, "column a: the time 00:00:00.000001 has microseconds"),
        (logical("bytes", "decimal", precision=4, scale=1), types.decimal(4, 2), Decimal("1.25"), "more than 1 digits"),
        (logical("bytes", "decimal", precision=2, scale=1), types.decimal(4, 1), Decimal("125.0"), "than 2 digits"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, types.VARCHAR, "B", "not one of the 1 symbols"),
        (logical("int", "time-micros"), types.BIGINT, 2**40, "a number of more than 32 bits is not a valid int"),
    ],
)  # fmt: skip
def test_values_that_the_schema_does_not_have_fail(schema: Any, kind: SqlType, value: Any, reason: str) -> None:
    table = table_with({"a": kind}, format="avro", avro__schema=record(("a", schema)))
    with pytest.raises(ValueFailure, match=reason) as failed:
        encode(table, (value,))
    assert "a" in str(failed.value)


def test_fields_that_are_no_columns_need_a_default() -> None:
    with_default = json.loads(record(("a", "long"), ("b", "string")))
    with_default["fields"][1]["default"] = "x"
    table = table_with({"a": types.BIGINT}, format="avro", avro__schema=json.dumps(with_default))
    assert encode(table, (1,)) == b"\x02\x02x"
    table = table_with({"a": types.BIGINT}, format="avro", avro__schema=record(("a", "long"), ("b", "string")))
    with pytest.raises(Refusal) as refused:
        encoder_of(table, fields_of(table))
    assert refused.value.message == "the schema has the field b, which is not a column and has no default"


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"a": types.BIGINT}, {"avro__schema": "{"}, "avro.schema is not the JSON of a schema"),
        ({"a": types.BIGINT}, {"avro__schema": '"no such type"'}, "the schema is not valid"),
        (
            {"a": types.BIGINT},
            {"avro__schema": '{"type": "record", "name": "r", "fields": 5}'},
            "avro.schema gives no schema: the schema is not valid: a value in it has another type than Avro says",
        ),
        ({"a": types.BIGINT}, {"avro__schema": '"long"'}, "column a: the schema is not a record"),
        ({"a": types.BIGINT}, {"avro__schema": record(("a", "string"))}, "it is BIGINT, and in the schema string"),
        ({"a": types.DATE}, {"avro__schema": record(("a", logical("long", "timestamp-millis")))}, "it is DATE, and in"),
        *(({"a": kind}, {"avro__schema": record(("a", schema))}, f"it is {kind.text}, and in the schema {name}")
          for kind, schema, name in [
            (types.DATE, logical("string", "date"), "string"), (types.DATE, logical("double", "date"), "double"),
            (types.TIME, logical("boolean", "time-millis"), "boolean"), (types.DATE, logical("long", "date"), "long"),
            (types.TIMESTAMP, logical("string", "timestamp-millis"), "string"),
            (MICROS, logical("double", "timestamp-micros"), "double"),
            (MICROS, logical("int", "timestamp-nanos"), "int"),
            (types.decimal(2, 1), logical("bytes", "decimal", precision=1, scale=2), "bytes"),
            (types.decimal(2, 1), logical("string", "decimal", precision=2), "string"),
        ]),
        ({"a": types.BIGINT}, {"avro__schema": record(("a", ["int", "string"]))}, "a union of 2 types"),
        ({"a": types.BIGINT}, {"avro__schema_file": "/no/such.avsc"}, "'/no/such.avsc' cannot be read: No such file"),
        ({"a": SqlType("MAP", elements=(types.BIGINT, types.BIGINT))}, {}, "maps are STRING in Avro, not BIGINT"),
        ({"a": types.BIGINT}, {"schema_registry__url": "http://localhost"}, "write 'format' = 'avro-confluent'"),
        ({"a": types.BIGINT}, {"format": "avro-confluent"}, "needs the option 'avro-confluent.url'"),
        ({"a": types.BIGINT}, {"avro__encoding": "json"}, "avro.encoding is 'json'"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit_their_schema_are_refused(
    columns: dict[str, SqlType], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Refusal) as refused:
        table_with(columns, **{"format": "avro", **options})
    assert reason in refused.value.message


def test_a_table_can_fit_for_writing_only() -> None:
    table = table_with({"a": types.BIGINT}, format="avro", avro__schema=record(("a", "double")))
    assert encode(table, (1,)) == body_of(record(("a", "double")), {"a": 1.0})
    with pytest.raises(Refusal) as refused:
        decoder_of(table, fields_of(table))
    assert refused.value.message == "column a: it is BIGINT, and in the schema double"


def test_a_schema_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(record(("a", "long")))
    table = table_with({"a": types.BIGINT}, format="avro", avro__schema_file=str(file))
    file.unlink()
    assert decode(table, encode(table, (7,))) == (7,)


def test_a_registry_has_the_schemas_of_writers(tmp_path: Path) -> None:
    columns = {"a": types.BIGINT, "t": types.TIMESTAMP}
    options = {"format": "avro-confluent", "avro_confluent__url": str(tmp_path), "avro_confluent__subject": "s"}
    table = table_with(columns, **options)
    row = (7, 1_500_000)
    body = encode(table, row)
    assert body[:1] == b"\0"
    assert '"timestamp-millis"' in FolderRegistry(tmp_path).by_version("s").schema
    assert decode(table, body) == row
    registry = FolderRegistry(tmp_path)
    older = AvroSerializer(record(("t", "string"), ("a", "int")), framing="confluent", registry=registry, subject="x")
    assert decode(table, older({"t": "no time", "a": 3}).body, ["a"]) == (3,)
    with pytest.raises(RowFailure, match=r"the writer's schema of id \d+: column t: it is TIMESTAMP\(3\), and in the"):
        decode(table, older({"t": "no time", "a": 3}).body)
    with pytest.raises(RowFailure, match="the schema of id 1 is unknown"):
        decode(table, b"\0\0\0\0\1\2")
    with pytest.raises(RowFailure, match="the body is not Avro of a registry"):
        decode(table, b"x")


def test_names_with_braces_are_read_by_their_names() -> None:
    table = table_with({"a": types.BIGINT.nullable(False)}, format="avro")
    assert fast_row(decoder_of(table, fields_of(table)), encode(table, (1,))) == (1,)


@pytest.mark.parametrize("kind", ["avro-confluent", "json-confluent", "avro-openschema"])
def test_a_job_does_not_wait_long_for_a_registry(kind: str) -> None:
    """The runner tries again, too: three tries of 5 s suffice."""
    path = "/schema-registry/v1" if kind == "avro-openschema" else ""
    options = FormatOptions({"registry_url": Option(f"{kind}.url", f"http://127.0.0.1:1{path}")})
    registry: Any = {
        "avro-confluent": avro.registry_of,
        "json-confluent": lambda given: base.registry_of(given, kind),
        "avro-openschema": avro_openschema.registry_of,
    }[kind](options)
    assert (registry.timeout_s, registry.retries) == (5.0, 2)
