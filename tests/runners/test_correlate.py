"""`Correlate` finds the same on all runners, also when a stream is killed."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.client.producer import RemotingProducer
from rmqio.errors import RmqioError
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from rmqio.rules import Correlate, CorrelationKind, CorrelationRule, Match
from rmqio.runners import options
from rmqio.runners.flink.jobserver import SERVERS
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.delivery import FLINK, SPARK_STREAMING, Mode
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.away import CONFIG, GOES, STAYS, Topic
from tests.helpers.servers.cluster import Cluster
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import missing, repeated

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]
FLAGS = (
    "DirectRunner",
    "SparkRunner",
    "SparkRunner --streaming",
    "FlinkRunner --parallelism=1",
    "FlinkRunner --parallelism=1 --streaming",
)
MANY = CorrelationRule("many", CorrelationKind.EVENT_COUNT, ("failed",), 10_000, ("user",), count=3)
VALUES = CorrelationRule("values", CorrelationKind.VALUE_COUNT, ("scan",), 10_000, ("user",), count=2, field="port")
PAIR = CorrelationRule("pair", CorrelationKind.TEMPORAL, ("late", "early"), 5_000, ("user",))
ORDER = CorrelationRule("order", CorrelationKind.TEMPORAL_ORDERED, ("failed", "done"), 60_000, ("user",), generate=True)
FOUND = [
    ("many", "a", 1_000, 9_000), ("values", "b", 6_000, 7_000), ("pair", "a", 6_000, 8_000),
    ("order", "b", 30_000, 50_000),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


@pytest.mark.parametrize("flags", FLAGS)
def test_correlations_are_found(flags: str) -> None:
    given = [
        (9, "failed", "a", 0), (1, "failed", "a", 0), (5, "failed", "a", 0), (2, "failed", "b", 0),
        (30, "failed", "b", 0), (50, "done", "b", 0), (51, "other", "b", 0),
        (3, "scan", "a", 22), (4, "scan", "a", 22), (6, "scan", "b", 22), (7, "scan", "b", 80),
        (8, "late", "a", 0), (6, "early", "a", 0), (8, "late", "b", 0), (1, "early", "b", 0),
        (60, "done", "c", 0), (61, "failed", "c", 0),
    ]  # fmt: skip

    def timed(each: tuple[int, str, str, int]) -> TimestampedValue:
        second, rule_id, user, port = each
        body = json.dumps({"user": user, "port": port}).encode()
        return TimestampedValue(Match(body, rule_id, "", "low", (), "1", ()), second)

    with beam.Pipeline(options=options(f"--runner={flags}".split())) as pipeline:
        matches = pipeline | beam.Create(given) | "Timed" >> beam.Map(timed).with_output_types(Match)
        found = matches | Correlate([MANY, VALUES, PAIR, ORDER])
        shown = found.correlated | beam.Map(lambda each: (each.rule_id, each.group[0][1], each.first_ms, each.last_ms))
        assert_that(shown, equal_to(FOUND))
        alone = found.matches | "Ids" >> beam.Map(lambda each: each.rule_id)
        assert_that(alone, equal_to(["done", "done", "other"]), label="alone")


@pytest.mark.broker
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [SPARK_STREAMING, FLINK], ids=lambda each: each.name)
def test_a_stream_that_is_killed_counts_each_event_once(mode: Mode, lab: Lab, tmp_path: Path) -> None:
    """Two of three events of a user come before the kill, and the third after it."""
    source, sink = (f"correlate-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("events", "found"))
    for topic in (source, sink):
        lab.broker.create_topic(topic, queues=2)
    users = [f"u{number}" for number in range(200)]

    def send(*given: str) -> None:
        for queue_id in range(2):
            bodies = [json.dumps({"user": user}).encode() for n, user in enumerate(given) if n % 2 == queue_id]
            queue = MessageQueue(source, lab.broker.name, queue_id)
            send_all(lab.broker.broker, queue, [Message(body) for body in bodies])

    def found() -> dict[str, int]:
        return {each["user"]: each["number"] for each in map(json.loads, bodies())}

    def bodies() -> Iterator[bytes]:
        return (each.body for each in read_topic(lab.client, sink))

    checkpoints = tmp_path / "checkpoint"
    program = [sys.executable, "-m", "tests.helpers.pipelines.correlating", source, sink, lab.broker.name_server]
    command = [*program, *mode.with_workers(2), f"--checkpoint_dir={checkpoints}"]
    send(*users, *users, *["before"] * 3)
    with started(Job(command, tmp_path)) as job:
        job.wait_until(lambda: "before" in found(), "the first correlation", details=found)
        earlier = set(checkpoints.rglob("_metadata"))
        send(*["again"] * 3)  # found in a later micro-batch: Spark has committed the earlier one
        job.wait_until(lambda: "again" in found(), "the second correlation", details=found)
        if mode.is_flink:
            job.wait_until(lambda: not earlier.issuperset(checkpoints.rglob("_metadata")), "a checkpoint")
        job.kill()
    assert found() == {"before": 3, "again": 3}
    with started(Job(command, tmp_path)) as job:
        send(*["after"] * 3)
        job.wait_until(lambda: "after" in found(), "the first one after the kill", details=found)
        assert found().keys() == {"before", "again", "after"}, "an event that is read again is no second one"
        send(*users)
        job.wait_until(lambda: found().keys() == {"before", "again", "after", *users}, "all to be found", details=found)
        job.end(2)
    assert set(found().values()) == {3}


class Pairs:
    """Sends the first event of each user to the broker that goes, and the second one to the broker that stays."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        patient = ClientOptions(cluster.name_server, max_retries=0)
        hasty = ClientOptions(cluster.name_server, max_retries=0, request_timeout_ms=500)
        ends = ((hasty, GOES, "first"), (patient, STAYS, "second"))
        self._ends = [(RemotingProducer(options, f"pairs-{broker}"), broker, rule) for options, broker, rule in ends]
        self._topic = topic
        self.users = 0

    def send(self) -> None:
        for producer, broker, rule_id in self._ends:
            queues = self._topic.of(broker)
            body = json.dumps({"user": f"u{self.users}", "rule": rule_id}).encode()
            with contextlib.suppress(RmqioError):  # the broker hangs, and may store it later
                producer.send(Message(body, topic=self._topic.name), queues[self.users % len(queues)])
        self.users += 1

    def close(self) -> None:
        for producer, _, _ in self._ends:
            producer.close()


@pytest.mark.broker
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [SPARK_STREAMING, FLINK], ids=lambda each: each.name)
def test_no_correlation_is_lost_or_found_twice_while_a_broker_hangs(mode: Mode, tmp_path: Path) -> None:
    """The second event of a user waits for the first one, which a broker that hangs has not stored or not yet given."""
    with Cluster(brokers=(STAYS, GOES), config=CONFIG) as cluster, contextlib.closing(Topic(cluster)) as topic:
        pairs = Pairs(cluster, topic)

        def found() -> Counter[tuple[str, str]]:
            rows = (json.loads(each.body) for each in read_topic(topic.client, topic.sink))
            return Counter((row["rule"], row["user"]) for row in rows)

        program = [sys.executable, "-m", "tests.helpers.pipelines.correlating", topic.name, topic.sink]
        flags = [*mode.with_workers(2), f"--checkpoint_dir={tmp_path / 'checkpoint'}"]

        def until_all(job: Job) -> None:
            """Waits for the correlations of all users with both events by now, but for those who may be missing."""
            users, late = _users(topic)
            wanted = {(rule, user) for rule in ("pair", "order") for user in users.keys() - late}
            job.wait_until(
                lambda: found().keys() >= wanted,
                "all correlations",
                progress=lambda: len(found()),
                details=lambda: missing(wanted, found()),
            )

        with contextlib.closing(pairs), started(Job([*program, cluster.name_server, *flags], tmp_path)) as job:
            with repeated(pairs.send, 0.1):
                job.wait_until(lambda: bool(found()), "the first correlations")
                cluster.brokers[GOES].pause()
                time.sleep(8)
                cluster.brokers[GOES].resume()
                time.sleep(2)
            users, late = _users(topic)
            assert max(users[user] for user in users.keys() - late) > 5_000, "stored long after its second one"
            until_all(job)
            for _ in range(8):  # in each queue, they are behind all of which something could come that must not
                pairs.send()
            until_all(job)
            every = found()
            assert set(every.values()) == {1}
            assert {user for _, user in every} <= _users(topic)[0].keys()
            job.end(2)


def _users(topic: Topic) -> tuple[dict[str, int], set[str]]:
    """Returns the users that have both events, and for each how many milliseconds later the first one was stored.

    And users who may be missing: one of their events is in its queue behind one that is newer, which makes it late. A
    broker that goes on stores what it has been sent meanwhile in any order.
    """
    stored: dict[str, dict[str, int]] = {}
    newest: Counter[MessageQueue] = Counter()
    late = set()
    for record in read_topic(topic.client, topic.name):
        body = json.loads(record.body)
        assert record.store_timestamp_ms
        assert body["rule"] not in stored.setdefault(body["user"], {}), "each is sent once"
        stored[body["user"]][body["rule"]] = record.store_timestamp_ms
        if record.born_timestamp_ms < newest[record.queue]:
            late.add(body["user"])
        newest[record.queue] = max(newest[record.queue], record.born_timestamp_ms)
    return {user: times["first"] - times["second"] for user, times in stored.items() if len(times) == 2}, late
