"""A pipeline without checkpoints is killed between its positions, and started again: nothing is lost or there twice."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import LookBack, QueueDescriptor, ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, StartFrom
from rmqio import WriteToRocketMQ as Write
from rmqio.errors import TransportError
from rmqio.model import MessageQueue, Record
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.testing.cluster import find_cluster
from rmqio.transforms import write as writes
from rmqio.transforms.reading.in_process import reads_of
from rmqio.transforms.writing import sink_state as sinks
from rmqio.transforms.writing.sink_state import Sink
from tests.helpers.transforms.reading import Stop, given_up
from tests.helpers.transforms.writing_once import GROUP, bodies, position

COUNT = 400
SOURCE = MessageQueue("source", "broker-a", 0)


class StopWhen(beam.DoFn):
    """Raises `Stop` when a bundle has sent so much that the topic holds this many messages: nothing is committed."""

    def __init__(self, cluster: InMemoryCluster, count: int) -> None:
        self._cluster, self._count = cluster.name, count

    def process(self, element: Any) -> None:
        if len(find_cluster(self._cluster).records("t")) >= self._count:
            raise Stop("it is killed")


def reading(cluster: InMemoryCluster, **given: Any) -> ReadFromRocketMQ:
    options: dict[str, Any] = {"poll_timeout_ms": 1, "max_records_per_bundle": 1} | given.pop("options", {})
    arguments: dict[str, Any] = {"consumer_group": "g", "start": StartFrom.group_offsets("earliest")} | given
    factory = InMemoryClientFactory(cluster.name)
    return ReadFromRocketMQ("source", options=ReadOptions(**options), client_factory=factory, **arguments)


def run_until_killed(cluster: InMemoryCluster, read: Any, count: int) -> None:
    sinks._states.clear()  # a new process
    pipeline = beam.Pipeline(FnApiRunner())
    write = Write("t", exactly_once=LookBack(GROUP), client_factory=InMemoryClientFactory(cluster.name))
    _ = (pipeline | read | write).sent | beam.ParDo(StopWhen(cluster, count))
    with given_up(cluster, "too few were sent"), pytest.raises(Exception, match="it is killed"):
        pipeline.run()


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("given", "resumes"),
    [
        ({}, True),
        ({"options": {"offset_commit_interval_ms": 0}}, True),
        ({"options": {"offset_commit_interval_ms": HOUR_MS}}, True),
        ({"options": {"commit_offsets": False}}, False),
        ({"start": StartFrom.earliest()}, False),
        ({"start": StartFrom.earliest(), "consumer_group": None}, False),
        ({"start": StartFrom.timestamp(0), "options": {"offset_commit_interval_ms": 0}}, False),
        ({"start": StartFrom.specific_offsets({SOURCE: 0}), "options": {"offset_commit_interval_ms": 0}}, False),
    ],
    ids=["default", "each bundle", "hour", "never", "earliest", "no group", "time", "offset"],
)
def test_a_pipeline_that_is_killed_sends_nothing_twice(
    cluster: InMemoryCluster, given: dict[str, Any], resumes: bool
) -> None:
    """The position of the sink is never ahead of where a restart reads."""
    cluster.create_topic("source", 1)
    for number in range(COUNT):
        cluster.append("source", b"%d" % number)
    for count in (130, 260, COUNT):
        run_until_killed(cluster, reading(cluster, **given), count)
    assert bodies(cluster) == [*range(COUNT)]
    if resumes:
        assert 0 < position(cluster) <= (cluster.committed("g", SOURCE) or 0)
    else:
        assert position(cluster) == 0


def test_the_position_waits_while_commits_of_the_read_fail(cluster: InMemoryCluster) -> None:
    cluster.create_topic("source", 1)
    for number in range(COUNT):
        cluster.append("source", b"%d" % number)
    for count in (130, COUNT):
        cluster.fail_next("commit_offset", TransportError("away"), times=1_000, queue=SOURCE)
        run_until_killed(cluster, reading(cluster, options={"offset_commit_interval_ms": 0}), count)
    assert bodies(cluster) == [*range(COUNT)]


def test_the_position_stays_if_nobody_knows_where_a_restart_reads(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(FnApiRunner())
    first, second = ("First" >> reading(cluster), "Second" >> reading(cluster))
    one, other = pipeline | first, pipeline | second
    made = pipeline | beam.Create([b"1"])
    arriving = pipeline | "Queues" >> beam.Create([QueueDescriptor(SOURCE)])
    read_all = arriving | ReadAllFromRocketMQ(client_factory=factory)
    both = (one | "Names" >> beam.Map(repr), other) | beam.Flatten()
    assert len(reads_of(one)) == len(reads_of(read_all)) == 1
    assert set(reads_of(both)) == {*reads_of(one), *reads_of(other)}
    assert reads_of(made) == reads_of((one, made) | "All" >> beam.Flatten()) == ()
    several = beam.Pipeline(FnApiRunner(), PipelineOptions(["--direct_num_workers=2"]))
    assert reads_of(several | reading(cluster)) == (), "they do not see each other's commits"
    assert one.element_type is Record


class RunnerWithCheckpoints(FnApiRunner):
    """A runner that this library does not know."""


@pytest.mark.parametrize(
    ("interval_ms", "commits", "held_s"), [(5_000, True, 0.0), (HOUR_MS, True, 3_595.0), (HOUR_MS, False, 0.0)]
)
def test_a_stream_can_start_without_its_checkpoint(
    cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, interval_ms: int, commits: bool, held_s: float
) -> None:
    """From the offsets of its group, which are as old as the time between commits."""
    made: list[Sink] = []

    def make(*given: Any) -> Sink:
        made.append(Sink(*given))
        return made[-1]

    monkeypatch.setattr(writes, "Sink", make)
    read = reading(cluster, options={"offset_commit_interval_ms": interval_ms, "commit_offsets": commits})
    write = Write("t", exactly_once=LookBack(GROUP), client_factory=InMemoryClientFactory(cluster.name))
    _ = beam.Pipeline(RunnerWithCheckpoints()) | read | write
    assert [sink.held_s for sink in made] == [held_s], "beyond the usual time, which is 0 here"
