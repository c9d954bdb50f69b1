"""The submission of a pipeline: topics are looked up, and `--report` ends the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import Message, MessageQueue, ReadFromRocketMQ, StopAt, WriteToRocketMQ, runners
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import TransportError
from rmqio.options import ClientOptions
from rmqio.runners.submission import Refused
from rmqio.testing import InMemoryClientFactory, InMemoryCluster


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        yield cluster


def reading(topic: object, cluster: InMemoryCluster, *argv: str) -> beam.Pipeline:
    pipeline = beam.Pipeline(options=runners.options([*argv]))
    factory = InMemoryClientFactory(cluster.name)
    _ = pipeline | "Read" >> ReadFromRocketMQ(topic, stop=StopAt.latest(), client_factory=factory)
    return pipeline


@pytest.mark.parametrize("topic", ["oders", ["orders", "oders"], [MessageQueue("oders", "broker", 0)]])
def test_a_misspelt_topic_is_refused_with_the_nearest_name(cluster: InMemoryCluster, topic: object) -> None:
    with pytest.raises(Refused, match=r"^Read: topic 'oders' does not exist: did you mean 'orders'\?$"):
        reading(topic, cluster).run()


def test_a_topic_like_no_other_is_refused_with_the_command_that_lists_them(cluster: InMemoryCluster) -> None:
    with pytest.raises(Refused, match=r"^Read: topic 'xyz' does not exist: `rmqio topics` lists"):
        reading("xyz", cluster).run()


def test_a_misspelt_sink_and_a_misspelt_topic_of_dead_letters_are_refused(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(options=runners.options([]))
    _ = pipeline | beam.Create([Message(b"x")]) | "Write" >> WriteToRocketMQ("order", client_factory=factory)
    with pytest.raises(Refused, match=r"^Write: topic 'order' does not exist: did you mean 'orders'"):
        pipeline.run()
    pipeline = beam.Pipeline(options=runners.options([]))
    write = WriteToRocketMQ("orders", client_factory=factory, dead_letter_topic="dead")
    _ = pipeline | beam.Create([Message(b"x")]) | "Write" >> write
    with pytest.raises(Refused, match=r"^Write/Dead letters/Write: topic 'dead' does not exist"):
        pipeline.run()
    assert cluster.records("orders") == []


def test_a_job_that_resumes_is_not_refused(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """Name servers forget the topics of brokers that are down."""
    (tmp_path / "offsets").write_text("")
    with pytest.raises(Exception, match="TOPIC_NOT_EXIST"):
        reading("oders", cluster, f"--checkpoint_dir={tmp_path}").run()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"consumer_group": "bilings"}, "group 'bilings' has no offset there"),
        ({"consumer_group": "bilings", "topic": re.compile("ord.*")}, "topics that match 'ord.*' reads none of 1"),
        ({}, "begins at the latest offset"),
    ],
    ids=["group", "pattern", "latest"],
)
@pytest.mark.parametrize("runner", [None, FnApiRunner()], ids=["ours", "Beam's"])
def test_a_read_that_can_read_nothing_says_so_once(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture, runner: Any, given: dict[str, Any], words: str
) -> None:
    cluster.append("orders", b"x")
    for expected in (1, 1 if "consumer_group" not in given else 0):  # then the group has an offset
        caplog.clear()
        with beam.Pipeline(runner, options=runners.options([])) as pipeline:
            topic, factory = given.get("topic", "orders"), InMemoryClientFactory(cluster.name)
            group = given.get("consumer_group")
            _ = pipeline | ReadFromRocketMQ(topic, consumer_group=group, stop=StopAt.latest(), client_factory=factory)
        said = [each.getMessage() for each in caplog.records if "reads none of" in each.getMessage()]
        assert len(said) == expected
        assert all(words in each and "start=StartFrom" in each for each in said)


def test_other_failures_are_left_to_the_run(cluster: InMemoryCluster) -> None:
    cluster.fail_next("queues", TransportError("no name server answers"), times=1)
    reading("orders", cluster).run()


def test_a_look_up_waits_for_no_name_server() -> None:
    factory = RemotingClientFactory(ClientOptions("127.0.0.1:1", max_retries=1_000, retry_backoff_ms=60_000))
    pipeline = beam.Pipeline(options=runners.options([]))
    read = ReadFromRocketMQ("orders", stop=StopAt.latest(), client_factory=factory)
    _ = pipeline | read
    read.look_up_topics()  # with the retries of the factory it would wait for hours


@pytest.mark.parametrize(("argv", "status"), [([], 0), (["--direct_num_workers=2"], 2)])
def test_report_ends_any_program(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], argv: list[str], status: int
) -> None:
    pipeline = beam.Pipeline(options=runners.options(["--report", *argv]))
    stop = None if status else StopAt.latest()
    factory = InMemoryClientFactory(cluster.name)
    _ = pipeline | "Read" >> ReadFromRocketMQ("oders", stop=stop, client_factory=factory)
    with pytest.raises(SystemExit) as ended:
        pipeline.run()
    assert ended.value.code == status
    shown = capsys.readouterr().out
    assert "on DirectRunner" in shown
    assert ("refused" in shown) == bool(status)


def test_a_report_on_a_pipeline_that_needs_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = beam.Pipeline(options=runners.options(["--report"]))
    _ = pipeline | beam.Create([1])
    with pytest.raises(SystemExit):
        pipeline.run()
    assert capsys.readouterr().out.splitlines()[-1].split() == ["nothing", "special", "yes"]
