"""The plans and reads of the format `rocketmq`, called as Spark calls it, on a cluster in memory, with faults."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rmqio.errors import BrokerSilent, CorruptMessage, LocalError, RmqioError, SystemBusy, TransportError
from rmqio.model import MessageQueue
from rmqio.pyspark.ranges import DataLoss
from rmqio.pyspark.read_options import read_settings
from rmqio.pyspark.source import RocketMQReader
from rmqio.pyspark.stream import QueuesLost, RocketMQStreamReader
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.topics import Subscription
from tests.helpers.transforms.reading import T0, append

ALL = ReadAllAvailable()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Of the cluster, and of the readers."""
    clock = ManualClock()
    for module in ("stream", "ranges"):
        monkeypatch.setattr(f"rmqio.pyspark.{module}.time", clock)
    return clock


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[InMemoryCluster]:
    with InMemoryCluster(clock=clock) as cluster:
        cluster.create_topic("t", 1)
        yield cluster


@pytest.fixture
def queue(cluster: InMemoryCluster) -> MessageQueue:
    return send(cluster, 100)


def send(cluster: InMemoryCluster, count: int) -> MessageQueue:
    for _ in range(count):
        cluster.append("t", b"x", queue_id=0)
    return MessageQueue("t", cluster.records("t")[0].broker, 0)


@pytest.fixture
def stream(cluster: InMemoryCluster) -> Callable[..., RocketMQStreamReader]:
    def stream(**options: Any) -> RocketMQStreamReader:
        return RocketMQStreamReader(settings(cluster, True, options), ("queueOffset",))

    return stream


def settings(cluster: InMemoryCluster, streaming: bool, options: dict[str, Any]) -> Any:
    given = {"nameserver": "127.0.0.1:1", "outagetimeoutms": "1"} | ({} if "assign" in options else {"subscribe": "t"})
    given |= {name.lower(): str(value) for name, value in options.items()}
    found = read_settings(given, streaming=streaming)
    return dataclasses.replace(found, factory=InMemoryClientFactory(cluster.name))


def read(reader: Any, parts: Any) -> list[int]:
    """The offsets that tasks read, each with a copy of the reader."""
    reader = pickle.loads(pickle.dumps(reader))
    return [offset for part in parts for batch in reader.read(part) for offset in batch.column(0).to_pylist()]


def test_where_a_new_stream_begins_is_asked_once(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    reader = stream()
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ALL) == begin, "nothing is new, word for word"
    send(cluster, 5)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    send(cluster, 5)
    assert read(reader, reader.partitions(reader.initialOffset(), end)) == list(range(100, 105))
    assert read(reader, reader.partitions(end, end)) == [], "nothing between where the first one ended and there"
    following = reader.latestOffset(end, ALL)
    assert read(reader, reader.partitions(end, following)) == list(range(105, 110))
    assert reader.latestOffset(following, ALL) == following


def test_a_first_micro_batch_that_failed_is_read_again_as_it_was_planned(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    reader = stream()
    begin = reader.initialOffset()
    send(cluster, 5)
    end = reader.latestOffset(begin, ALL)
    send(cluster, 7)
    restarted = stream()
    parts = restarted.partitions(restarted.initialOffset(), end)
    assert read(restarted, parts) == list(range(100, 105))
    assert read(restarted, restarted.partitions(end, restarted.latestOffset(end, ALL))) == list(range(105, 112))


@pytest.mark.parametrize("broken", [104, 105])
def test_a_corrupt_message_fails_the_micro_batch_that_it_is_in(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader], broken: int
) -> None:
    reader = stream()
    begin = reader.initialOffset()
    send(cluster, 5)
    end = reader.latestOffset(begin, ALL)
    send(cluster, 5)
    cluster.corrupt(queue, broken)
    if broken == 105:
        assert read(reader, reader.partitions(begin, end)) == list(range(100, 105))
        end, begin = reader.latestOffset(end, ALL), end
    with pytest.raises(CorruptMessage, match=f"offset {broken}"):
        read(reader, reader.partitions(begin, end))


def test_a_stream_that_began_before_its_topic_is_read_again_as_it_was_planned(
    cluster: InMemoryCluster, stream: Callable[..., RocketMQStreamReader]
) -> None:
    def later() -> RocketMQStreamReader:
        reader = stream(startingOffsets="latest")
        reader._settings = dataclasses.replace(reader._settings, subscription=Subscription.of(re.compile("u.*")))
        return reader

    reader = later()
    begin = reader.initialOffset()
    cluster.create_topic("u1", 1)
    for _ in range(10):
        cluster.append("u1", b"x", queue_id=0)
    end = reader.latestOffset(begin, ALL)
    restarted = later()
    assert read(restarted, restarted.partitions(restarted.initialOffset(), end)) == []
    assert read(restarted, restarted.partitions(end, restarted.latestOffset(end, ALL))) == list(range(10))


@pytest.mark.parametrize("error", [SystemBusy(2, "busy", "min"), TransportError("away")])
def test_a_late_queue_whose_broker_is_busy_is_asked_again(
    cluster: InMemoryCluster, queue: MessageQueue, error: RmqioError, stream: Callable[..., RocketMQStreamReader]
) -> None:
    reader = stream(startingOffsets="earliest")
    begin = reader.latestOffset(reader.initialOffset(), ALL)
    (late,) = cluster.add_queues("t", 1)
    cluster.append("t", b"x", queue_id=late.queue_id)
    cluster.fail_next("min_offset", error, queue=late)
    assert reader.latestOffset(begin, ALL) == begin
    found = reader.latestOffset(begin, ALL)
    assert read(reader, reader.partitions(found, reader.latestOffset(found, ALL))) == [0]


def test_available_now_ends_at_its_target(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    for start, expected in (("earliest", list(range(100))), ("latest", [])):
        reader = stream(startingOffsets=start)
        reader.prepareForTriggerAvailableNow()
        if start == "latest":
            send(cluster, 3)
        found, begin = [], reader.initialOffset()
        while (end := reader.latestOffset(begin, ReadMaxRows(30))) != begin:
            found += read(reader, reader.partitions(begin, end))
            begin = end
        assert found == expected


def test_a_queue_that_ends_before_what_was_planned_is_data_loss(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    for fail in (True, False):
        reader = stream(startingOffsets="earliest", failOnDataLoss=fail)
        begin = reader.initialOffset()
        parts = reader.partitions(begin, reader.latestOffset(begin, ALL))
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        send(cluster, 40)
        if fail:
            with pytest.raises(DataLoss, match="offset 40 is not available"):
                read(reader, parts)
        else:
            assert read(reader, parts) == list(range(40))
        send(cluster, 60)


def test_a_topic_that_is_made_anew_is_data_loss_and_then_read_from_its_start(
    cluster: InMemoryCluster,
    queue: MessageQueue,
    stream: Callable[..., RocketMQStreamReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    strict = stream(startingOffsets="earliest")
    lenient = stream(startingOffsets="earliest", failOnDataLoss=False)
    end = strict.latestOffset(strict.initialOffset(), ALL)
    cluster.delete_topic("t")
    with pytest.raises(QueuesLost, match="cannot be read any more"):
        strict.latestOffset(end, ALL)
    caplog.clear()
    assert lenient.latestOffset(end, ALL) == end
    (text,) = caplog.messages
    assert text.endswith("subscribed to. The read continues with the others, as failOnDataLoss is false")
    cluster.create_topic("t", 1)
    send(cluster, 10)
    with pytest.raises(DataLoss, match=r"offset 100 is not available; the broker holds \[0, 10\)"):
        strict.latestOffset(end, ALL)
    parts = lenient.partitions(end, lenient.latestOffset(end, ALL))
    assert read(lenient, parts) == list(range(10))


def read_all(reader: RocketMQStreamReader, begin: Any) -> tuple[list[int], Any]:
    """Returns what micro-batches read until nothing is new, and where the last one ended."""
    found = []
    while (end := reader.latestOffset(begin, ALL)) != begin:
        found += read(reader, reader.partitions(begin, end))
        begin = end
    return found, begin


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, [0, 1, 2, 3, 4]),
        ({"startingOffsets": "latest"}, [3, 4]),
        ({"startingTimestamp": T0 + 1_500}, [1, 2, 3, 4]),
        ({"startingOffsets": "group", "consumerGroup": "g"}, [2, 3, 4]),
        ({"startingOffsets": '{"t": {"broker-a": {"0": -2}}}'}, [3, 4]),
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_queue_that_was_away_at_the_start_begins_as_if_it_had_been_there(
    options: dict[str, Any],
    expected: list[int],
    is_restarted: bool,
    cluster: InMemoryCluster,
    stream: Callable[..., RocketMQStreamReader],
    clock: ManualClock,
) -> None:
    clock.advance(T0 / 1000 + 3 - clock.time())
    append(cluster, MessageQueue("t", "broker-a", 0), 5)
    reader = stream(**options)
    _, end = read_all(reader, reader.initialOffset())
    (late,) = cluster.add_queues("t", 1)
    append(cluster, late, 5)  # the first three are older than the stream
    cluster.commit("g", late, 2)
    if is_restarted:
        reader = stream(**options)
        assert json.loads(json.dumps(end)) == end
    found, end = read_all(reader, end)
    assert found == expected
    append(cluster, late, 1)
    assert read_all(reader, end)[0] == [5]


def test_a_queue_that_was_there_and_did_not_answer_begins_where_the_start_says(
    cluster: InMemoryCluster, clock: ManualClock, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    """Also if all of its messages have come since the stream began. A new queue begins at its first message."""
    (other,) = cluster.add_queues("t", 1)
    clock.advance(T0 / 1000 - 1 - clock.time())
    cluster.fail_next("offset_for_time", BrokerSilent("silent"), queue=other)
    reader = stream(startingTimestamp=T0 + 2_000, startingOffsetsByTimestampStrategy="latest")
    begin = reader.initialOffset()
    append(cluster, other, 5)
    assert read_all(reader, begin)[0] == [2, 3, 4]


def test_a_queue_of_a_silent_broker_stands_still_and_the_others_are_read(
    cluster: InMemoryCluster, clock: ManualClock, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    (other,) = cluster.add_queues("t", 1)
    cluster.append("t", b"x", queue_id=1)
    clock.advance(0.01)  # what is stored in the millisecond in which a stream begins is read
    cluster.fail_next("max_offset", BrokerSilent("silent"), queue=other)
    reader = stream(startingOffsets="latest")
    begin = reader.initialOffset()
    send(cluster, 2)
    cluster.append("t", b"x", queue_id=1)
    found, end = read_all(reader, begin)
    assert found == [100, 101, 1], "it was there when the stream began, so its first message is older"
    for _ in range(2):
        send(cluster, 1)
        cluster.append("t", b"x", queue_id=1)
    cluster.fail_next("max_offset", BrokerSilent("silent"), queue=other, times=2)
    found, end = read_all(reader, end)
    assert found == [102, 103]
    assert read_all(reader, end)[0] == [2, 3]


def test_nothing_waits_for_queues_that_are_away_but_they_are_not_forgotten(
    cluster: InMemoryCluster, clock: ManualClock, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    (other,) = cluster.create_topic("u", 1)
    reader = stream(subscribe="t,u", startingOffsets="earliest", outageTimeoutMs=200)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    cluster.delete_topic("u")
    assert reader.latestOffset(end, ALL) == end
    clock.advance(0.3)
    with pytest.raises(QueuesLost, match=re.escape(str(other))):
        reader.latestOffset(end, ALL)


@pytest.mark.parametrize("is_assigned", [False, True])
def test_a_broker_that_is_away_for_long_is_no_data_loss(
    cluster: InMemoryCluster,
    clock: ManualClock,
    queue: MessageQueue,
    stream: Callable[..., RocketMQStreamReader],
    is_assigned: bool,
) -> None:
    """A name server forgets the queues of a broker that is down, and a topic with its last broker."""
    (other,) = cluster.create_topic("u", 1)
    what: dict[str, Any] = {"subscribe": "t,u"}
    if is_assigned:
        what = {"assign": json.dumps({each.topic: {each.broker: [0]} for each in (queue, other)})}
    reader = stream(startingOffsets="earliest", outageTimeoutMs=1, **what)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    cluster.delete_topic("u")
    cluster.fail_next("min_offset", TransportError("no name server knows broker"), queue=other, times=1_000)
    for count in range(3):
        send(cluster, 1)
        clock.advance(0.01)
        found, end = read_all(reader, end)
        assert found == [100 + count]


def test_a_queue_that_is_gone_before_its_task_is_data_loss(
    cluster: InMemoryCluster, queue: MessageQueue, stream: Callable[..., RocketMQStreamReader]
) -> None:
    strict, lenient = stream(startingOffsets="earliest"), stream(startingOffsets="earliest", failOnDataLoss=False)
    begin = strict.initialOffset()
    parts = strict.partitions(begin, strict.latestOffset(begin, ALL))
    cluster.delete_topic("t")
    with pytest.raises(RmqioError):
        read(strict, parts)
    assert read(lenient, parts) == []


def test_a_hole_in_a_queue_is_data_loss(
    cluster: InMemoryCluster, queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.remove(queue, 40, 60)
    strict = RocketMQReader(settings(cluster, False, {}), ("queueOffset",))
    with pytest.raises(DataLoss, match="offset 40 is not available"):
        read(strict, strict.partitions())
    lenient = RocketMQReader(settings(cluster, False, {"failOnDataLoss": False}), ("queueOffset",))
    assert read(lenient, lenient.partitions()) == [*range(40), *range(60, 100)]
    (text,) = caplog.messages
    assert text.startswith("messages are lost: ")
    assert text.endswith(
        ": offset 40 is not available; the broker holds [0, 100). Retention deleted it, or the topic was recreated. "
        "The read continues without them, as failOnDataLoss is false"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "give startingOffsets as 'earliest'"),
        ({"startingOffsets": "group", "consumerGroup": "bilings"}, "give groupOffsetsReset as 'earliest'"),
        ({"startingOffsets": '{"t": {"broker-a": {"0": -1}}}'}, "give startingOffsets as 'earliest'"),
        ({"startingOffsets": '{"t": {"broker-a": {"0": 100}}}'}, None),
        ({"startingOffsets": "group", "consumerGroup": "new", "groupOffsetsReset": "earliest"}, None),
        ({}, None),
    ],
)
def test_a_read_that_can_read_nothing_says_so_once(
    cluster: InMemoryCluster,
    queue: MessageQueue,
    stream: Callable[..., RocketMQStreamReader],
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    words: str | None,
) -> None:
    RocketMQReader(settings(cluster, False, options), ("queueOffset",)).partitions()
    if words is not None:  # the run of a stream that ends at what is there
        endless, ending = stream(**options), stream(**options)
        endless.initialOffset()
        ending.prepareForTriggerAvailableNow()
        ending.initialOffset()
    said = [text for text in caplog.messages if "reads none of 100 messages" in text]
    assert len(said) == (0 if words is None else 2)
    assert all(words in each for each in said if words)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_of_a_queue_that_is_not_read_is_refused(
    option: str, cluster: InMemoryCluster, queue: MessageQueue
) -> None:
    reader = RocketMQReader(settings(cluster, False, {option: '{"typo": {"b": {"0": 5}}}'}), ("queueOffset",))
    with pytest.raises(
        LocalError, match=f"{option} has an offset for .*typo.*, which is not .*: the nearest of those is"
    ):
        reader.partitions()


def test_spark_finds_a_data_source_in_the_module_that_it_looks_for() -> None:
    import pyspark_rocketmq

    assert issubclass(pyspark_rocketmq.DefaultSource, DataSource)
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    assert pickle.loads(pickle.dumps(pyspark_rocketmq.DefaultSource)) is pyspark_rocketmq.DefaultSource
