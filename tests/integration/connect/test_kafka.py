"""`ReadFromKafka` and `WriteToKafka` on a real broker: there and back, starts and stops, a broker that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from rmqio.connect import Batching, KafkaRecord, ReadFromKafka, Retry, WriteToKafka
from rmqio.connect.kafka.records import KafkaRecordCoder
from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.start import StartFrom, StopAt
from tests.helpers.doc_blocks import Block, blocks_that_need
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.kafka import Kafka

pytestmark = [pytest.mark.systems, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka() as found:
        yield found


class Keep:
    """Appends records to a file, from whichever copy of the function."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, record: KafkaRecord) -> None:
        with open(self._path, "a") as file:
            file.write(f"{KafkaRecordCoder().encode(record).hex()}\n")


def new_topic(broker: Kafka, partitions: int = 2) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions)


def write(broker: Kafka, topic: str, elements: list[Any], **options: Any) -> Any:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create(elements, reshuffle=False) | WriteToKafka(broker.servers, topic, **options)
    result = pipeline.run()
    result.wait_until_finish()
    return {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}


def read(broker: Kafka, topic: Any, **options: Any) -> list[KafkaRecord]:
    """Everything up to the end of now."""
    with tempfile.NamedTemporaryFile() as file:
        with beam.Pipeline() as pipeline:
            records = pipeline | ReadFromKafka(broker.servers, topic, **{"stop": StopAt.latest(), **options})
            _ = records | beam.Map(Keep(file.name))
        lines = file.read().splitlines()
    return [KafkaRecordCoder().decode(bytes.fromhex(line.decode())) for line in lines]


def test_messages_come_back_with_all_that_they_have(broker: Kafka) -> None:
    topic, other = new_topic(broker, 1), new_topic(broker)
    given = [
        KafkaRecord(b"v", b"k", (("h", b"1"), ("h", None)), timestamp_ms=1_700_000_000_123),
        KafkaRecord(None, b"k", timestamp_ms=5),
        KafkaRecord(b"elsewhere", topic=other, timestamp_ms=7),
    ]
    write(broker, topic, given)
    assert read(broker, topic) == [given[n]._replace(topic=topic, partition=0, offset=n) for n in (0, 1)]
    (found,) = read(broker, other)
    assert (found.value, found.topic, found.timestamp_ms) == (b"elsewhere", other, 7)
    assert len(read(broker, [topic, other])) == 3


def test_elements_of_every_kind_are_written(broker: Kafka) -> None:
    topic = new_topic(broker)
    write(broker, topic, [b"bytes", "text", Message(b"message", keys=("a", "b")), {"id": 7, "n": 1}])
    found = {(each.value, each.key) for each in read(broker, topic)}
    assert found == {(b"bytes", None), (b"text", None), (b"message", b"a"), (b'{"id":7,"n":1}', None)}


def test_messages_of_one_key_keep_their_order_in_one_partition(broker: Kafka) -> None:
    topic = new_topic(broker, 3)
    write(broker, topic, [{"id": number % 5, "n": number} for number in range(500)], key="id")
    found = sorted(read(broker, topic), key=lambda each: each.offset)
    for key in range(5):
        mine = [each for each in found if each.key == b"%d" % key]
        assert len({each.partition for each in mine}) == 1
        assert [each.value for each in mine] == [b'{"id":%d,"n":%d}' % (key, n) for n in range(key, 500, 5)]


def test_starts_and_stops(broker: Kafka) -> None:
    topic = new_topic(broker, 1)
    write(broker, topic, [KafkaRecord(b"%d" % n, timestamp_ms=1_700_000_000_000 + n) for n in range(10)])

    def values(**options: Any) -> list[int]:
        return [int(each.value or b"") for each in read(broker, topic, **options)]

    assert values(start=StartFrom.timestamp(1_700_000_000_004)) == [*range(4, 10)]
    assert values(stop=StopAt.timestamp(1_700_000_000_004)) == [*range(4)]
    assert values(start=StartFrom.timestamp(1_700_000_000_099)) == []
    assert values(start=StartFrom.latest()) == []


def test_a_message_that_is_too_large_goes_out_alone(broker: Kafka) -> None:
    topic = new_topic(broker)
    pipeline = beam.Pipeline()
    rows = [b"a", b"x" * 2_000_000, b"b"]
    result = pipeline | beam.Create(rows) | WriteToKafka(broker.servers, topic, on_failure="output")

    def check(failures: list[Any]) -> None:
        ((size, reason),) = [(len(each.body), each.reason) for each in failures]
        assert size == 2_000_000
        assert "too large" in reason.lower()

    _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    pipeline.run().wait_until_finish()
    assert sorted(each.value or b"" for each in read(broker, topic)) == [b"a", b"b"]


def test_a_topic_that_does_not_exist_fails_at_the_start(broker: Kafka) -> None:
    with pytest.raises(Exception, match=r"topic none of kafka://.*nknown topic"):
        write(broker, "none", [b"x"])
    with pytest.raises(Exception, match=r"topic none of kafka://.*nknown topic"):
        read(broker, "none")


def test_a_copy_that_follows_reads_what_comes_later(broker: Kafka, tmp_path: Path) -> None:
    """A stream on the Direct runner, in a program of its own."""
    topic = new_topic(broker)
    write(broker, topic, [b'{"n":%d}' % n for n in range(100)])
    command = [sys.executable, "-m", "rmqio", "copy", "--from", f"kafka://{broker.servers}/{topic}", "--follow"]
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "log", "wb") as log:
        program = subprocess.Popen([*command, "--to", "-"], stdout=out, stderr=log)
    try:
        for wanted in (100, 107):
            until = time.monotonic() + 60
            while (count := len((tmp_path / "out").read_text().splitlines())) != wanted:
                assert program.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < until, (count, wanted, (tmp_path / "log").read_text())
                time.sleep(0.1)
            if wanted == 100:
                write(broker, topic, [b'{"n":%d}' % n for n in range(100, 107)])
    finally:
        program.kill()
        program.wait()


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
    with started(Job(command, tmp_path)) as job:
        job.wait_until(lambda: len(numbers_in(folder)) == 100, "the windows of a partition beside an empty one")
        broker.add_partitions(topic, 4)
        produce(broker, topic, range(100, 150), partition=3)
        job.wait_until(lambda: len(numbers_in(folder)) >= 150, "the windows of a new partition")
        produce(broker, topic, range(150, 200), partition=2)
        job.kill()
    produce(broker, topic, range(200, 250), partition=0)
    with started(Job(command, tmp_path)) as job:
        job.wait_until(lambda: len(numbers_in(folder)) >= 250, "what came before and after the kill")
    assert sorted(numbers_in(folder)) == [*range(250)]


def produce(broker: Kafka, topic: str, numbers: range, partition: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b'{"n":%d}' % number, partition=partition)
    assert producer.flush(30) == 0


def numbers_in(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for each in folder.rglob("part-*") for line in each.read_text().splitlines()]


def test_a_broker_killed_midway_loses_nothing(broker: Kafka) -> None:
    """The broker is killed while messages are written, and it is away when they are read. Both go on by themselves."""
    topic = new_topic(broker)
    killed = threading.Event()

    def kill(after: int) -> None:
        while sum(1 for _ in read(broker, topic)) < after:
            pass
        broker.kill()
        killed.set()
        broker.start()

    killer = threading.Thread(target=kill, args=(200,))
    killer.start()
    rows = [b"%d" % number for number in range(2000)]
    options = {"batching": Batching(max_rows=20), "config": {"message.timeout.ms": 3_000}}
    counters = write(broker, topic, rows, retry=Retry(max_wait_s=0.5), **options)
    killer.join()
    assert killed.is_set()
    assert counters["rows_written"] == 2000
    broker.kill()
    starter = threading.Thread(target=broker.start)
    starter.start()
    values = [each.value or b"" for each in read(broker, topic)]
    starter.join()
    assert set(values) == set(rows)


@pytest.mark.parametrize("block", blocks_that_need("kafka"), ids=lambda block: f"{block.page}:{block.line}")
def test_the_blocks_of_the_pages_run(block: Block, broker: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    code = block.code.replace("localhost:9092", broker.servers).replace('"orders"', f'"{new_topic(broker)}"')
    exec(compile(code, block.page, "exec"), {"__name__": "page"})
    assert "b'17' b'{" in capsys.readouterr().out


def test_no_message_shows_a_password() -> None:
    config = {"sasl.password": "secret"}
    for transform in (ReadFromKafka("h:9092", "t", config=config), WriteToKafka("h:9092", "t", config=config)):
        assert "secret" not in f"{transform.display_data()} {transform!r} {vars(transform)}"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ReadFromKafka("h", "t"), "bootstrap_servers is 'h'"),
        (lambda: ReadFromKafka("h:9092", []), "it must be a name, or a list"),
        (lambda: ReadFromKafka("h:9092", "t", start=StartFrom.group_offsets()), "starts at the earliest or latest"),
        (lambda: ReadFromKafka("h:9092", "t", config={"group.id": "g"}), "config cannot set group.id"),
        (lambda: WriteToKafka("h:9092", ""), "it must be a name"),
        (lambda: WriteToKafka("h:9092", "t", config={"acks": 1}), "config cannot set acks"),
    ],
)
def test_arguments_are_checked_when_it_is_built(build: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        build()
