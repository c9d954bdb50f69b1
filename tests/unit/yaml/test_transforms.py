"""The transforms of Beam YAML on a cluster in memory: what is read, written and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

from rmqio import MessageQueue, Record
from rmqio.errors import LocalError
from rmqio.runners import options
from rmqio.sql.errors import SqlError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.yaml import ReadFromRocketMQ, WriteToRocketMQ
from rmqio.yaml.read import columns_of_avro, columns_of_json
from tests.helpers.transforms.reading import clean_cluster

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}
AVRO = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u"):
            made.create_topic(topic, 2)
        yield made


@pytest.fixture
def pipeline() -> beam.Pipeline:
    return beam.Pipeline(options=options([]))


def read(cluster: InMemoryCluster, **config: Any) -> ReadFromRocketMQ:
    return ReadFromRocketMQ(
        "t", start="earliest", stop="latest", client_factory=InMemoryClientFactory(cluster.name), **config
    )


def stored(cluster: InMemoryCluster, topic: str = "u") -> list[Record]:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
    return [record for queue in queues for record in cluster.stored_queue(queue).slice(0, 1000)]


def test_json_is_read_with_metadata_and_errors(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> None:
    cluster.append("t", b'{"id": 1, "name": "a", "tags": ["x"], "more": 1}', tags="T")
    cluster.append("t", b'{"name": "a"}')
    cluster.append("t", b"{")
    found = pipeline | read(cluster, schema=SCHEMA, metadata={"tag": "tags"}, error_handling={"output": "bad"})
    assert found["rows"].element_type._fields == ("id", "name", "tags", "tag")
    assert_that(
        found["rows"] | beam.Map(lambda row: (row.id, row.name, row.tags, row.tag)), equal_to([(1, "a", ["x"], "T")])
    )
    assert_that(found["bad"] | "bodies" >> beam.Map(lambda bad: bad.row), equal_to(['{"name": "a"}', "{"]), label="bad")
    pipeline.run().wait_until_finish()


@pytest.mark.parametrize(
    ("config", "body", "expected"),
    [
        ({"format": "raw"}, b"\x00x", (b"\x00x",)),
        ({"format": "raw", "columns": {"text": "STRING"}}, "é".encode(), ("é",)),
        ({"format": "CSV", "columns": {"a": "INT", "b": "STRING"}, "format_options": {"csv.field-delimiter": ";"}},
         b"1;x", (1, "x")),
        ({"format": "cef", "columns": {"severity": "INT", "src": "STRING"}}, b"CEF:0|a|b|c|d|e|5|src=x", (5, "x")),
        ({"columns": {"a": "INT", "at": "TIMESTAMP(3)"}, "event_time": "at", "event_time_delay": 1.5},
         b'{"a": 1, "at": "1970-01-01 00:00:02"}', (1, Timestamp(2))),
    ],
)  # fmt: skip
def test_formats(cluster: InMemoryCluster, pipeline: beam.Pipeline, config: Any, body: bytes, expected: Any) -> None:
    cluster.append("t", body)
    rows = pipeline | read(cluster, **config)
    stamped = rows | beam.Map(lambda row, at=beam.DoFn.TimestampParam: (tuple(row), at == 2))
    assert_that(stamped, equal_to([(expected, "event_time" in config)]))
    pipeline.run().wait_until_finish()


def test_rows_are_written(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> None:
    rows = pipeline | beam.Create(
        [beam.Row(id=1, tag="T", key="k 1", where="u"), beam.Row(id=2, tag="T", key="k2", where="u")]
    )
    place: dict[str, Any] = {"client_factory": InMemoryClientFactory(cluster.name)}
    _ = rows | WriteToRocketMQ("t", tags="tag", keys="key", topic_column="where", **place)
    pipeline.run().wait_until_finish()
    assert sorted((json.loads(each.body)["id"], each.tags, each.keys) for each in stored(cluster)) == [
        (1, "T", ("k", "1")),
        (2, "T", ("k2",)),
    ]
    assert {each.body for each in stored(cluster)} == {b'{"id":1}', b'{"id":2}'}


def test_rows_that_cannot_be_written_are_an_output(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> None:
    rows = pipeline | beam.Create([beam.Row(a="x"), beam.Row(a=""), beam.Row(a="y" * (5 << 20))])
    write = WriteToRocketMQ(
        "u", format="raw", error_handling={"output": "bad"}, client_factory=InMemoryClientFactory(cluster.name)
    )
    found = rows | write
    bad = found["bad"] | beam.Map(lambda each: (each.table, len(each.row) > 100))
    assert_that(bad, equal_to([("PCOLLECTION", False), ("u", True)]))
    pipeline.run().wait_until_finish()
    assert [each.body for each in stored(cluster)] == [b"x"]


def test_avro_goes_round(cluster: InMemoryCluster) -> None:
    pytest.importorskip("fastavro")
    place: dict[str, Any] = {"client_factory": InMemoryClientFactory(cluster.name)}
    with beam.Pipeline(options=options([])) as writing:
        rows = writing | beam.Create([beam.Row(id=1, name="a"), beam.Row(id=2, name="é")])
        _ = rows | WriteToRocketMQ("t", format="avro", schema=json.dumps(AVRO), **place)
    with beam.Pipeline(options=options([])) as reading:
        found = reading | read(cluster, format="avro", schema=AVRO)
        assert_that(found | beam.Map(tuple), equal_to([(1, "a"), (2, "é")]))


def test_protobuf_goes_round(cluster: InMemoryCluster) -> None:
    from tests.unit.sql.formats.protobufs import MONEY, descriptor

    place: dict[str, Any] = {"client_factory": InMemoryClientFactory(cluster.name)}
    schema = {"protobuf.descriptor": descriptor(MONEY), "protobuf.message-name": "shop.Money"}
    with beam.Pipeline(options=options([])) as writing:
        rows = writing | beam.Create([beam.Row(units=1, currency="EUR"), beam.Row(units=2, currency="é")])
        _ = rows | WriteToRocketMQ("t", format="protobuf", format_options=schema, **place)
    columns = {"currency": "STRING NOT NULL", "units": "BIGINT NOT NULL"}
    with beam.Pipeline(options=options([])) as reading:
        found = reading | read(cluster, format="protobuf", columns=columns, format_options=schema)
        assert_that(found | beam.Map(tuple), equal_to([("EUR", 1), ("é", 2)]))


def test_columns_of_schemas() -> None:
    assert columns_of_json(SCHEMA) == {"id": "BIGINT NOT NULL", "name": "STRING", "tags": "ARRAY<STRING>"}
    nested = {
        "type": "object",
        "properties": {"x": {"type": ["null", "number"]}, "y": {"type": "string", "format": "date-time"}},
    }
    schema = {
        "type": "object",
        "properties": {"a": nested, "m": {"type": "object", "additionalProperties": {"type": "boolean"}}},
    }
    assert columns_of_json(schema) == {"a": "ROW<`x` DOUBLE, `y` TIMESTAMP_LTZ(6)>", "m": "MAP<STRING, BOOLEAN>"}
    assert columns_of_avro(AVRO) == {"id": "BIGINT NOT NULL", "name": "STRING"}
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "label", "type": {"type": "string", "logicalType": "date"}},
        {"name": "data", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A"]}},
        {"name": "kinds", "type": {"type": "array", "items": "K"}},
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "by_name", "type": {"type": "map", "values": "int"}},
    ]
    assert columns_of_avro({"type": "record", "name": "R", "fields": fields}) == {
        "at": "TIMESTAMP_LTZ(3) NOT NULL", "price": "DECIMAL(10, 2)", "label": "STRING NOT NULL", "data": "BYTES",
        "kind": "STRING NOT NULL",
        "kinds": "ARRAY<STRING> NOT NULL", "inner": "ROW<`x` FLOAT> NOT NULL", "by_name": "MAP<STRING, INT> NOT NULL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "the format json needs schema, or columns"),
        ({"schema": {"type": "string"}}, "for the format json, it must be {type: object, properties: ...}"),
        ({"schema": {"type": "object", "properties": {"a": {"type": "text"}}}},
         "schema: a is {'type': 'text'}; it must be boolean"),
        ({"schema": SCHEMA, "columns": {"a": "INT"}}, "schema and columns both give the columns"),
        ({"columns": {"a": "INTT"}}, "INTT is not a type"),
        ({"format": "jsn", "columns": {"a": "INT"}}, "format is 'jsn': did you mean 'json'?"),
        ({"format": "avro", "schema": "{"}, "schema is not JSON, which an Avro schema must be"),
        ({"columns": {"a": "INT"}, "metadata": ["tagz"]}, "'tagz' is not metadata of a message: did you mean 'tags'?"),
        ({"columns": {"a": "INT"}, "event_time": "b"}, "there is no column b"),
        ({"columns": {"a": "INT"}, "event_time_delay": 1}, "event_time_delay needs event_time"),
        ({"columns": {"a": "INT"}, "error_handling": {"outputs": "x"}}, "it must be {output: NAME}"),
        ({"columns": {"a": "INT"}, "start": "begin"}, "start: 'begin' is not"),
        ({"columns": {"a": "INT"}, "stop": "soon"}, "stop: 'soon' is not"),
        ({"columns": {"a": "INT"}, "security": {"user": "x"}}, "security has no 'user'; it has credentials"),
    ],
)  # fmt: skip
def test_reads_that_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises((LocalError, SqlError), match=re.escape(message)):
        ReadFromRocketMQ("t", **{"start": "earliest", "stop": "latest", "name_server": "127.0.0.1:9876", **config})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tags": "tagg"}, "the rows have no column 'tagg': did you mean 'tag'?"),
        ({"columns": ["idd"]}, "the rows have no column 'idd': did you mean 'id'?"),
        ({"format": "syslog"}, "format is 'syslog'; it can be json, raw, avro"),
        ({"format": "raw"}, "the format raw has one column"),
        ({"schema": {}}, "schema is for format avro"),
        ({"delay_level": "tag"}, "delay_level"),
    ],
)
def test_writes_that_are_refused(pipeline: beam.Pipeline, config: dict[str, Any], message: str) -> None:
    rows = pipeline | beam.Create([beam.Row(id=1, tag="T")])
    with pytest.raises((LocalError, SqlError), match=re.escape(message)):
        rows | WriteToRocketMQ("t", name_server="127.0.0.1:9876", **config)
