"""At least once between two rmqio ends becomes once: the read drops what a failed bundle has sent twice."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from rmqio import LookBack, Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import RmqioError
from rmqio.local import LocalRocketMQ
from rmqio.options import ClientOptions
from rmqio.pipelines.check import read_topic
from rmqio.runners.spark import SparkRunner
from tests.helpers.deduplicating import copying
from tests.helpers.delivery import FLINK
from tests.helpers.jobs import Job, started
from tests.helpers.ledger import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]


class Lab:
    """Topics on the broker of the test run, and reads and writes of them."""

    def __init__(self, broker: LocalRocketMQ) -> None:
        self.broker, self.name_server = broker, broker.name_server
        self._client = RemotingQueueClient(ClientOptions(broker.name_server))
        self._producer = RemotingClientFactory(ClientOptions(broker.name_server)).producer("g")
        self._turn = 0

    def topic(self) -> str:
        name = f"once-{uuid.uuid4().hex[:12]}"
        self.broker.create_topic(name, queues=2)
        return name

    def send(self, topic: str, numbers: range) -> None:
        """Sends numbers. Each number has its own id, and goes to another queue than the last time."""
        self._turn += 1
        queues = self._producer.queues(topic)
        for half in (0, 1):
            some = numbers[half::2]
            messages, ids = [Message(b"%d" % n) for n in some], [f"{n:032X}" for n in some]
            self._producer.send_batch(messages, queues[(self._turn + half) % 2], message_ids=ids)

    def copied(self, topic: str) -> Counter[int]:
        return Counter(int(record.body) for record in read_topic(self._client, topic))

    def ids(self, topic: str) -> set[str]:
        return {record.message_id for record in read_topic(self._client, topic)}

    def close(self) -> None:
        self._producer.close()
        self._client.close()


@pytest.fixture
def lab(rocketmq: LocalRocketMQ) -> Iterator[Lab]:
    with contextlib.closing(Lab(rocketmq)) as made:
        yield made


class FailOnce(beam.DoFn):
    """Fails when it sees its first result, unless a process has already failed. What it sees is stored by then."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def process(self, element: Any) -> None:
        with contextlib.suppress(FileExistsError):
            self._marker.touch(exist_ok=False)
            raise RmqioError("behind the write, once")


def test_what_a_task_that_fails_has_sent_twice_comes_out_once(lab: Lab, tmp_path: Path) -> None:
    """Spark runs the task again, and the next job drops its duplicates."""
    source, sink, target = lab.topic(), lab.topic(), lab.topic()
    lab.send(source, range(300))
    wait_until(lambda: len(lab.copied(source)) == 300, "all are there")
    marker = tmp_path / "failed"
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        read = ReadFromRocketMQ(source, name_server=lab.name_server, start=StartFrom.earliest(), stop=StopAt.latest())
        written = pipeline | read | WriteToRocketMQ(sink, name_server=lab.name_server)
        _ = written.sent | beam.ParDo(FailOnce(marker))
    assert marker.exists()
    wait_until(lambda: len(lab.copied(sink)) == 300, "all are copied")
    stored = lab.copied(sink)
    assert stored.total() > 300
    assert len(lab.ids(sink)) == 300
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        copying(pipeline, sink, target, lab.name_server, StopAt.latest())
    wait_until(lambda: len(lab.copied(target)) == 300, "all are copied")
    assert lab.copied(target).total() == 300


def test_an_exactly_once_write_sends_nothing_of_it_twice(lab: Lab, tmp_path: Path) -> None:
    source, sink = lab.topic(), lab.topic()
    lab.send(source, range(300))
    wait_until(lambda: len(lab.copied(source)) == 300, "all are there")
    marker = tmp_path / "failed"
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        read = ReadFromRocketMQ(source, name_server=lab.name_server, start=StartFrom.earliest(), stop=StopAt.latest())
        write = WriteToRocketMQ(sink, name_server=lab.name_server, exactly_once=LookBack(f"{sink}-position"))
        _ = (pipeline | read | write).sent | beam.ParDo(FailOnce(marker))
    assert marker.exists()
    wait_until(lambda: len(lab.copied(sink)) == 300, "all are copied")
    assert lab.copied(sink) == Counter(range(300))


@contextlib.contextmanager
def on_spark(lab: Lab, source: str, sink: str, folder: Path) -> Iterator[None]:
    options = PipelineOptions(["--streaming", f"--checkpoint_dir={folder / 'checkpoint'}"])
    pipeline = beam.Pipeline(runner=SparkRunner(), options=options)
    copying(pipeline, source, sink, lab.name_server, None)
    result = pipeline.run()
    try:
        yield
    finally:
        result.cancel()


@contextlib.contextmanager
def on_flink(lab: Lab, source: str, sink: str, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.helpers.deduplicating", f"--name_server={lab.name_server}"]
    with started(Job([*command, f"--source={source}", f"--sink={sink}", *FLINK.with_workers(2)], folder)) as job:
        yield
        assert job.interrupt() == 130, job.log.read_text()


@pytest.mark.parametrize("running", [on_spark, on_flink])
def test_an_endless_read_drops_what_it_has_seen_before(lab: Lab, running: Any, tmp_path: Path) -> None:
    source, sink = lab.topic(), lab.topic()
    for _ in range(2):
        lab.send(source, range(100))
    with running(lab, source, sink, tmp_path):
        wait_until(lambda: len(lab.copied(sink)) == 100, "the first", 240)
        lab.send(source, range(50, 200))
        wait_until(lambda: len(lab.copied(sink)) == 200, "the second", 240)
    assert lab.copied(source).total() == 350
    assert lab.copied(sink) == Counter(range(200))
