"""Typed columns of the format `rocketmq`: Avro bodies on a real broker, in batch and in streaming."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")
pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession

from rmqio.model import Message, MessageQueue
from rmqio.serde.avro import AvroSerializer
from rmqio.serde.registry import FolderRegistry
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def reader(spark: SparkSession, lab: Lab) -> Callable[..., DataFrameReader]:
    def reader(queue: MessageQueue, schema: Any, **options: Any) -> DataFrameReader:
        given = {"nameServer": lab.broker.name_server, "subscribe": queue.topic, "valueFormat": "avro"}
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return spark.read.format("rocketmq").options(**given, valueSchema=text, **options)

    return reader


def send(lab: Lab, queue: MessageQueue, messages: Iterable[Message]) -> None:
    send_all(lab.broker.broker, queue, messages)


def failure(frame: Callable[[], DataFrame]) -> str:
    with pytest.raises(PySparkException) as raised:
        frame().collect()
    return str(raised.value)


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


LINE = record("Line", sku="string", quantity=["null", "int"])
EVERY = record(
    "Every",
    boolean="boolean",
    number="int",
    id="long",
    share="double",
    small="float",
    text="string",
    raw="bytes",
    state={"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
    fixed={"type": "fixed", "name": "F", "size": 2},
    amount=logical("bytes", "decimal", precision=38, scale=2),
    day=logical("int", "date"),
    clock=logical("int", "time-millis"),
    clock_us=logical("long", "time-micros"),
    at=logical("long", "timestamp-millis"),
    at_us=logical("long", "timestamp-micros"),
    local=logical("long", "local-timestamp-millis"),
    uuid=logical("string", "uuid"),
    nothing="null",
    line=LINE,
    lines={"type": "array", "items": ["null", "Line"]},
    tags={"type": "map", "values": {"type": "array", "items": logical("long", "local-timestamp-micros")}},
    maybe=["null", "Line"],
)
NOON = dt.datetime(2024, 2, 29, 12, 30, 1, 5000)
ELEMENT: dict[str, Any] = {
    "boolean": True,
    "number": -5,
    "id": 2**62,
    "share": 0.1,
    "small": 1.5,
    "text": "省",
    "raw": b"\x00\xff",
    "state": "PAID",
    "fixed": b"ab",
    "amount": Decimal("-123456789012345678901234567890123456.78"),
    "day": NOON.date(),
    "clock": NOON.time(),
    "clock_us": NOON.time(),
    "at": NOON.replace(tzinfo=dt.UTC),
    "at_us": NOON.replace(tzinfo=dt.UTC),
    "local": NOON,
    "uuid": UUID(int=7),
    "nothing": None,
    "line": {"sku": "a", "quantity": None},
    "lines": [{"sku": "b", "quantity": 2}, None],
    "tags": {"x": [NOON]},
    "maybe": None,
}
SINCE_MIDNIGHT_MS = ((12 * 60 + 30) * 60 + 1) * 1000 + 5
EXPECTED = ELEMENT | {
    "clock": SINCE_MIDNIGHT_MS,
    "clock_us": SINCE_MIDNIGHT_MS * 1000,
    # collect() silently returns them in the driver's time zone
    "at": NOON.replace(tzinfo=dt.UTC).astimezone().replace(tzinfo=None),
    "at_us": NOON.replace(tzinfo=dt.UTC).astimezone().replace(tzinfo=None),
    "uuid": "00000000-0000-0000-0000-000000000007",
}


# ---- batch ----------------------------------------------------------------------------------------------------------


def test_every_type_arrives(lab: Lab, reader: Callable[..., DataFrameReader]) -> None:
    (queue,) = lab.topic(0)
    send(lab, queue, [AvroSerializer(EVERY)(ELEMENT)] * 3)
    frame = reader(queue, EVERY).load()
    rows = frame.select("queueOffset", "value.*").orderBy("queueOffset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [{"queueOffset": n} | EXPECTED for n in range(3)]
    assert frame.filter("value.line.sku = 'a' AND size(value.lines) = 2 AND value.maybe IS NULL").count() == 3
    assert frame.selectExpr("sum(value.number) total").collect() == [Row(total=-15)]


ORDER = record("Order", id="long", amount="double")


def orders(count: int, schema: Any = ORDER) -> list[Message]:
    serializer = AvroSerializer(schema)
    return [serializer({"id": n, "amount": n / 2}) for n in range(count)]


def test_a_schema_in_a_file_and_only_the_columns_that_are_chosen(
    lab: Lab, reader: Callable[..., DataFrameReader], tmp_path: Path
) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    (queue,) = lab.topic(0)
    send(lab, queue, orders(12_345))
    chosen = reader(queue, str(file), minPartitions=3).schema(
        "value struct<id: bigint, amount: double>, queueOffset long"
    )
    frame = chosen.load()
    assert frame.columns == ["value", "queueOffset"]
    assert frame.filter("value.id = queueOffset AND value.amount = queueOffset / 2").count() == 12_345
    file.unlink()
    assert frame.select("value.id").distinct().count() == 12_345, "the file was read before"
    text = failure(lambda: reader(queue, ORDER).schema("value struct<id: int>").load())
    assert "the column value has the type struct<id:bigint,amount:double>, not struct<id:int>" in text


def test_filters_are_pushed_as_before(lab: Lab, reader: Callable[..., DataFrameReader], spark: SparkSession) -> None:
    queue, other = lab.topic(0, 0)
    for each in (queue, other):
        send(lab, each, orders(100))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reader(queue, ORDER, pushFilters="true").load().filter("queueId = 1 AND queueOffset >= 90")
        assert frame.rdd.getNumPartitions() == 1
        assert sorted(row.id for row in frame.select("value.id").filter("value.id < 95").collect()) == list(
            range(90, 95)
        )
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


NEWER = record("Order", id="long", note=["null", "string"], amount="double", state="string")
NEWER["fields"][1]["default"] = None
NEWER["fields"][3]["default"] = "NEW"
NEWER_ORDER = {"id": 7, "note": "n", "amount": 1.0, "state": "PAID"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    registry = FolderRegistry(tmp_path)
    for schema in (ORDER, NEWER):
        registry.register("order", json.dumps(schema))
    return tmp_path


@pytest.mark.parametrize("framing", ["single_object", "confluent", "auto"])
def test_a_topic_of_two_versions(lab: Lab, reader: Callable[..., DataFrameReader], folder: Path, framing: Any) -> None:
    (queue,) = lab.topic(0)
    more: dict[str, Any] = {"framing": "single_object" if framing == "auto" else framing}
    if framing == "confluent":
        more |= {"registry": FolderRegistry(folder), "subject": "order"}
    old, new = AvroSerializer(ORDER, **more), AvroSerializer(NEWER, **more)
    send(lab, queue, [old({"id": n, "amount": 0.5}) if n % 2 else new(NEWER_ORDER) for n in range(400)])
    frame = reader(queue, "order", valueFraming=framing, schemaRegistry=str(folder)).load()
    rows = frame.select("queueOffset", "value.*").orderBy("queueOffset").collect()
    older = {"note": None, "amount": 0.5, "state": "NEW"}
    assert [row.asDict() for row in rows] == [
        {"queueOffset": n} | (older | {"id": n} if n % 2 else NEWER_ORDER) for n in range(400)
    ]


def test_bare_bodies_of_an_older_schema(lab: Lab, reader: Callable[..., DataFrameReader]) -> None:
    (queue,) = lab.topic(0)
    send(lab, queue, orders(3))
    frame = reader(queue, NEWER, writerSchema=json.dumps(ORDER)).load()
    assert {(row.id, row.state) for row in frame.select("value.*").collect()} == {(n, "NEW") for n in range(3)}


def test_a_body_that_cannot_be_decoded_fails_the_task_or_is_null(
    lab: Lab, reader: Callable[..., DataFrameReader]
) -> None:
    (queue,) = lab.topic(0)
    send(lab, queue, [Message(b"\xff") if n == 4 else each for n, each in enumerate(orders(6))])
    text = failure(lambda: reader(queue, ORDER).load())
    assert f"{queue}, offset 4: body of 1 bytes does not deserialize" in text
    assert "SerdeError" in text
    frame = reader(queue, ORDER, valueErrors="null").load()
    rows = frame.select("queueOffset", "body", "value").orderBy("queueOffset").collect()
    assert [row.queueOffset for row in rows if row.value is None] == [4]
    assert rows[4].body == b"\xff"
    assert [row.id for row in frame.select("value.*").filter("id IS NOT NULL").collect()] == [0, 1, 2, 3, 5]
    assert reader(queue, ORDER).schema("body binary").load().count() == 6, "bodies alone are not decoded"


def test_bad_options_and_schemas_fail_the_load(lab: Lab, reader: Callable[..., DataFrameReader]) -> None:
    (queue,) = lab.topic(1)
    for schema, options, text in (
        (record("R", a=["int", "string"]), {}, "valueSchema: R.a: Arrow has columns of one type"),
        (ORDER, {"valueFraming": "confluent"}, "valueFraming is confluent, which needs schemaRegistry"),
    ):
        with pytest.raises(PySparkException, match=text):
            reader(queue, schema, **options).load()


# ---- stream ---------------------------------------------------------------------------------------------------------


def test_a_stream_has_typed_columns_and_keeps_its_place(lab: Lab, spark: SparkSession, tmp_path: Path) -> None:
    queues = lab.topic(0, 0)
    schemas = FolderRegistry(tmp_path)
    schemas.register("order", json.dumps(ORDER))
    serializer = AvroSerializer(ORDER, framing="single_object")

    def run() -> list[Row]:
        """Runs the query until everything available is read. Returns all rows so far."""
        frame = spark.readStream.format("rocketmq").options(
            nameServer=lab.broker.name_server,
            subscribe=queues[0].topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=30,
            valueFormat="avro",
            valueSchema="order",
            valueFraming="single_object",
            schemaRegistry=str(tmp_path),
        )
        writer = frame.load().select("queueId", "value.*").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        assert query.awaitTermination(at_most(120))
        found: list[Row] = spark.read.parquet(str(tmp_path / "out")).collect()
        return found

    expected = []
    for begin in (0, 50):
        for queue in queues:
            numbers = range(begin, begin + 50)
            send(lab, queue, [serializer({"id": n, "amount": 0.5}) for n in numbers])
            expected += [(queue.queue_id, n, 0.5) for n in numbers]
        assert sorted(map(tuple, run())) == sorted(expected)


def test_a_stream_fails_at_a_body_that_cannot_be_decoded(lab: Lab, spark: SparkSession, tmp_path: Path) -> None:
    (queue,) = lab.topic(0)
    send(lab, queue, [*orders(2), Message(b"\xff")])
    frame = spark.readStream.format("rocketmq").options(
        nameServer=lab.broker.name_server,
        subscribe=queue.topic,
        startingOffsets="earliest",
        valueFormat="avro",
        valueSchema=json.dumps(ORDER),
    )
    writer = frame.load().writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match=f"{queue}, offset 2: body of 1 bytes does not deserialize"):
        query.awaitTermination(at_most(120))
