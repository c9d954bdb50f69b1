"""`spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")` on a real broker."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue, Record
from rmqio.pyspark import lags
from rmqio.pyspark.columns import COLUMNS, SOURCE_SCHEMA
from rmqio.pyspark.progress import as_json
from tests.gate.judging import inconclusive
from tests.helpers.client.raw_send import read_to, records_of
from tests.helpers.ledgers.ledger import Lab, new_group
from tests.helpers.spark.queries import until_by
from tests.helpers.waiting import at_most, until

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def read(spark: SparkSession, lab: Lab) -> Callable[..., DataFrame]:
    def read(topic: str, **options: Any) -> DataFrame:
        given = {"nameServer": lab.broker.name_server, "subscribe": topic} | options
        return spark.read.format("rocketmq").options(**given).load()

    return read


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """Returns the sorted offsets that were read from each queue. A queue without any is absent."""
    found: dict[int, list[int]] = {}
    for row in frame.select("queueId", "queueOffset").collect():
        found.setdefault(row.queueId, []).append(row.queueOffset)
    return {queue: sorted(numbers) for queue, numbers in found.items()}


def failure(frame: DataFrame) -> str:
    return failure_of(frame.collect)


def failure_of(run: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        run()
    if inconclusive(raised.value, in_setup=False):
        raise raised.value
    return str(raised.value)


def everything(*queues: MessageQueue, lab: Lab) -> dict[int, list[int]]:
    return {queue.queue_id: list(range(len(lab.sent[queue]))) for queue in queues if lab.sent[queue]}


# ---- batch ----------------------------------------------------------------------------------------------------------


def _expected(record: Record) -> dict[str, Any]:
    def time_of(milliseconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(milliseconds / 1000).replace(microsecond=milliseconds % 1000 * 1000)

    return {
        "topic": record.topic,
        "brokerName": record.broker,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "messageId": record.message_id,
        "tags": record.tags,
        "keys": list(record.keys),
        "body": bytearray(record.body),
        "properties": record.properties,
        "shardingKey": record.sharding_key,
        "bornTimestamp": time_of(record.born_timestamp_ms),
        "storeTimestamp": time_of(record.store_timestamp_ms),
        "bornHost": record.born_host,
        "storeHost": record.store_host,
        "reconsumeTimes": record.reconsume_times,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "commitLogOffset": record.commit_log_offset,
        "preparedTransactionOffset": record.prepared_transaction_offset,
    }


def test_every_column_is_what_the_message_has(lab: Lab, read: Callable[..., DataFrame]) -> None:
    (queue,) = lab.topic(1)
    made = {"tags": "red", "keys": ("a", "b"), "properties": {"name": "wert ü", "n": "1"}, "sharding_key": "s"}
    lab.send(queue, 2, make=lambda n: made)
    (traces,) = lab.topic(0)
    rows = read(queue.topic, trace=traces.topic).orderBy("queueOffset").collect()
    records = records_of(read_to(lab.client, queue, 0, 3))
    assert [row.asDict() for row in rows] == [_expected(record) for record in records]
    assert rows[0].tags is None
    assert rows[1].properties["name"] == "wert ü"
    assert list(COLUMNS) == SOURCE_SCHEMA.fieldNames()

    def kinds() -> list[bytes]:
        sent = records_of(read_to(lab.client, traces, 0, lab.client.max_offset(traces)))
        return [entry.split(b"\x01")[0] for each in sent for entry in each.body.split(b"\x02")[:-1]]

    until(lambda: len(kinds()) >= 6, "all traces", details=kinds, still_s=120)
    found = kinds()
    assert found.count(b"SubBefore") == found.count(b"SubAfter") == len(found) // 2
    assert len(found) % 6 == 0, "all of them, however often Spark has read them"


def test_everything_is_read_once_by_any_number_of_tasks(lab: Lab, read: Callable[..., DataFrame]) -> None:
    queues = lab.topic(700, 0, 300)
    topic = queues[0].topic
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": 10}, 10),
        ({"maxRecordsPerPartition": 100}, 10),
        ({"minPartitions": 2, "maxRecordsPerPartition": 299}, 5),
    ):
        frame = read(topic, **options)
        assert frame.rdd.getNumPartitions() == tasks, options
        assert offsets(frame) == everything(*queues, lab=lab), options
    assert frame.count() == 1_000


def test_topics_by_list_by_pattern_and_by_queue(lab: Lab, read: Callable[..., DataFrame], spark: SparkSession) -> None:
    one, other = lab.topic(3, 4), lab.topic(5)
    assert read(f"{one[0].topic}, {other[0].topic}").count() == 12

    def without(**options: str) -> DataFrame:
        return spark.read.format("rocketmq").options(nameServer=lab.broker.name_server, **options).load()

    assert without(subscribePattern=f"{one[0].topic}|nothing").count() == 7
    assign = json.dumps({one[0].topic: {one[0].broker: [1]}})
    assert offsets(without(assign=assign)) == {1: [0, 1, 2, 3]}
    assert "LocalError: topic 'no-such-topic' does not exist" in failure(read("no-such-topic"))
    assert f"did you mean '{other[0].topic}'" in failure(read(f"{other[0].topic}s"))
    assert "one of subscribe, subscribePattern and assign" in failure_of(lambda: without().collect())


def test_starts_and_ends(lab: Lab, read: Callable[..., DataFrame]) -> None:
    queues = lab.topic(10, 10, 10)
    topic, broker = queues[0].topic, queues[0].broker
    time.sleep(0.02)
    for queue in queues:
        lab.send(queue, 5)
    stored = max(lab.store_time(queue, 9) for queue in queues) + 1
    group = new_group()
    lab.client.commit_offset(group, queues[0], 4)

    def json_of(*numbers: int) -> str:
        return json.dumps({topic: {broker: {str(queue): number for queue, number in enumerate(numbers)}}})

    whole = {queue: list(range(15)) for queue in range(3)}
    late = {queue: list(range(10, 15)) for queue in range(3)}
    assert offsets(read(topic)) == whole, "earliest"
    assert offsets(read(topic, startingOffsets="latest")) == {}
    assert offsets(read(topic, startingTimestamp=stored)) == late
    assert offsets(read(topic, endingTimestamp=stored)) == {queue: list(range(10)) for queue in range(3)}
    assert offsets(read(topic, startingOffsets=json_of(12, -2, -1))) == {0: [12, 13, 14], 1: list(range(15))}
    assert offsets(read(topic, startingOffsets=json_of(14))) == whole | {0: [14]}
    assert offsets(read(topic, endingOffsets=json_of(1, -1, -2))) == {0: [0], 1: list(range(15))}
    assert offsets(read(topic, startingOffsets="group", consumerGroup=group)) == {0: list(range(4, 15))}
    reset = {"startingOffsets": "group", "consumerGroup": group, "groupOffsetsReset": "earliest"}
    assert offsets(read(topic, **reset)) == whole | {0: list(range(4, 15))}
    assert "has no offset" in failure(read(topic, **reset | {"groupOffsetsReset": "error"}))
    far = (time.time_ns() // 1_000_000) + 3_600_000
    assert "holds no message stored at or after" in failure(read(topic, startingTimestamp=far))
    latest = {"startingTimestamp": far, "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(read(topic, **latest)) == {}
    assert "ends at 15, before the given 16" in failure(read(topic, endingOffsets=json_of(16)))


def test_an_offset_that_is_not_there_is_data_loss(lab: Lab, read: Callable[..., DataFrame]) -> None:
    (queue,) = lab.topic(5)
    start = json.dumps({queue.topic: {queue.broker: {"0": 9}}})
    text = failure(read(queue.topic, startingOffsets=start))
    assert "offset 9 is not available; the broker holds [0, 5)" in text
    assert "Set failOnDataLoss to false" in text
    assert offsets(read(queue.topic, startingOffsets=start, failOnDataLoss="false")) == {0: [0, 1, 2, 3, 4]}


def test_filters_of_the_broker(lab: Lab, read: Callable[..., DataFrame]) -> None:
    (queue,) = lab.topic(0)
    lab.send(queue, 40, make=lambda n: {"tags": "odd" if n % 2 else "even", "properties": {"n": str(n)}})
    assert offsets(read(queue.topic, tags="odd")) == {0: list(range(1, 40, 2))}
    assert offsets(read(queue.topic, tags="odd || even")) == {0: list(range(40))}
    assert offsets(read(queue.topic, sqlFilter="n > 29")) == {0: list(range(30, 40))}
    assert offsets(read(queue.topic, tags="nothing")) == {}


def test_a_schema_chooses_columns(lab: Lab, spark: SparkSession) -> None:
    (queue,) = lab.topic(3)
    reader = spark.read.format("rocketmq").options(nameServer=lab.broker.name_server, subscribe=queue.topic)
    rows = reader.schema("queueOffset bigint, body binary").load().orderBy("queueOffset").collect()
    assert [tuple(row) for row in rows] == [(n, bytearray(lab.sent[queue][n])) for n in range(3)]
    assert "there is no column 'offset'" in failure(reader.schema("offset bigint").load())
    assert "the column body has the type binary, not string" in failure(reader.schema("body string").load())


def test_it_can_be_used_from_sql(lab: Lab, spark: SparkSession, read: Callable[..., DataFrame]) -> None:
    (queue,) = lab.topic(4)
    read(queue.topic).createOrReplaceTempView("messages")
    found = spark.sql("SELECT cast(body AS string) text FROM messages WHERE queueOffset >= 2 ORDER BY queueOffset")
    assert [row.text for row in found.collect()] == [str(lab.sent[queue][n], "utf-8") for n in (2, 3)]


# ---- stream ---------------------------------------------------------------------------------------------------------


class Stream:
    """A query that stores the rows that it reads, by micro-batch, in files beside its checkpoint."""

    def __init__(self, spark: SparkSession, lab: Lab, folder: Path) -> None:
        self._spark, self._lab, self._folder = spark, lab, folder

    def start(self, topic: str, *, available_now: bool = False, **options: Any) -> Any:
        given = {"nameServer": self._lab.broker.name_server, "subscribe": topic} | options
        frame = self._spark.readStream.format("rocketmq").options(**given).load()
        writer = frame.select("queueId", "queueOffset").writeStream.format("json")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        writer = (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="100 milliseconds")
        )
        return writer.start(str(self._folder / "out"))

    def run(self, topic: str, **options: Any) -> Any:
        """Runs the query until everything available is read. Returns the ended query."""
        query = self.start(topic, available_now=True, **options)
        assert query.awaitTermination(at_most(120))
        return query

    def offsets(self) -> dict[int, list[int]]:
        if not any(self._folder.glob("out/*.json")):
            return {}
        return offsets(self._spark.read.schema("queueId int, queueOffset bigint").json(str(self._folder / "out")))


@pytest.fixture
def stream(spark: SparkSession, lab: Lab, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, lab, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_a_stream_goes_on_where_its_checkpoint_is(lab: Lab, stream: Stream) -> None:
    queues = lab.topic(300, 20)
    topic = queues[0].topic
    stream.run(topic, startingOffsets="earliest", minOffsetsPerTrigger=1_000)
    assert stream.offsets() == everything(*queues, lab=lab), "a run with an end waits for no more"
    for queue in queues:
        lab.send(queue, 10)
    stream.run(topic, startingOffsets="latest")
    assert stream.offsets() == everything(*queues, lab=lab), "the start counts for a new query only"
    stream.run(topic)
    assert stream.offsets() == everything(*queues, lab=lab), "and nothing comes twice"


def test_a_limit_a_micro_batch_is_shared_out(lab: Lab, stream: Stream) -> None:
    queues = lab.topic(1_000, 10, 0)
    query = stream.run(queues[0].topic, startingOffsets="earliest", maxOffsetsPerTrigger=200)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes == [200, 200, 200, 200, 200, 10]
    assert stream.offsets() == everything(*queues, lab=lab)


def until_triggered(query: Any, times: int) -> None:
    """Waits until triggers have begun and ended so often."""
    seen = [False]

    def has() -> bool:
        if query.status["isTriggerActive"] is not seen[-1]:
            seen.append(not seen[-1])
        return len(seen) > 2 * times

    until(has, f"{times} triggers", progress=lambda: len(seen), details=lambda: query.status, pause_s=0.005)


@pytest.mark.exhaustive
def test_a_micro_batch_waits_for_enough_messages_or_for_its_delay(lab: Lab, stream: Stream) -> None:
    (queue,) = lab.topic(3)
    limits: dict[str, Any] = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 50}

    def batches(query: Any) -> list[tuple[int, dt.datetime]]:
        return [
            (p.numInputRows, dt.datetime.fromisoformat(p.timestamp)) for p in query.recentProgress if p.numInputRows
        ]

    query = stream.start(queue.topic, **limits)
    # The first one of a run does not wait.
    until_by(query, lambda: [size for size, _ in batches(query)] == [3], "a batch of 3")
    lab.send(queue, 10)
    until_triggered(query, 4)  # at each of which it would be planned
    lab.send(queue, 40)
    until_by(query, lambda: [size for size, _ in batches(query)] == [3, 50], "a batch of 50")
    query.stop()
    lab.send(queue, 1)
    query = stream.start(queue.topic, **limits, maxTriggerDelay="3s")
    until_by(query, lambda: len(batches(query)) == 1, "the first batch")
    lab.send(queue, 5)
    until_by(query, lambda: len(batches(query)) == 2, "the second batch")
    (first, began), (second, ended) = batches(query)
    assert (first, second) == (1, 5)
    assert (ended - began).total_seconds() > 2.9
    until_by(query, lambda: stream.offsets() == everything(queue, lab=lab), "all messages")


def test_a_running_stream_gets_what_comes_and_says_how_far_it_is(lab: Lab, stream: Stream) -> None:
    queues, group = lab.topic(5, 5), new_group()
    query = stream.start(queues[0].topic, maxOffsetsPerTrigger=4, consumerGroup=group, commitOffsets="true")
    until_by(query, lambda: query.lastProgress is not None, "a progress")
    for queue in queues:
        lab.send(queue, 6)
    expected = {queue: list(range(5, 11)) for queue in range(2)}
    until_by(query, lambda: stream.offsets() == expected, "all messages")
    ends = as_json(dict.fromkeys(queues, 11))

    def says_the_ends() -> bool:  # a little after the rows are there
        (source,) = query.lastProgress.sources
        end = json.loads(source.endOffset)
        return bool({topic: end[topic] for topic in ends} == ends == json.loads(source.latestOffset))

    until_by(query, says_the_ends, "the ends", details=lambda: ends)
    (lag,) = lags(query.lastProgress)
    assert lag.by_queue == dict.fromkeys(queues, 0)
    lab.send(queues[0], 1)  # Spark tells of a commit when it plans the next micro-batch
    committed = partial(lab.client.committed_offset, group)
    until_by(query, lambda: [committed(queue) or 0 for queue in queues] >= [11, 11], "the commits")


def test_a_queue_that_is_added_is_read_from_its_start(lab: Lab, stream: Stream) -> None:
    (first,) = lab.topic(7)
    stream.run(first.topic, startingOffsets="latest")
    lab.broker.create_topic(first.topic, queues=2)
    added = MessageQueue(first.topic, first.broker, 1)
    until(lambda: added in lab.client.queues(first.topic), "the new queue", still_s=120)
    lab.send(added, 3)
    stream.run(first.topic)
    assert stream.offsets() == {1: [0, 1, 2]}


def test_queues_that_are_gone_are_data_loss(lab: Lab, stream: Stream) -> None:
    queues = lab.topic(3, 3)
    topic = queues[0].topic
    stream.run(topic, startingOffsets="earliest")
    lab.broker.create_topic(topic, queues=1)
    lab.send(queues[0], 2)
    query = stream.start(topic, outageTimeoutMs=1_000)
    assert "cannot be read any more" in failure_of(lambda: query.awaitTermination(at_most(120)))
    query = stream.start(topic, failOnDataLoss="false")
    until_by(query, lambda: stream.offsets() == {0: list(range(5)), 1: list(range(3))}, "what is left")


def test_a_stream_rides_out_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with LocalRocketMQ(name="restarted", broker_heap_mb=512) as broker, contextlib.closing(Lab(broker)) as lab:
        stream = Stream(spark, lab, tmp_path)
        queues = lab.topic(50, 50)
        query = stream.start(queues[0].topic, startingOffsets="earliest")
        until_by(query, lambda: stream.offsets() == everything(*queues, lab=lab), "all messages")
        broker.kill()
        time.sleep(8)  # longer than the planner retries its requests
        broker.restart()
        for queue in queues:
            lab.send(queue, 10)
        until_by(query, lambda: stream.offsets() == everything(*queues, lab=lab), "all messages")
        query.stop()


def test_a_stream_refuses_an_end(lab: Lab, stream: Stream) -> None:
    (queue,) = lab.topic(1)
    text = failure_of(lambda: stream.run(queue.topic, endingOffsets="latest"))
    assert "endingOffsets is an option of a batch read" in text
