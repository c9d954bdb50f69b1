"""Short ways to write Avro schemas of records, and RocketMQ records with bodies of these schemas."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from fastavro import schemaless_writer

from rmqio.model import Record
from rmqio.serde.avro import AvroSerializer
from tests.helpers.transforms.records import record_of


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def record(name: str = "R", /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def written(schema: Any, *elements: Any, **arguments: Any) -> list[Record]:
    """Returns records with these elements, one at each offset from 0."""
    serializer = AvroSerializer(schema, **arguments)
    return [record_of(serializer(each).body)._replace(queue_offset=n) for n, each in enumerate(elements)]


def body_of(schema: Any, value: Any) -> Record:
    """Returns a record whose body fastavro has written. It also writes what our serializer refuses."""
    stream = BytesIO()
    schemaless_writer(stream, schema, value)
    return record_of(stream.getvalue())


LINE = record("Line", sku="string", quantity=["null", "int"])
ONE_LINE = {"sku": "a", "quantity": None}
