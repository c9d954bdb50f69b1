"""At least once between two rmqio ends becomes once: the read drops what a failed bundle has sent twice."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from rmqio import LookBack, Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.options import ClientOptions
from rmqio.runners.spark import SparkRunner
from tests.helpers.check import read_topic
from tests.helpers.ledgers.delivery import FLINK
from tests.helpers.pipelines.counting import WINDOW_S, FailOnce, body_of
from tests.helpers.pipelines.deduplicating import copying
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most, runs, until_found

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

    def send_bodies(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Sends all bodies to each queue."""
        for queue in self._producer.queues(topic):
            self._producer.send_batch([Message(body) for body in bodies], queue)

    def copied(self, topic: str) -> Counter[int]:
        return Counter(int(record.body) for record in read_topic(self._client, topic))

    def ids(self, topic: str) -> set[str]:
        return {record.message_id for record in read_topic(self._client, topic)}

    def bodies(self, topic: str) -> dict[str, list[bytes]]:
        """Returns the bodies that were stored with each id."""
        found: dict[str, list[bytes]] = {}
        for record in read_topic(self._client, topic):
            found.setdefault(record.message_id, []).append(record.body)
        return found

    def close(self) -> None:
        self._producer.close()
        self._client.close()


@pytest.fixture
def lab(rocketmq: LocalRocketMQ) -> Iterator[Lab]:
    with contextlib.closing(Lab(rocketmq)) as made:
        yield made


def test_what_a_task_that_fails_has_sent_twice_comes_out_once(lab: Lab, tmp_path: Path) -> None:
    """Spark runs the task again, and the next job drops its duplicates."""
    source, sink, target = lab.topic(), lab.topic(), lab.topic()
    lab.send(source, range(300))
    until_found(lambda: lab.copied(source), range(300))
    marker = tmp_path / "failed"
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        read = ReadFromRocketMQ(source, name_server=lab.name_server, start=StartFrom.earliest(), stop=StopAt.latest())
        written = pipeline | read | WriteToRocketMQ(sink, name_server=lab.name_server)
        _ = written.sent | beam.ParDo(FailOnce(marker))
    assert marker.exists()
    until_found(lambda: lab.copied(sink), range(300))
    stored = lab.copied(sink)
    assert stored.total() > 300
    assert len(lab.ids(sink)) == 300
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        copying(pipeline, sink, target, lab.name_server, StopAt.latest())
    until_found(lambda: lab.copied(target), range(300))
    assert lab.copied(target).total() == 300


def test_an_exactly_once_write_sends_nothing_of_it_twice(lab: Lab, tmp_path: Path) -> None:
    source, sink = lab.topic(), lab.topic()
    lab.send(source, range(300))
    until_found(lambda: lab.copied(source), range(300))
    marker = tmp_path / "failed"
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        read = ReadFromRocketMQ(source, name_server=lab.name_server, start=StartFrom.earliest(), stop=StopAt.latest())
        write = WriteToRocketMQ(sink, name_server=lab.name_server, exactly_once=LookBack(f"{sink}-position"))
        _ = (pipeline | read | write).sent | beam.ParDo(FailOnce(marker))
    assert marker.exists()
    until_found(lambda: lab.copied(sink), range(300))
    assert lab.copied(sink) == Counter(range(300))


@contextlib.contextmanager
def on_spark(lab: Lab, source: str, sink: str, folder: Path) -> Iterator[Callable[[], bool]]:
    """Yields whether it runs."""
    options = PipelineOptions(["--streaming", f"--checkpoint_dir={folder / 'checkpoint'}"])
    pipeline = beam.Pipeline(runner=SparkRunner(), options=options)
    copying(pipeline, source, sink, lab.name_server, None)
    result = pipeline.run()
    try:
        yield goes_on(result)
    finally:
        result.cancel()


@contextlib.contextmanager
def on_flink(lab: Lab, source: str, sink: str, folder: Path) -> Iterator[Callable[[], bool]]:
    command = [sys.executable, "-m", "tests.helpers.pipelines.deduplicating", f"--name_server={lab.name_server}"]
    with started(Job([*command, f"--source={source}", f"--sink={sink}", *FLINK.with_workers(2)], folder)) as job:
        yield runs(job.process, job.log.read_text)
        assert job.interrupt() == 130, job.log.read_text()


@pytest.mark.parametrize("running", [on_spark, on_flink])
def test_an_endless_read_drops_what_it_has_seen_before(lab: Lab, running: Any, tmp_path: Path) -> None:
    source, sink = lab.topic(), lab.topic()
    for _ in range(2):
        lab.send(source, range(100))

    with running(lab, source, sink, tmp_path) as is_up:
        until_found(lambda: lab.copied(sink), range(100), alive=[is_up], still_s=240)
        lab.send(source, range(50, 200))
        until_found(lambda: lab.copied(sink), range(200), alive=[is_up], still_s=240)
    assert lab.copied(source).total() == 350
    assert lab.copied(sink) == Counter(range(200))


def fails_and_starts_again(command: Sequence[str], folder: Path) -> list[str]:
    """Runs a stream on Spark until it fails. Returns the command that continues from its checkpoint."""
    command = [*command, "--runner=SparkRunner", "--streaming", "--spark_master_url=local[2,1]"]
    command.append(f"--checkpoint_dir={folder / 'checkpoint'}")
    with started(Job(command, folder)) as job:
        assert job.process.wait(at_most(240)) == 1
        assert "after the write, once" in job.log.read_text()
    return command


def is_restarted_by_flink(command: Sequence[str], folder: Path) -> list[str]:
    return [*command, *FLINK.with_workers(2)]


@pytest.mark.parametrize("after_failure", [fails_and_starts_again, is_restarted_by_flink])
def test_copies_after_a_restart_have_the_default_ids_of_their_originals(
    lab: Lab, after_failure: Any, tmp_path: Path
) -> None:
    source, sink, marker = lab.topic(), lab.topic(), tmp_path / "failed"
    keys, windows = [f"k{n}" for n in range(20)], range(5)
    lab.send_bodies(source, [body_of(key, window * WINDOW_S) for window in windows for key in keys])
    lab.send_bodies(source, [body_of("last", 100 * WINDOW_S)])  # moves the watermark
    command = [sys.executable, "-m", "tests.helpers.pipelines.counting", f"--name_server={lab.name_server}"]
    command = after_failure([*command, f"--source={source}", f"--sink={sink}", f"--marker={marker}"], tmp_path)

    def has_copies() -> bool:
        found = lab.bodies(sink)
        return len(found) >= len(keys) * len(windows) and any(len(copies) > 1 for copies in found.values())

    with started(Job(command, tmp_path)) as job:
        job.wait_until(has_copies, "all totals, and some of them twice", details=lambda: lab.bodies(sink))
        assert job.interrupt() == 130, job.log.read_text()
    assert marker.exists()
    found = lab.bodies(sink)
    assert all(len(set(copies)) == 1 for copies in found.values())
    totals = Counter(copies[0] for copies in found.values())
    assert totals == {f"{key} 2".encode(): len(windows) for key in keys}
