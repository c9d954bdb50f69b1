"""Endless reads of Kafka, bundle by bundle, each by a DoFn of its own as on Spark: watermarks, new partitions.

The broker is the one inside of Confluent's client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.iobase import RestrictionTracker
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from confluent_kafka import Producer

from rmqio.connect import ReadFromKafka
from rmqio.connect.kafka import read
from rmqio.connect.kafka.client import Cluster, KafkaAway
from rmqio.connect.kafka.consumers import Partition
from rmqio.connect.kafka.read import FindFn, KafkaReadConfig, Seen, SeenCoder, UnboundedPartitionFn, WatchFn
from rmqio.errors import LocalError, WireError
from rmqio.start import StartFrom, StopAt
from tests.helpers.waiting import at_most, until

PAST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[Producer, str]]:
    """A producer that has a broker inside, and the broker's address."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused:1", "log_level": 0})
    (found,) = producer.list_topics(timeout=at_most(20)).brokers.values()
    yield producer, f"{found.host}:{found.port}"
    producer.flush(at_most(20))


@pytest.fixture(scope="module")
def ends(broker: tuple[Producer, str]) -> str:
    """The address of a broker whose topic `ends` has messages in two of four partitions."""
    producer, servers = broker
    for number in range(5):
        producer.produce("ends", b"x", partition=number % 2, timestamp=PAST_MS)
    producer.flush(at_most(20))
    return servers


class Tracking:
    """A tracker as a runner holds it: `defer_remainder` checkpoints."""

    def __init__(self, tracker: RestrictionTracker) -> None:
        self._tracker = tracker
        self.residual: Any = None

    def current_restriction(self) -> Any:
        return self._tracker.current_restriction()

    def try_claim(self, position: Any) -> bool:
        return bool(self._tracker.try_claim(position))

    def defer_remainder(self, _: Any = None) -> None:
        _, self.residual = self._tracker.try_split(0)


class Stream:
    """An element of an endless splittable DoFn, processed by a new instance of it each time."""

    def __init__(self, make: Any, element: Any, estimators: Any) -> None:
        self._make, self.element, self._estimators = make, element, estimators
        self._coders = (make().restriction_coder(), estimators.estimator_state_coder())
        self.restriction = self._coders[0].encode(make().initial_restriction(element))
        self._state = self._coders[1].encode(estimators.initial_estimator_state(element, None))

    def bundle(self) -> list[Any]:
        """The outputs of a bundle. Only bytes are left of it, as in a checkpoint."""
        fn, coders = self._make(), self._coders
        estimator = self._estimators.create_watermark_estimator(coders[1].decode(self._state))
        restriction = coders[0].decode(self.restriction)
        tracker = Tracking(fn.create_tracker(restriction))
        fn.setup()
        try:
            found = [each.value for each in fn.process(self.element, tracker, estimator)]
        finally:
            fn.teardown()
        self.restriction, self._state = (
            coders[0].encode(tracker.residual),
            coders[1].encode(estimator.get_estimator_state()),
        )
        self.watermark = estimator.current_watermark()
        return found


def estimators_of(fn: type[beam.DoFn]) -> Any:
    parameters = fn.process.__defaults__ or ()
    (found,) = [each for each in parameters if isinstance(each, type(beam.DoFn.WatermarkEstimatorParam(None)))]
    return found.watermark_estimator_provider


@pytest.mark.parametrize("partition", [0, 1], ids=["with messages", "without messages"])
def test_a_partition_that_is_read_to_its_end_follows_the_clock_across_bundles(
    broker: tuple[Producer, str], partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, servers = broker
    if partition == 0:
        for number in range(3):
            producer.produce("quiet", b"%d" % number, partition=0, timestamp=PAST_MS + number)
        producer.flush(at_most(20))
    config = KafkaReadConfig(Cluster.of(servers, {"log_level": 0}), StartFrom.earliest(), None, 0, 500, 60.0)
    stream = Stream(
        lambda: UnboundedPartitionFn(config), Partition("quiet", partition), estimators_of(UnboundedPartitionFn)
    )
    now = time.time()
    monkeypatch.setattr(read, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    found = until(stream.bundle, "the messages") if partition == 0 else []
    stream.bundle()
    wanted = MIN_TIMESTAMP if partition else (PAST_MS + 2) / 1000
    assert stream.watermark == wanted, "it has been quiet for no time"
    now += 0.5
    assert until(lambda: stream.bundle() or stream.watermark != wanted, "an answer of the broker", pause_s=0) is True
    assert float(stream.watermark) == pytest.approx(now, abs=0.002)
    assert [each.value for each in found] == ([] if partition else [b"0", b"1", b"2"])


def test_new_partitions_come_once_and_are_read_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"a": 2, "b": 1}
    away: list[str] = []

    def partitions(_: Cluster, topic: str) -> list[Partition]:
        if topic in away:
            raise KafkaAway("away")
        return [Partition(topic, number) for number in range(there[topic])]

    monkeypatch.setattr(read, "partitions_of", partitions)
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    stream = Stream(lambda: WatchFn(Cluster("h:1"), ["a", "b"], 30_000), b"", estimators_of(WatchFn))
    assert stream.bundle() == [Partition("a", 0), Partition("a", 1), Partition("b", 0)]
    assert float(stream.watermark) == pytest.approx(now[0], abs=0.002)
    there["a"] = 4
    assert stream.bundle() == [], "the next look is not due"
    now[0] += 30
    away.append("b")
    assert stream.bundle() == []
    assert float(stream.watermark) == pytest.approx(now[0], abs=0.002), "known partitions are read on"
    away.clear()
    assert stream.bundle() == [Partition("a", 2, is_new=True), Partition("a", 3, is_new=True)]
    now[0] += 30
    assert stream.bundle() == []


def test_a_new_partition_is_read_from_its_beginning_wherever_the_read_started(broker: tuple[Producer, str]) -> None:
    producer, servers = broker
    producer.produce("late", b"x", partition=0)
    producer.flush(at_most(20))
    config = KafkaReadConfig(Cluster.of(servers, {"log_level": 0}), StartFrom.latest(), None, 0, 500, 60.0)
    fn = UnboundedPartitionFn(config)
    assert fn.initial_restriction(Partition("late", 0)).start == 1
    assert fn.initial_restriction(Partition("late", 0, is_new=True)).start == 0


def test_the_first_look_fails_if_the_cluster_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def partitions(*_: Any) -> list[Partition]:
        raise KafkaAway("away")

    monkeypatch.setattr(read, "partitions_of", partitions)
    stream = Stream(lambda: WatchFn(Cluster("h:1"), ["a"], 30_000), b"", estimators_of(WatchFn))
    with pytest.raises(KafkaAway):
        stream.bundle()


@given(
    st.builds(
        Seen,
        st.frozensets(st.builds(Partition, st.text(max_size=5), st.integers(0, 99), st.just(False))),
        st.none() | st.integers(0, 1 << 50),
    )
)
def test_what_was_seen_survives_its_coder(seen: Seen) -> None:
    assert SeenCoder().decode(SeenCoder().encode(seen)) == seen
    assert seen, "Beam drops what is false"


@pytest.mark.parametrize("encoded", [b"", b"[]", b"{}", b'{"looked_ms": 1, "topics": [1]}'])
def test_what_is_no_set_of_partitions_is_an_error(encoded: bytes) -> None:
    with pytest.raises(WireError, match="not a set of partitions"):
        SeenCoder().decode(encoded)


@pytest.mark.parametrize(
    ("runner", "options", "looks_again"),
    [
        ("BundleBasedDirectRunner", {}, False),
        ("FlinkRunner", {}, True),
        ("FlinkRunner", {"discovery_interval_ms": 0}, False),
        ("FlinkRunner", {"stop": StopAt.latest()}, False),
    ],
)
def test_endless_reads_look_again_unless_the_runner_is_in_process(
    runner: str, options: dict[str, Any], looks_again: bool
) -> None:
    pipeline = beam.Pipeline(runner=runner)
    _ = pipeline | ReadFromKafka("h:9092", "t", **options)
    names = [each.unique_name for each in pipeline.to_runner_api().components.transforms.values()]
    assert any(name.endswith("/Start") for name in names) is looks_again


def test_a_broker_that_is_far_away_is_read_though_each_bundle_connects_again() -> None:
    """A bundle that ended sooner than a connection is there would begin where this one did, for ever."""
    producer = Producer({
        "test.mock.num.brokers": 1, "test.mock.broker.rtt": 250, "bootstrap.servers": "unused:1", "log_level": 0,
    })  # fmt: skip
    (found,) = producer.list_topics(timeout=at_most(20)).brokers.values()
    producer.produce("far", b"x", partition=0, timestamp=PAST_MS)
    producer.flush(at_most(20))
    cluster = Cluster.of(f"{found.host}:{found.port}", {"log_level": 0})
    config = KafkaReadConfig(cluster, StartFrom.earliest(), None, 0, 500, 60.0)
    stream = Stream(lambda: UnboundedPartitionFn(config), Partition("far", 0), estimators_of(UnboundedPartitionFn))
    assert [each.value for _ in range(3) for each in stream.bundle()] == [b"x"]


def test_a_topic_that_is_named_twice_is_read_once() -> None:
    assert ReadFromKafka("h:9092", ["t", "u", "t"])._topics == ["t", "u"]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (StartFrom.latest(), StopAt.latest(), "reads none of 5 messages in 2 of 4 partitions: it begins at the latest"),
        (StartFrom.latest(), StopAt.timestamp(2**41), "reads none of 5 messages in 2 of 4 partitions"),
        (StartFrom.latest(), None, ""),
        (StartFrom.earliest(), StopAt.latest(), ""),
        (StartFrom.timestamp(PAST_MS + 60_000), StopAt.latest(), ""),
    ],
)
def test_a_read_that_can_read_nothing_says_so_once(
    ends: str,
    caplog: pytest.LogCaptureFixture,
    start: StartFrom,
    stop: StopAt | None,
    expected: str,
) -> None:
    find = FindFn(Cluster.of(ends, {"log_level": 0}), start, stop, "give x")
    assert len([*find.process("ends")]) == 4
    said = [text for text in caplog.messages if "reads none of" in text]
    assert [expected in each and each.startswith("the read of topic ends ") for each in said] == [True] * bool(expected)


@pytest.mark.parametrize("config", [{"no.such.option": 1}, {"security.protocol": "carrier pigeon"}])
def test_options_that_the_client_refuses_are_a_plain_error(config: dict[str, Any]) -> None:
    cluster = Cluster.of("h:9092", config)
    for make in (cluster.consumer, cluster.producer):
        with pytest.raises(LocalError, match=f"kafka://h:9092: .*{next(iter(config))}"):
            make()
