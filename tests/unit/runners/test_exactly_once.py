"""Runners refuse, beside exactly-once writes, second writers, checkpoints that overlap, groups that others use."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from rmqio import LookBack, Message, ReadAllFromRocketMQ, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ, runners
from rmqio.errors import LocalError
from rmqio.runners.flink import FlinkRunner
from rmqio.runners.submission import Refused, exactly_once_writes
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.pipelines.needy_pipelines import proto, read

if importlib.util.find_spec("pyspark"):
    from rmqio.runners.spark import SparkRunner
    from rmqio.runners.spark.runner import refuse_in_session


def key_of(message: Message) -> str:
    return message.keys[0]


def writing(group: str = "sink", topic: str = "totals", **arguments: Any) -> WriteToRocketMQ:
    once = LookBack(group=group)
    return WriteToRocketMQ(topic, name_server="127.0.0.1:1", id_fn=key_of, exactly_once=once, **arguments)


def once(pipeline: Any) -> Any:
    return pipeline | read() | "Messages" >> beam.Map(Message) | "Totals" >> writing()


def at_least_once(pipeline: Any) -> Any:
    write = WriteToRocketMQ("totals", name_server="127.0.0.1:1", id_fn=key_of, producer_group="sink")
    return pipeline | read() | "Messages" >> beam.Map(Message) | "Totals" >> write


def inside(pipeline: Any) -> Any:
    class Mine(beam.PTransform[Any, Any]):
        def expand(self, messages: Any) -> Any:
            return messages | "Totals" >> writing()

    return pipeline | read() | "Messages" >> beam.Map(Message) | "Mine" >> Mine()


def test_the_names_of_exactly_once_writes() -> None:
    assert exactly_once_writes(proto(once)) == ["Totals"]
    assert exactly_once_writes(proto(inside)) == ["Mine/Totals"]
    assert exactly_once_writes(proto(at_least_once)) == []


SPECULATES = "--spark_conf=spark.speculation="


@pytest.mark.skipif(not importlib.util.find_spec("pyspark"), reason="the Spark runner needs the extra 'spark'")
class TestOnSpark:
    @pytest.mark.parametrize("flags", [[], ["--streaming"]])
    @pytest.mark.parametrize("value", ["true", " TRUE"])
    def test_speculative_tasks_are_refused(self, flags: list[str], value: str) -> None:
        options = PipelineOptions([*flags, SPECULATES + value])
        said = r"^Totals is an exactly-once write, and --spark_conf spark.speculation=.*stored twice. Leave it out$"
        with pytest.raises(Refused, match=said):
            SparkRunner().report(proto(once), options)
        SparkRunner().report(proto(at_least_once), options)

    def test_without_speculation_nothing_is_refused(self) -> None:
        SparkRunner().report(proto(once), PipelineOptions(["--streaming", SPECULATES + "false"]))
        SparkRunner().report(proto(once), PipelineOptions(["--streaming", "--spark_conf=spark.executor.memory=2g"]))

    def test_the_settings_of_a_running_spark_count_too(self) -> None:
        said = r"Totals .*Spark's setting spark.speculation=true.*Give --spark_conf spark.speculation=false"
        with pytest.raises(Refused, match=said):
            refuse_in_session(["Totals"], {"spark.speculation": "true"})
        refuse_in_session(["Totals"], {"spark.speculation": "false"})
        refuse_in_session([], {"spark.speculation": "true"})


class TestOnFlink:
    def test_checkpoints_that_overlap_are_refused(self) -> None:
        options = PipelineOptions(["--num_concurrent_checkpoints=2"])
        said = r"^Totals is an exactly-once write.*--num_concurrent_checkpoints=2 lets them overlap.*Leave it out$"
        with pytest.raises(LocalError, match=said):
            FlinkRunner().report(proto(once), options)
        FlinkRunner().report(proto(at_least_once), options)

    @pytest.mark.parametrize("flags", [[], ["--num_concurrent_checkpoints=1"]])
    def test_checkpoints_one_at_a_time_are_not(self, flags: list[str]) -> None:
        FlinkRunner().report(proto(once), PipelineOptions(flags))

    def test_a_batch_job_has_no_checkpoints(self) -> None:
        def bounded(pipeline: Any) -> Any:
            return pipeline | beam.Create([Message(b"a", keys=["a"])]) | writing()

        FlinkRunner().report(proto(bounded), PipelineOptions(["--num_concurrent_checkpoints=2"]))

    def test_their_number_is_checked(self) -> None:
        with pytest.raises(LocalError, match="--num_concurrent_checkpoints=0: it must be at least 1"):
            FlinkRunner().report(proto(at_least_once), PipelineOptions(["--num_concurrent_checkpoints=0"]))


# ---- the group -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        for topic in ("orders", "totals", "others"):
            cluster.create_topic(topic, queues=1)
        yield cluster


def submit(build: Any, cluster: InMemoryCluster, *flags: str) -> None:
    """Runs a pipeline with an exactly-once write of group `sink` to the topic `totals`."""
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(options=runners.options(["--streaming", *flags]))
    messages = pipeline | beam.Create([Message(b"a", keys=["a"])])
    once = LookBack(group="sink")
    totals = WriteToRocketMQ("totals", id_fn=key_of, exactly_once=once, client_factory=factory)
    _ = messages | "Totals" >> totals
    build(pipeline, messages, factory)
    pipeline.run().wait_until_finish()


def another(messages: Any, factory: InMemoryClientFactory, topic: str, group: str) -> Any:
    look_back = LookBack(group=group)
    write = WriteToRocketMQ(topic, id_fn=key_of, exactly_once=look_back, client_factory=factory)
    return messages | "Another" >> write


def reading(pipeline: Any, factory: InMemoryClientFactory, topic: str | list[str], group: str) -> Any:
    start, stop = StartFrom.earliest(), StopAt.latest()
    read = ReadFromRocketMQ(topic, start=start, stop=stop, consumer_group=group, client_factory=factory)
    return pipeline | "Read" >> read


@pytest.mark.parametrize(
    ("build", "other", "group"),
    [
        (lambda p, m, f: another(m, f, "totals", "sink"), "Another", "sink"),
        (lambda p, m, f: another(m, f, "totals", "sink_queues"), "Another", "sink_queues"),
        (lambda p, m, f: reading(p, f, "totals", "sink"), "Read", "sink"),
        (lambda p, m, f: reading(p, f, ["orders", "totals"], "sink_queues"), "Read", "sink_queues"),
    ],
)
def test_a_group_that_another_transform_commits_is_refused(
    build: Any, other: str, group: str, cluster: InMemoryCluster
) -> None:
    said = rf"^Totals is an exactly-once write, and {other} commits offsets of its group '{group}' for topic 'totals'"
    with pytest.raises(Refused, match=said):
        submit(build, cluster)
    assert cluster.records("totals") == []


@pytest.mark.parametrize(
    "build",
    [
        lambda p, m, f: another(m, f, "others", "sink"),
        lambda p, m, f: another(m, f, "totals", "another"),
        lambda p, m, f: reading(p, f, "totals", "readers"),
        lambda p, m, f: reading(p, f, "orders", "sink"),
        lambda p, m, f: (
            p
            | "Topics" >> beam.Create(["orders"])
            | ReadAllFromRocketMQ(
                start=StartFrom.earliest(), stop=StopAt.latest(), consumer_group="sink", client_factory=f
            )
        ),
    ],
)
def test_other_groups_and_topics_are_accepted(build: Any, cluster: InMemoryCluster) -> None:
    submit(build, cluster)
    assert {record.body for record in cluster.records("totals")} == {b"a"}


def test_a_bounded_pipeline_commits_no_position(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    with beam.Pipeline(options=runners.options([])) as pipeline:
        messages = pipeline | beam.Create([Message(b"a", keys=["a"])])
        _ = another(messages, factory, "totals", "sink")
        _ = reading(pipeline, factory, "totals", "sink")
    assert [record.body for record in cluster.records("totals")] == [b"a"]
