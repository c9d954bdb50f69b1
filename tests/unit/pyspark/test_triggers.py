"""When a micro-batch begins, where queues begin by time, and the group's offsets after Spark's commit."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from rmqio.errors import LocalError, TransportError
from rmqio.model import MessageQueue
from rmqio.pyspark import stream as stream_module
from rmqio.pyspark.progress import Position
from rmqio.pyspark.ranges import Range, read_range
from rmqio.pyspark.read_options import read_settings
from rmqio.pyspark.source import RocketMQReader
from rmqio.pyspark.stream import RocketMQStreamReader
from rmqio.sending.traces import close_tracers
from rmqio.start import StartOffsetError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import T0, append, fill

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)
Stream = Callable[..., RocketMQStreamReader]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        yield cluster
        close_tracers()


def settings(cluster: InMemoryCluster, streaming: bool, options: dict[str, Any]) -> Any:
    given = {"nameserver": "127.0.0.1:1", "outagetimeoutms": "1", "subscribe": "t"}
    given |= {name.lower(): str(value) for name, value in options.items()}
    found = read_settings(given, streaming=streaming)
    return dataclasses.replace(found, factory=InMemoryClientFactory(cluster.name))


@pytest.fixture
def stream(cluster: InMemoryCluster) -> Stream:
    def stream(**options: Any) -> RocketMQStreamReader:
        given = {"startingOffsets": "earliest"} | options
        return RocketMQStreamReader(settings(cluster, True, given), ("queueOffset",))

    return stream


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Clock:
        now = 1_000.0

        def monotonic(self) -> float:
            return self.now

        def time(self) -> float:
            return T0 / 1000

    made = Clock()
    monkeypatch.setattr(stream_module, "time", made)
    return made


def numbers(offset: dict[str, Any]) -> dict[MessageQueue, int]:
    return Position.of(offset).numbers


def test_a_micro_batch_waits_for_enough_messages_but_not_for_ever(
    cluster: InMemoryCluster, stream: Stream, clock: Any
) -> None:
    fill(cluster, 3, 1)
    reader = stream(minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert numbers(first) == {Q0: 3, Q1: 1}, "the first one of a run does not wait"
    append(cluster, Q0, 9)
    assert reader.latestOffset(first, limit) == first
    clock.now += 29
    assert reader.latestOffset(first, limit) == first
    clock.now += 1
    second = reader.latestOffset(first, limit)
    assert numbers(second) == {Q0: 12, Q1: 1}
    append(cluster, Q0, 5)
    append(cluster, Q1, 5)
    assert numbers(reader.latestOffset(second, limit)) == {Q0: 17, Q1: 6}, "enough of all queues together"


def test_messages_in_a_new_queue_count_too(cluster: InMemoryCluster, stream: Stream, clock: Any) -> None:
    fill(cluster, 1)
    reader = stream(minOffsetsPerTrigger=10)
    limit = reader.getDefaultReadLimit()
    offset = reader.latestOffset(reader.initialOffset(), limit)
    append(cluster, Q0, 3)
    (new,) = cluster.add_queues("t", 1)
    append(cluster, new, 7)
    taken_up = reader.latestOffset(offset, limit)
    assert numbers(taken_up) == numbers(offset) | {new: 0}, "the others wait"
    assert reader.partitions(offset, taken_up) == []
    assert numbers(reader.latestOffset(taken_up, limit)) == numbers(offset) | {Q0: 4, new: 7}


def test_a_limit_and_a_least_size_go_together(cluster: InMemoryCluster, stream: Stream, clock: Any) -> None:
    fill(cluster, 1)
    reader = stream(minOffsetsPerTrigger=4, maxOffsetsPerTrigger=6)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    offset = reader.latestOffset(reader.initialOffset(), limit)
    append(cluster, Q0, 3)
    assert reader.latestOffset(offset, limit) == offset
    append(cluster, Q0, 20)
    assert numbers(reader.latestOffset(offset, limit)) == {Q0: 7}


def test_a_run_that_is_to_end_does_not_wait(cluster: InMemoryCluster, stream: Stream, clock: Any) -> None:
    """Neither with Trigger.Once, which asks for everything, nor with Trigger.AvailableNow."""
    fill(cluster, 1)
    reader = stream(minOffsetsPerTrigger=100)
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    append(cluster, Q0, 1)
    assert numbers(reader.latestOffset(offset, ReadAllAvailable())) == {Q0: 2}
    reader.prepareForTriggerAvailableNow()
    assert numbers(reader.latestOffset(offset, reader.getDefaultReadLimit())) == {Q0: 2}


def test_queues_begin_at_their_own_times(cluster: InMemoryCluster, stream: Stream) -> None:
    """Messages are a second apart."""
    fill(cluster, 5, 5)
    times = f'{{"t": {{"broker-a": {{"1": {T0 + 3_000}}}}}}}'
    reader = stream(startingOffsetsByTimestamp=times)
    assert numbers(reader.initialOffset()) == {Q0: 0, Q1: 3}
    parts = RocketMQReader(settings(cluster, False, {"startingOffsetsByTimestamp": times}), ("body",)).partitions()
    assert parts == [Range(Q0, 0, 5), Range(Q1, 3, 5)]
    late = times.replace(str(T0 + 3_000), str(T0 + 10**9))
    with pytest.raises(StartOffsetError, match="startingOffsetsByTimestampStrategy=latest"):
        stream(startingOffsetsByTimestamp=late).initialOffset()
    waiting = stream(startingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert numbers(waiting.initialOffset()) == {Q0: 0, Q1: 5}
    with pytest.raises(LocalError, match=r"startingOffsetsByTimestamp.*broker-b"):
        stream(startingOffsetsByTimestamp=times.replace("broker-a", "broker-b")).initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": 5, "maxTriggerDelay": "soon"}, "a number with a unit: 500ms, 30s"),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4}, "5, more than maxOffsetsPerTrigger, which is 4"),
        ({"commitOffsets": "true"}, "commitOffsets needs the option consumerGroup"),
        ({"commitOffsets": "yes", "consumerGroup": "g"}, "commitOffsets is 'yes'; it must be true or false"),
        ({"startingOffsetsByTimestamp": "{}"}, "it must look like .*store times in Unix milliseconds"),
        ({"startingOffsetsByTimestamp": '{"t": {"b": {"0": -1}}}'}, "it must look like"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"b": {"0": 5}}}', "startingTimestamp": 5},
            "startingTimestamp and startingOffsetsByTimestamp are both given",
        ),
        ({"trace": "no such!"}, "trace: topic name 'no such!' is illegal.*must be true, false or the name of a topic"),
        ({"consumerGroup": "g"}, "consumerGroup has no effect without .*commitOffsets or trace"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"nameserver": "h:1", "subscribe": "t"} | {name.lower(): str(value) for name, value in options.items()}
    with pytest.raises(LocalError, match=message):
        read_settings(given, streaming=True)


@pytest.mark.parametrize("name", ["minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets"])
def test_options_of_streams_are_refused_in_batches(name: str) -> None:
    with pytest.raises(LocalError, match=f"{name} is an option of a stream read"):
        read_settings({"nameserver": "h:1", "subscribe": "t", name.lower(): "1"}, streaming=False)


# ---- commits --------------------------------------------------------------------------------------------------------


@pytest.fixture
def committing(stream: Stream) -> RocketMQStreamReader:
    return stream(commitOffsets="true", consumerGroup="g")


def run(reader: RocketMQStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """A micro-batch: planned, read by tasks elsewhere, and committed."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = pickle.loads(pickle.dumps(reader))
    for part in reader.partitions(start, end):
        list(tasks.read(part))
    reader.commit(end)
    return end


def test_the_group_follows_what_spark_has_committed(cluster: InMemoryCluster, committing: RocketMQStreamReader) -> None:
    fill(cluster, 5, 2)
    end = run(committing, committing.initialOffset())
    assert [cluster.committed("g", queue) for queue in (Q0, Q1)] == [5, 2]
    append(cluster, Q0, 3)
    run(committing, end)
    assert sorted(cluster.commits) == [("g", Q0, 5), ("g", Q0, 8), ("g", Q1, 2)], "only what is ahead"


def test_nothing_is_committed_unless_it_is_asked_for(cluster: InMemoryCluster, stream: Stream) -> None:
    fill(cluster, 5)
    reader = stream(consumerGroup="g", startingOffsets="group", groupOffsetsReset="earliest")
    run(reader, reader.initialOffset())
    assert cluster.commits == []


def test_a_group_that_is_ahead_is_not_set_back(cluster: InMemoryCluster, committing: RocketMQStreamReader) -> None:
    """A query that was restarted from an older checkpoint."""
    fill(cluster, 5)
    client = InMemoryClientFactory(cluster.name).queue_client()
    client.commit_offset("g", Q0, 5)
    committing.commit({"t": {"broker-a": {"0": 3}}})
    assert cluster.committed("g", Q0) == 5
    client.close()


def test_a_broker_that_is_away_fails_no_stream_and_the_next_commit_makes_up_for_it(
    cluster: InMemoryCluster, committing: RocketMQStreamReader, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 5)
    start = committing.initialOffset()
    end = committing.latestOffset(start, committing.getDefaultReadLimit())
    cluster.fail_next("commit_offset", TransportError("away"), times=1)
    with caplog.at_level(logging.WARNING):
        committing.commit(end)
    assert "offsets of 1 queues were not committed for group g; the first is queue t/broker-a/0: away" in caplog.text
    assert cluster.committed("g", Q0) is None
    run(committing, end)
    assert cluster.committed("g", Q0) == 5


def test_the_group_follows_a_topic_that_was_created_anew(cluster: InMemoryCluster, stream: Stream) -> None:
    """Its offsets begin at 0 again, and brokers have forgotten the group's."""
    reader = stream(commitOffsets="true", consumerGroup="g", failOnDataLoss="false")
    fill(cluster, 5)
    end = run(reader, reader.initialOffset())
    assert cluster.committed("g", Q0) == 5
    cluster.delete_topic("t")
    fill(cluster, 2)
    end = run(reader, end)
    assert cluster.committed("g", Q0) == 2
    append(cluster, Q0, 1)
    run(reader, end)
    assert cluster.committed("g", Q0) == 3


def test_an_operators_reset_is_logged_and_committed_over(
    cluster: InMemoryCluster, committing: RocketMQStreamReader, caplog: pytest.LogCaptureFixture
) -> None:
    """The position of a stream is in its checkpoint."""
    fill(cluster, 5)
    end = run(committing, committing.initialOffset())
    cluster.reset_group("g", Q0, 2)
    append(cluster, Q0, 1)
    with caplog.at_level(logging.WARNING):
        run(committing, end)
    assert cluster.committed("g", Q0) == 6
    assert "the offset of group g was reset to 2; the stream continues at 6" in caplog.text


# ---- traces ---------------------------------------------------------------------------------------------------------


def test_a_task_traces_what_it_reads(cluster: InMemoryCluster) -> None:
    fill(cluster, 3)
    cluster.create_topic("Trace", 1)
    found = settings(cluster, False, {"trace": "Trace", "consumerGroup": "g"})
    list(read_range(found, Range(Q0, 0, 3), ("body",)))
    body = b"".join(record.body for record in cluster.records("Trace"))
    assert body.count(b"SubBefore\x01") == body.count(b"SubAfter\x01") == 3
    assert b"\x01g\x01" in body
