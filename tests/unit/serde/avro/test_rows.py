"""Avro records as `beam.Row`: a PCollection with a schema, whose elements are coded without pickle."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

import apache_beam as beam
from apache_beam import coders
from apache_beam.testing.util import assert_that, equal_to

from rmqio.errors import LocalError
from rmqio.model import Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from tests.helpers.transforms.records import record_of

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "first", "type": "Line"},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}


def order(number: int) -> dict[str, Any]:
    line = {"sku": "a", "quantity": number}
    return {
        "id": number,
        "customer": None if number % 2 else "x",
        "amount": decimal.Decimal("1.50"),
        "lines": [line],
        "first": line,
        "tags": {"t": 0.5},
    }


def body(number: int) -> bytes:
    return AvroSerializer(ORDER)(order(number)).body


class Decode(beam.DoFn):
    def __init__(self, deserializer: AvroDeserializer) -> None:
        self._deserializer = deserializer

    def process(self, element: bytes) -> list[Any]:
        record: Record = record_of(element)
        return [self._deserializer(record)]


def test_rows_have_a_schema_that_transforms_use_and_coders_take() -> None:
    deserializer = AvroDeserializer(ORDER, to="row")
    coder = coders.registry.get_coder(deserializer.output_type)
    assert isinstance(coder, coders.RowCoder)
    row = deserializer(record_of(body(2)))
    assert AvroSerializer(ORDER)(coder.decode(coder.encode(row))).body == body(2)
    with beam.Pipeline() as pipeline:
        orders = pipeline | beam.Create([body(n) for n in range(4)])
        rows = orders | beam.ParDo(Decode(deserializer)).with_output_types(deserializer.output_type)
        totals = rows | beam.GroupBy("customer").aggregate_field("id", sum, "ids").aggregate_field("amount", sum, "sum")
        assert_that(
            totals | beam.Map(lambda row: (row.customer, row.ids, row.sum)),
            equal_to([(None, 4, decimal.Decimal("3.00")), ("x", 2, decimal.Decimal("3.00"))]),
        )
        assert_that(rows | beam.Select("id") | beam.Map(lambda row: row.id), equal_to([0, 1, 2, 3]), label="ids")


def test_a_row_is_written_as_it_was_read() -> None:
    row = AvroDeserializer(ORDER, to="row")(record_of(body(3)))
    assert AvroSerializer(ORDER)(row).body == body(3)


def of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("int", "to='row' needs the schema of a record, not of int"),
        (of(["int", "string"]), "R.a: Beam's schemas have no type for a union"),
        (of(["null", "R"]), "R.a: Beam's schemas have no recursive rows"),
    ],
)
def test_what_beams_schemas_cannot_say(schema: Any, why: str) -> None:
    with pytest.raises(LocalError) as caught:
        AvroDeserializer(schema, to="row")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "int", "logicalType": "date"}, datetime.date(2020, 1, 2)),
        ({"type": "long", "logicalType": "timestamp-micros"}, datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
    ],
)
def test_logical_types_go_through_a_rows_coder(kind: Any, value: Any) -> None:
    deserializer = AvroDeserializer(of(kind), to="row")
    row = deserializer(record_of(AvroSerializer(of(kind))({"a": value}).body))
    coder = coders.registry.get_coder(deserializer.output_type)
    assert coder.decode(coder.encode(row)).a == value
