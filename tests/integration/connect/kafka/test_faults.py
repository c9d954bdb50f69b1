"""Killed brokers, one of a cluster or the only one, and a killed stream: nothing is lost, and reads double nothing."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import uuid
from pathlib import Path

import apache_beam as beam
import pytest

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from rmqio.connect import Batching, KafkaRecord, ReadFromKafka, Retry, WriteToKafka
from rmqio.start import StopAt
from tests.helpers.pipelines.held import Hold, during
from tests.helpers.pipelines.kafka import new_topic, read, write
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.kafka import Kafka, KafkaCluster
from tests.helpers.waiting import at_most, missing, until

pytestmark = [pytest.mark.systems, pytest.mark.slow]


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param("SparkRunner --spark_master_url=local[2]", marks=pytest.mark.spark),
        "FlinkRunner --checkpointing_interval=500",
    ],
    ids=["Spark", "Flink"],
)
def test_a_stream_that_is_killed_goes_on_and_reads_new_partitions_into_files(
    broker: Kafka, runner: str, tmp_path: Path
) -> None:
    """A partition is empty, and messages stop: only the clock closes the windows. Each message is in one file."""
    if runner.startswith("Spark"):
        pytest.importorskip("pyspark", reason="SparkRunner needs the extra 'spark'")
    topic, folder = new_topic(broker, 2), tmp_path / "out"
    source = f"kafka://{broker.servers}/{topic}?idle_timeout_ms=500&discovery_interval_ms=500"
    command = [
        sys.executable, "-m", "rmqio", "copy", "--follow", "--from", source,
        "--to", f"{folder}/?format=jsonl&window_s=1", *f"--runner={runner}".split(), "--streaming",
        f"--checkpoint_dir={tmp_path}/checkpoint",
    ]  # fmt: skip
    produce(broker, topic, range(100), partition=0)

    def until_in(job: Job, count: int) -> None:
        def left() -> str:
            return missing(range(count), numbers_in(folder))

        job.wait_until(lambda: len(numbers_in(folder)) >= count, f"{count} in files", details=left)

    with started(Job(command, tmp_path)) as job:
        until_in(job, 100)
        broker.add_partitions(topic, 4)
        produce(broker, topic, range(100, 150), partition=3)
        until_in(job, 150)
        produce(broker, topic, range(150, 200), partition=2)
        job.kill()
    produce(broker, topic, range(200, 250), partition=0)
    with started(Job(command, tmp_path)) as job:
        until_in(job, 250)
    assert sorted(numbers_in(folder)) == [*range(250)]


def produce(broker: Kafka, topic: str, numbers: range, partition: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b'{"n":%d}' % number, partition=partition)
    assert producer.flush(at_most(30)) == 0


def numbers_in(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for each in folder.rglob("part-*") for line in each.read_text().splitlines()]


def test_a_broker_killed_midway_loses_nothing(broker: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker is killed while messages are written, and it is away when they are read. Both go on by themselves.

    The log has a line when it is away and one when it is back, and none of those of the client, one for each try.

    The kill is after 1000 of 2000 rows, and the broker stays away for longer than the client itself tries.
    """
    topic = new_topic(broker)
    rows = [b"%d" % number for number in range(2000)]
    before: list[int] = []

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == "rmqio.connect"]

    def come_back() -> None:
        until(said, "the word that it is away")
        broker.start()

    starter = threading.Thread(target=come_back)

    def kill() -> None:
        before.append(len({each.value for each in read(broker, topic)}))
        broker.kill()
        starter.start()

    write_them = WriteToKafka(
        broker.servers,
        topic,
        batching=Batching(max_rows=20),
        retry=Retry(max_wait_s=0.5),
        config={"message.timeout.ms": 1_500},
    )
    pipeline = beam.Pipeline()
    held = pipeline | beam.Create(rows, reshuffle=False) | beam.ParDo(Hold(tmp_path, after=1000))
    _ = held | write_them
    with during(tmp_path, kill):
        result = pipeline.run()
        result.wait_until_finish()
    away, back = said()
    assert " is away or busy; it is tried again for 120 s at most: " in away
    assert " is back after " in back
    assert len(caplog.records) < 10
    starter.join()
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert before == [1000], "so many were acknowledged before the kill"
    assert counters["row_write_retries"] > 0, "the other ones came while the broker was away"
    assert counters["rows_written"] == 2000
    broker.kill()
    starter = threading.Thread(target=broker.start)
    starter.start()
    values = [each.value or b"" for each in read(broker, topic)]
    starter.join()
    assert set(values) == set(rows)


def test_a_broker_killed_while_it_is_read_loses_and_doubles_nothing(broker: Kafka, tmp_path: Path) -> None:
    """The client fetches little ahead, so that most of the topic is read after the broker has come back."""
    topic = new_topic(broker)
    rows = [b"%d" % number + b"x" * 500 for number in range(4000)]
    write(broker, topic, rows, batching=Batching(max_rows=20))
    config = {
        "queued.max.messages.kbytes": 1, "queued.min.messages": 1, "fetch.message.max.bytes": 1_000,
        "fetch.queue.backoff.ms": 10,
    }  # fmt: skip
    found = tmp_path / "found"

    def keep(record: KafkaRecord) -> None:
        with open(found, "ab") as file:
            file.write((record.value or b"") + b"\n")

    counts: list[int] = []

    starter = threading.Thread(target=broker.start)  # it takes seconds

    def kill() -> None:
        broker.kill()
        counts.append(len(found.read_bytes().splitlines()))
        starter.start()

    with during(tmp_path, kill), beam.Pipeline() as pipeline:
        records = pipeline | ReadFromKafka(broker.servers, topic, stop=StopAt.latest(), config=config)
        _ = records | beam.ParDo(Hold(tmp_path, after=100)) | beam.Map(keep)
    starter.join()
    assert counts[0] == 100, "it was killed midway"
    assert sorted(found.read_bytes().splitlines()) == sorted(rows)


def killed_leader(cluster: KafkaCluster, topic: str) -> Kafka:
    """Kills the broker that leads the first partition, and waits until others lead all of them."""
    victim = cluster.leaders(topic)[0]
    cluster.brokers[victim].kill()
    until(lambda: not {victim, -1} & {*cluster.leaders(topic).values()}, "another leader of each partition")
    return cluster.brokers[victim]


def test_a_broker_of_three_killed_midway_of_a_write_loses_nothing(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Every partition has a copy on each broker. The killed one stays away until the write has ended."""
    topic = cluster.create_topic(f"t-{uuid.uuid4().hex[:8]}", 6)
    rows = [{"id": number % 50, "n": number} for number in range(4000)]
    killed: list[Kafka] = []
    counts: list[int] = []

    def kill() -> None:
        counts.append(len({each.value for each in read(cluster, topic)}))
        killed.append(killed_leader(cluster, topic))

    with during(tmp_path, kill), beam.Pipeline() as pipeline:
        held = pipeline | beam.Create(rows, reshuffle=False) | beam.ParDo(Hold(tmp_path, after=2000))
        _ = held | WriteToKafka(cluster.servers, topic, key="id", batching=Batching(max_rows=20))
    found = sorted(read(cluster, topic), key=lambda each: (each.partition, each.offset))
    killed[0].start()
    assert counts == [2000], "so many were acknowledged before the kill"
    assert len({each.partition for each in found}) == 6
    numbers = [json.loads(each.value or b"") for each in found]
    assert {each["n"] for each in numbers} == {*range(4000)}
    for key in range(50):  # what comes twice comes in order: the client's own retries double nothing
        mine = [each["n"] for each in numbers if each["id"] == key]
        assert [n for n, _ in itertools.groupby(mine)] == [*range(key, 4000, 50)]


def test_a_broker_of_three_killed_midway_of_a_read_loses_and_doubles_nothing(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The client fetches little ahead, so that much of the topic is read from the brokers that take over."""
    topic = cluster.create_topic(f"t-{uuid.uuid4().hex[:8]}", 6)
    rows = [b"%d" % number + b"x" * 500 for number in range(6000)]
    write(cluster, topic, rows)
    config = {"queued.max.messages.kbytes": 1, "queued.min.messages": 1, "fetch.message.max.bytes": 1_000}
    found, counts, killed = tmp_path / "found", list[int](), list[Kafka]()

    def keep(record: KafkaRecord) -> None:
        with open(found, "ab") as file:
            file.write((record.value or b"") + b"\n")

    def kill() -> None:
        counts.append(len(found.read_bytes().splitlines()))
        killed.append(killed_leader(cluster, topic))

    with during(tmp_path, kill), beam.Pipeline() as pipeline:
        records = pipeline | ReadFromKafka(cluster.servers, topic, stop=StopAt.latest(), config=config)
        _ = records | beam.ParDo(Hold(tmp_path, after=100)) | beam.Map(keep)
    killed[0].start()
    assert counts[0] < 6000, "it was killed midway"
    assert sorted(found.read_bytes().splitlines()) == sorted(rows)
