"""`df.write.format("rocketmq")`, `df.writeStream.format("rocketmq")` and pushed filters on a real broker."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue, Record
from rmqio.topics import queue_for_key
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import read_to, records_of, stored
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.pipelines.holding import Hold
from tests.helpers.spark.queries import until_by
from tests.helpers.waiting import at_most, missing, until

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def new_topic(lab: Lab, queues: int = 2) -> str:
    return lab.topic(*[0] * queues, name=f"write-{uuid.uuid4().hex[:12]}")[0].topic


def write(frame: DataFrame, lab: Lab, **options: Any) -> None:
    given = {"nameServer": lab.broker.name_server} | options
    frame.write.format("rocketmq").options(**given).mode("append").save()


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        act()
    return str(raised.value)


# ---- batch ----------------------------------------------------------------------------------------------------------


def test_every_column_arrives(lab: Lab, spark: SparkSession) -> None:
    topic = new_topic(lab)
    soon = round(time.time() * 1000) + 3_000
    schema = (
        "body binary, tags string, keys array<string>, properties map<string,string>, shardingKey string, "
        "messageId string, delayTimeLevel int, deliveryTimeMs bigint"
    )
    rows = [
        (b"\x00\xff", "red", ["a", "b"], {"name": "wert ü", "n": "1"}, "s", "0123", None, None),
        (b"bare", None, None, None, None, None, None, None),
        (b"level", None, [], {}, None, None, 1, None),
        (b"time", None, None, None, None, None, None, soon),
    ]
    write(spark.createDataFrame(rows, schema), lab, topic=topic)
    found = {record.body: record for record in stored(lab.client, topic, [row[0] for row in rows])}
    full = found[b"\x00\xff"]
    assert (full.tags, full.keys, full.sharding_key, full.message_id) == ("red", ("a", "b"), "s", "0123")
    assert full.properties.items() >= {"name": "wert ü", "n": "1"}.items()
    bare = found[b"bare"]
    assert (bare.tags, bare.keys, bare.sharding_key, len(bare.message_id)) == (None, (), None, 32)
    assert found[b"level"].store_timestamp_ms - found[b"level"].born_timestamp_ms >= 900
    assert found[b"time"].store_timestamp_ms >= soon - 1_000


def test_the_topic_is_the_options_or_the_columns(lab: Lab, spark: SparkSession) -> None:
    one, other = new_topic(lab), new_topic(lab)
    frame = spark.createDataFrame([("a", one), ("b", other), ("c", other)], "body string, topic string")
    write(frame, lab)
    assert sorted(record.body for record in stored(lab.client, one, [b"a"])) == [b"a"]
    assert sorted(record.body for record in stored(lab.client, other, [b"b", b"c"])) == [b"b", b"c"]
    write(frame, lab, topic=one)
    both = [b"a", b"a", b"b", b"c"]
    assert sorted(record.body for record in stored(lab.client, one, both)) == both


def test_many_batches_arrive_once_each_from_several_tasks(lab: Lab, spark: SparkSession) -> None:
    topic = new_topic(lab, 4)
    frame = spark.range(20_000, numPartitions=3).selectExpr("cast(id AS string) AS body")
    write(frame, lab, topic=topic, maxBatchMessages=300)
    found = stored(lab.client, topic, [b"%d" % n for n in range(20_000)])
    assert sorted(int(record.body) for record in found) == list(range(20_000))
    assert len({record.message_id for record in found}) == 20_000
    assert {record.queue_id for record in found} == set(range(4))


def test_a_sharding_key_leads_to_javas_queue_and_keeps_its_order(lab: Lab, spark: SparkSession) -> None:
    topic = new_topic(lab, 4)
    frame = spark.range(5_000).coalesce(1).selectExpr("cast(id AS string) body", "concat('k', id % 7) shardingKey")
    write(frame, lab, topic=topic, maxBatchMessages=50)
    queues = [MessageQueue(topic, lab.broker.name, queue) for queue in range(4)]
    by_key: dict[str, list[Record]] = {}
    for record in stored(lab.client, topic, [b"%d" % n for n in range(5_000)]):
        by_key.setdefault(record.sharding_key or "", []).append(record)
    assert len(by_key) == 7
    for key, found in by_key.items():
        assert {record.queue for record in found} == {queue_for_key(queues, key)}
        assert [int(record.body) for record in found] == list(range(int(key[1:]), 5_000, 7))


def test_a_topic_is_copied_with_what_its_messages_carry(lab: Lab, spark: SparkSession) -> None:
    (queue,) = lab.topic(0)
    lab.send(queue, 20, make=lambda n: {"tags": f"t{n}", "keys": (f"k{n}",), "properties": {"n": str(n)}})
    copy = new_topic(lab, 1)
    reader = spark.read.format("rocketmq").options(nameServer=lab.broker.name_server, subscribe=queue.topic)
    frame = reader.load().select("body", "tags", "keys", "properties", "shardingKey", "messageId")
    assert "reservedProperties=drop" in refusal(lambda: write(frame, lab, topic=copy)), "the way out is named"
    write(frame, lab, topic=copy, reservedProperties="drop")

    def kept(record: Record) -> tuple[Any, ...]:
        return record.body, record.tags, record.keys, record.get_property("n"), record.message_id

    originals = records_of(read_to(lab.client, queue, 0, 20))
    copies = stored(lab.client, copy, [record.body for record in originals])
    assert [kept(record) for record in copies] == [kept(record) for record in originals]


@pytest.mark.parametrize(
    ("schema", "row", "text"),
    [
        ("body string, boddy string", ("x", "y"), "the column 'boddy' cannot be written; a message takes body, topic"),
        ("tags string", ("x",), "there is no column body"),
        ("body string", (None,), "row 0 (from 0) of partition 0, for topic"),
        ("body string", (None,), "its body is null, and RocketMQ has no message without a body"),
        ("body string", ("x" * (5 << 20),), "the broker's maximum is 4194304"),
        ("body string, properties map<string,string>", ("x", {"TAGS": "y"}), "the name is reserved"),
    ],
)
def test_what_cannot_be_written_is_said(
    lab: Lab, spark: SparkSession, schema: str, row: tuple[Any, ...], text: str
) -> None:
    frame = spark.createDataFrame([row], schema).coalesce(1)
    assert text in refusal(lambda: write(frame, lab, topic=new_topic(lab)))


def test_modes_options_and_topics_are_checked(lab: Lab, spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x",)], "body string")
    writer = frame.write.format("rocketmq").options(nameServer=lab.broker.name_server, topic="t")
    assert "use mode('append')" in refusal(lambda: writer.mode("overwrite").save())
    assert "ErrorIfExists" in refusal(lambda: writer.mode("error").save())
    assert "give the option topic, or a column topic" in refusal(lambda: write(frame, lab))
    assert "there is no option 'topick'" in refusal(lambda: write(frame, lab, topick="t")).lower()
    assert "topic 'no-such-topic' does not exist" in refusal(
        lambda: write(frame, lab, topic="no-such-topic", outageTimeoutMs="3600000")
    )


def test_a_write_rides_out_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with LocalRocketMQ(name="write-restarted", broker_heap_mb=512) as broker, contextlib.closing(Lab(broker)) as lab:
        topic = new_topic(lab, 2)
        rows = spark.range(3_000).coalesce(1).selectExpr("lpad(id, 1000, '0') body", "concat('k', id % 3) shardingKey")
        bodies = [b"%01000d" % n for n in range(3_000)]
        killed = tmp_path / "killed"

        def pause(batches: Iterator[Any]) -> Iterator[Any]:
            for number, batch in enumerate(batches):
                if number == 10:
                    until(killed.exists, "the kill")
                yield batch

        begun: list[Record] = []

        def strike() -> None:
            begun.extend(stored(lab.client, topic, bodies[:300]))
            broker.kill()
            killed.touch()
            time.sleep(5)
            broker.restart()

        thread = threading.Thread(target=strike)
        thread.start()
        size = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
        try:  # here, since in another thread Spark only knows the formats of installed packages
            write(rows.mapInArrow(pause, rows.schema), lab, topic=topic, maxBatchMessages=20)
        finally:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", size or "10000")
            thread.join(at_most(120))
        assert 300 <= len(begun) < 3_000, "it was killed in the middle"
        once: dict[str, Record] = {}
        for record in stored(lab.client, topic, bodies):
            once.setdefault(record.message_id, record)
        assert sorted(int(record.body) for record in once.values()) == list(range(3_000))
        for key in range(3):
            numbers = [int(record.body) for record in once.values() if record.sharding_key == f"k{key}"]
            assert numbers == list(range(key, 3_000, 3)), "in order, copies apart"


# ---- stream ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def streams(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    for query in spark.streams.active:
        query.stop()


def copy(spark: SparkSession, lab: Lab, source: str, target: str, checkpoint: Path, hold: Hold) -> StreamingQuery:
    """Starts a stream from one topic to another, which may be held. It adds a mark to the body."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.select(["queueId", "queueOffset"]).to_pylist():
                hold.wait_at(row["queueId"], row["queueOffset"])
            yield batch

    reading: dict[str, str | int] = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}
    frame = spark.readStream.format("rocketmq").options(nameServer=lab.broker.name_server, **reading).load()
    frame = frame.mapInArrow(wait, frame.schema)
    chosen = frame.selectExpr("concat('copy of ', cast(body AS string)) AS body", "cast(queueId AS string) shardingKey")
    writer = chosen.writeStream.format("rocketmq").options(nameServer=lab.broker.name_server, topic=target)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="50 milliseconds")
    return writer.queryName(f"copy-{uuid.uuid4().hex[:8]}").start()


def test_a_stream_is_written_through_stop_and_restart(lab: Lab, streams: SparkSession, tmp_path: Path) -> None:
    queues = lab.topic(400, 100)  # the first one alone is held, while what is of the other is written
    source, target = queues[0].topic, new_topic(lab, 3)
    hold, checkpoint = Hold(tmp_path / "hold", 100).begin(), tmp_path / "checkpoint"
    query = copy(streams, lab, source, target, checkpoint, hold)

    def copies() -> list[str]:
        return [record.body.decode() for record in read_topic(lab.client, target)]

    until_by(query, lambda: hold.queues() and len(copies()) % 60, "a part of a later micro-batch", copies)
    part = len(copies()) % 60
    query.stop()
    until(lambda: not hold.has_process(), "Spark ends the process of the task that is held")
    hold.release()
    for queue in queues:
        lab.send(queue, 50)
    query = copy(streams, lab, source, target, checkpoint, hold)
    expected = {f"copy of {body.decode()}" for queue in queues for body in lab.sent[queue].values()}
    until_by(query, lambda: {*copies()} >= expected, "all messages", lambda: missing(expected, copies()))
    query.stop()
    found = Counter(copies())
    assert set(found) == expected, "none lost, none made up"
    assert Counter(found.values()) == {1: 600 - part, 2: part}, "twice is the part of the micro-batch that was cut off"


def test_a_stream_says_what_it_cannot_write(lab: Lab, streams: SparkSession, tmp_path: Path) -> None:
    (queue,) = lab.topic(1)
    frame = streams.readStream.format("rocketmq").options(nameServer=lab.broker.name_server, subscribe=queue.topic)
    writer = frame.load().writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path))
    writer = writer.options(nameServer=lab.broker.name_server, topic="t")

    def run() -> None:
        writer.start().awaitTermination(at_most(120))

    assert "the column 'brokerName' cannot be written" in refusal(run)


@pytest.mark.parametrize("mode", ["complete", "update", "update by foreachBatch"])
def test_output_modes_of_a_stream(lab: Lab, streams: SparkSession, tmp_path: Path, mode: str) -> None:
    (queue,) = lab.topic(3)
    sink = {"nameServer": lab.broker.name_server, "topic": new_topic(lab, 1)}
    session = streams.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    frame = session.readStream.format("rocketmq").options(nameServer=lab.broker.name_server, subscribe=queue.topic)
    counts = frame.option("startingOffsets", "earliest").load().groupBy("queueId").count()
    writer = counts.selectExpr("concat(queueId, ': ', count) AS body").writeStream
    writer = writer.outputMode(mode.partition(" ")[0]).option("checkpointLocation", str(tmp_path))
    writer = writer.trigger(availableNow=True)

    def append(rows: DataFrame, _: int) -> None:
        rows.write.format("rocketmq").options(**sink).mode("append").save()

    if mode == "update":
        message = refusal(lambda: writer.format("rocketmq").options(**sink).start().awaitTermination(at_most(120)))
        assert "does not support Update mode" in message
        return
    started = writer.format("rocketmq").options(**sink) if mode == "complete" else writer.foreachBatch(append)
    assert started.start().awaitTermination(at_most(120))
    assert [record.body for record in stored(lab.client, sink["topic"], [b"0: 3"])] == [b"0: 3"]


# ---- pushed filters -------------------------------------------------------------------------------------------------


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_pushed_filters_give_the_same_and_read_less(lab: Lab, pushing: SparkSession) -> None:
    queues = lab.topic(0, 0, 0)
    other = lab.topic(10)[0].topic
    for queue in queues:
        lab.send(queue, 60, make=lambda n: {"tags": ("red", "green")[n % 2]} if n % 3 else {})
        time.sleep(2.1)  # longer than the tolerance of times
    topic = queues[0].topic
    last = lab.store_time(queues[2], 0)
    moment = dt.datetime.fromtimestamp(last / 1000, dt.UTC)
    given = {"nameServer": lab.broker.name_server, "subscribe": f"{topic},{other}"}

    def read(where: str, **options: Any) -> DataFrame:
        return pushing.read.format("rocketmq").options(**given, **options).load().where(where)

    whole = 3 * 60 + 10
    for where, tasks, rows in (
        ("queueId = 1", 1, 60),
        (f"topic = '{other}'", 1, 10),
        (f"topic IN ('{topic}', 'x') AND queueId IN (0, 2)", 2, 120),
        ("queueOffset >= 50", 3, 30),
        ("queueOffset > 4 AND queueOffset < 10 AND queueId <= 1", 4, 20),
        ("queueOffset = 3", 4, 4),
        ("tags = 'red'", 4, 60),
        ("tags IN ('red', 'blue') AND queueId = 2", 1, 20),
        ("tags IS NULL", 4, whole),
        (f"storeTimestamp >= timestamp '{moment.isoformat()}'", 1, 60),
        ("queueId = 7", 1, 0),  # Spark runs a task anyway
    ):
        pushed, plain = read(where, pushFilters="true"), read(where)
        assert sorted(pushed.collect()) == sorted(plain.collect()), where
        assert plain.rdd.getNumPartitions() == 4, where
        assert (pushed.rdd.getNumPartitions(), rows_read(pushed)) == (tasks, rows), where
        assert rows_read(plain) == whole, where


def rows_read(frame: DataFrame) -> int:
    """Returns how many rows the source returned for a frame that was collected once, before Spark's own filters."""
    plan = frame._jdf.queryExecution().executedPlan()
    (scan,) = (leaf for leaf in _leaves(plan) if "BatchScan" in leaf.nodeName())
    return int(scan.metrics().get("numOutputRows").get().value())


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(number) for number in range(leaves.size())]


def test_filters_of_several_queries_of_one_frame(lab: Lab, pushing: SparkSession) -> None:
    """Spark keeps one read for a `load()`, that of the filters which it pushed last."""
    queues = lab.topic(4, 4, 4)
    given = {"nameServer": lab.broker.name_server, "subscribe": queues[0].topic, "pushFilters": "true"}
    frame = pushing.read.format("rocketmq").options(**given).load().select("queueId", "queueOffset")
    explained = frame.where("queueId = 2")
    explained.explain()
    union = frame.where("queueId = 0").union(frame.where("queueId = 1"))
    assert sorted(map(tuple, union.collect())) == [(queue, n) for queue in (0, 1) for n in range(4)]
    assert len(explained.collect()) == 4
    join = frame.where("queueOffset = 1").join(frame.where("queueOffset = 3"), "queueId")
    assert sorted(map(tuple, join.collect())) == [(queue, 1, 3) for queue in range(3)]


def test_the_setting_that_is_missing_is_named(lab: Lab, spark: SparkSession) -> None:
    (queue,) = lab.topic(1)
    reader = spark.read.format("rocketmq").options(nameServer=lab.broker.name_server, subscribe=queue.topic)
    frame = reader.option("pushFilters", "true").load()
    assert "spark.sql.python.filterPushdown.enabled" in refusal(frame.collect)
    assert reader.option("pushFilters", "false").load().collect() != [Row()]
