"""One of two brokers is away when a read begins, comes back, and hangs: on each runner, on real brokers.

A group has read half of each queue. The first half is not read again, no matter when a queue is found. The second half
is read, each message once. While one broker hangs, the other broker's messages are still read.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmqio.runners import options
from tests.helpers.check import read_topic
from tests.helpers.ledgers.delivery import DIRECT, FLINK, SPARK_STREAMING, Mode
from tests.helpers.pipelines import copying
from tests.helpers.servers.away import CONFIG, GOES, STAYS, Topic, find, lose, sending
from tests.helpers.servers.cluster import Cluster
from tests.helpers.servers.jobs import Job, started
from tests.helpers.spark.queries import until_by
from tests.helpers.waiting import at_most, missing

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

HALF = 50
AGAIN = 50
"""So many messages of each queue come while a broker hangs: for five seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # A broker that hangs stays in the cluster for two minutes: longer than any of these tests lets it hang
    with Cluster(brokers=(STAYS, GOES), config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[Topic]:
    with contextlib.closing(Topic(cluster)) as topic:
        topic.send(topic.queues, 2 * HALF)
        topic.commit(HALF)
        yield topic
        find(cluster)


def follow(
    cluster: Cluster,
    topic: Topic,
    wait_until: Callable[..., object],
    brokers: Sequence[str] = (STAYS, GOES),
) -> None:
    """Asserts what an unbounded read must do if it has begun while one broker was away.

    `brokers`: those to which messages go while one of them hangs.
    """

    def until_copied(what: str, *brokers: str) -> None:
        wanted = set().union(*(topic.places(broker, HALF) for broker in brokers))
        wait_until(lambda: topic.copied().keys() >= wanted, what, details=lambda: missing(wanted, topic.copied()))

    def is_exact() -> bool:
        return dict(topic.copied()) == dict.fromkeys(topic.places(STAYS, HALF) | topic.places(GOES, HALF), 1)

    until_copied("what the broker holds that is there", STAYS)
    find(cluster)
    until_copied("what the other one holds", STAYS, GOES)
    assert is_exact(), "nothing of the first half, all of the second, each once"

    def until_later_ones_are_copied(what: str, brokers: Sequence[str]) -> None:
        queues = [queue for broker in brokers for queue in topic.of(broker)]
        later = {(*queue[1:], topic.client.max_offset(queue) + AGAIN) for queue in queues}
        wait_until(lambda: topic.copied().keys() >= later, what, details=lambda: missing(later, topic.copied()))

    with sending(cluster, topic, brokers):
        until_later_ones_are_copied("messages while both answer", brokers)
        cluster.brokers[GOES].pause()
        until_later_ones_are_copied("messages of one broker while the other one hangs", [STAYS])
        cluster.brokers[GOES].resume()
        until_later_ones_are_copied("messages since both answer again", brokers)
    topic.stored()
    until_copied("what came since", STAYS, GOES)
    assert is_exact()


@pytest.mark.parametrize("mode", [DIRECT, SPARK_STREAMING, FLINK], ids=lambda each: each.name)
def test_a_read_without_end(cluster: Cluster, topic: Topic, mode: Mode, tmp_path: Path) -> None:
    lose(cluster)
    flags = [*mode.with_workers(1 if mode is DIRECT else 2), "--start=group:latest", "--discovery_interval_ms=1000"]
    if mode.endless:
        flags.append(f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    with started(Job(topic.command(flags), tmp_path)) as job:
        follow(cluster, topic, job.wait_until)
        if mode is not DIRECT:
            ends = [topic.sent[queue] for queue in topic.queues]
            job.wait_until(lambda: committed(topic) == ends, f"commits of {ends}", details=lambda: committed(topic))
        assert job.interrupt() == 130, job.log.read_text()[-4000:]
    if mode is DIRECT:  # the group's next commit includes what could not be committed while the broker hung
        found = zip(committed(topic), topic.queues, strict=True)
        assert all(HALF <= (offset or 0) <= topic.sent[queue] for offset, queue in found)


WINDOWS = """
SET 'table.exec.source.idle-timeout' = '{idle} s';
CREATE TABLE stored (
  body STRING, broker STRING METADATA VIRTUAL, at TIMESTAMP_LTZ(3) METADATA FROM 'store_timestamp' VIRTUAL,
  WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('topic' = '{topic}', 'format' = 'raw');
CREATE TABLE counts (broker STRING, n BIGINT, s TIMESTAMP_LTZ(3)) WITH ('topic' = '{sink}');
INSERT INTO counts SELECT broker, COUNT(*), window_start
FROM TABLE(TUMBLE(TABLE stored, DESCRIPTOR(at), INTERVAL '2' SECOND)) GROUP BY broker, window_start, window_end;
"""


def test_windows_of_sql_while_a_broker_hangs(cluster: Cluster, topic: Topic, tmp_path: Path) -> None:
    """The watermark waits for the broker: what it held is in its windows, and no window is given twice."""
    pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
    file = tmp_path / "job.sql"
    file.write_text(WINDOWS.format(idle=3, topic=topic.name, sink=topic.sink))
    flags = [*SPARK_STREAMING.with_workers(2), "--start=earliest", f"--checkpoint_dir={tmp_path / 'checkpoint'}"]
    name_server = f"--name_server={cluster.name_server}"

    def counted() -> dict[tuple[str, str], int]:
        rows = [json.loads(each.body) for each in read_topic(topic.client, topic.sink)]
        found = {(row["broker"], row["s"]): row["n"] for row in rows}
        assert len(found) == len(rows), "no window comes twice"
        return found

    def total(broker: str) -> int:
        return sum(n for (of, _), n in counted().items() if of == broker)

    job = Job([sys.executable, "-m", "rmqio", "sql", str(file), name_server, *flags], tmp_path)
    with started(job):
        with sending(cluster, topic):
            job.wait_until(lambda: total(STAYS) > 0 and total(GOES) > 0, "the first windows", details=counted)
            cluster.brokers[GOES].pause()
            time.sleep(8)
            cluster.brokers[GOES].resume()
            time.sleep(2)
        stored = Counter(broker for broker, _, _ in topic.stored())
        job.wait_until(
            lambda: {STAYS: total(STAYS), GOES: total(GOES)} == stored, f"windows of {stored}", details=counted
        )
        assert job.interrupt() == 130, job.log.read_text()[-4000:]


def committed(topic: Topic) -> list[int | None]:
    """Returns the group's offset of each queue."""
    return [topic.client.committed_offset(topic.group, queue) for queue in topic.queues]


def test_a_broker_that_hangs_at_the_start(cluster: Cluster, topic: Topic, tmp_path: Path) -> None:
    """A bounded read fails and names the broker. An unbounded read reads the others, and this one once it answers."""
    cluster.brokers[GOES].pause()
    flags = [*DIRECT.with_workers(1), "--start=group:latest"]
    with started(Job(topic.command([*flags, "--stop=latest"]), tmp_path)) as job:
        assert job.process.wait(at_most(60)) == 1
        assert re.search(rf"queue {topic.name}/{GOES}/\d|broker '{GOES}'", job.log.read_text())
    assert not topic.copied()
    with started(Job(topic.command(flags), tmp_path)) as job:
        second = topic.places(STAYS, HALF)

        def copied() -> int:
            return len(topic.copied())

        job.wait_until(
            lambda: topic.copied().keys() >= second,
            "what the other broker holds",
            progress=copied,
            details=lambda: missing(second, topic.copied()),
        )
        find(cluster)
        everything = second | topic.places(GOES, HALF)
        job.wait_until(
            lambda: topic.copied().keys() >= everything,
            "what this one holds",
            progress=copied,
            details=lambda: missing(everything, topic.copied()),
        )
    assert dict(topic.copied()) == dict.fromkeys(everything, 1)


def test_batch_jobs_of_one_group_on_spark(cluster: Cluster, topic: Topic, spark: SparkSession) -> None:
    """A bounded job reads what is available. The group's next job reads the rest."""
    lose(cluster)
    arguments = copying.arguments_of(topic.command(["--start=group:latest", "--stop=latest"])[3:])
    for expected in (topic.places(STAYS, HALF), topic.places(STAYS, HALF) | topic.places(GOES, HALF)):
        with beam.Pipeline(options=options(["--runner=SparkRunner"])) as pipeline:
            copying.build(pipeline, arguments)
        assert dict(topic.copied()) == dict.fromkeys(expected, 1)
        if not cluster.brokers[GOES].is_running:
            find(cluster)


def test_a_stream_in_plain_pyspark(cluster: Cluster, topic: Topic, spark: SparkSession, tmp_path: Path) -> None:
    lose(cluster)
    given = {"nameServer": cluster.name_server, "subscribe": topic.name, "consumerGroup": topic.group}
    frame = spark.readStream.format("rocketmq").options(**given, startingOffsets="group").load()
    query = _copies(frame).writeStream.format("rocketmq").option("nameServer", cluster.name_server)
    query = query.option("topic", topic.sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(processingTime="100 milliseconds").start()
    try:
        # A planned range must be read, so the micro-batch of a broker that has messages waits for it (docs/pyspark.md).
        follow(cluster, topic, partial(until_by, running), brokers=[STAYS])
    finally:
        running.stop()


def _copies(frame: DataFrame) -> DataFrame:
    place = F.struct(
        F.col("brokerName").alias("broker"), F.col("queueId").alias("queue"), F.col("queueOffset").alias("offset")
    )
    return frame.select(F.to_json(place).cast("binary").alias("body"))
