"""`ReadFromRocketMQ` and `ReadAllFromRocketMQ` on a cluster in memory: bounded in Beam's in-process runner, endless as
a DoFn that is driven bundle by bundle.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.sdf_utils import (
    RestrictionTrackerView,
    ThreadsafeRestrictionTracker,
    ThreadsafeWatermarkEstimator,
)
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.error_handling import ErrorHandler
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import (
    MessageQueue,
    QueueDescriptor,
    ReadAllFromRocketMQ,
    ReadFromRocketMQ,
    ReadOptions,
    Record,
    StartFrom,
    StopAt,
)
from rmqio.errors import LocalError, OffsetOutOfRange, SerdeError
from rmqio.model import MessageFilter
from rmqio.seams import Fetched
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.read_fn import BoundedReadFn, ReadConfig, UnboundedReadFn
from rmqio.transforms.readers import Readers
from rmqio.transforms.restriction import QueueRange
from rmqio.transforms.shared import close_shared_clients, shared_client
from rmqio.transforms.watermark import QueueWatermark, QueueWatermarks, timestamp_function

QUICK = ReadOptions(poll_timeout_ms=1)
T0 = 1_700_000_000_000
"""Message `n` of a queue is born at T0 + n seconds, and stored half a second later."""


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        yield made
        close_shared_clients()
        assert made.open_clients == 0
        assert made.open_readers == 0


def fill(cluster: InMemoryCluster, *counts: int, topic: str = "t", **fields: Any) -> tuple[MessageQueue, ...]:
    """A topic with a queue per count; bodies are `topic/queue/offset`."""
    queues = cluster.create_topic(topic, len(counts))
    for queue, count in zip(queues, counts, strict=True):
        append(cluster, queue, count, **fields)
    return queues


def append(cluster: InMemoryCluster, queue: MessageQueue, count: int, **fields: Any) -> None:
    begin = len([r for r in cluster.records(queue.topic) if r.queue == queue])
    for number in range(begin, begin + count):
        cluster.append(
            queue.topic,
            body_of(queue, number),
            queue_id=queue.queue_id,
            born_ms=T0 + number * 1000,
            store_ms=T0 + number * 1000 + 500,
            **fields,
        )


def body_of(queue: MessageQueue, offset: int) -> bytes:
    return f"{queue.topic}/{queue.queue_id}/{offset}".encode()


def bodies(queue: MessageQueue, offsets: Iterable[int]) -> list[bytes]:
    return [body_of(queue, offset) for offset in offsets]


def body(record: Record) -> bytes:
    return record.body


def stamped(element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> tuple[Any, int]:
    return element, timestamp.micros // 1000


def read(cluster: InMemoryCluster, topic: Any = "t", **arguments: Any) -> ReadFromRocketMQ:
    defaults: dict[str, Any] = {
        "start": StartFrom.earliest(),
        "stop": StopAt.latest(),
        "options": QUICK,
        "client_factory": InMemoryClientFactory(cluster.name),
    }
    return ReadFromRocketMQ(topic, **defaults | arguments)


def run_bodies(transform: ReadFromRocketMQ, expected: list[bytes]) -> Any:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | transform | beam.Map(body), equal_to(expected))
    return pipeline.result


# ---- where it starts and stops --------------------------------------------------------------------------------------

Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)

# name, arguments, offsets of queue 0 (has 6), offsets of queue 1 (has 3); group g has committed 4 of queue 0
WINDOWS: list[tuple[str, dict[str, Any], range, range]] = [
    ("everything", {}, range(6), range(3)),
    ("from the end", {"start": StartFrom.latest()}, range(0), range(0)),
    ("from a time", {"start": StartFrom.timestamp(T0 + 2500)}, range(2, 6), range(2, 3)),
    ("from a time after the end", {"start": StartFrom.timestamp(T0 + 900_000)}, range(0), range(0)),
    ("group, latest where none", {"consumer_group": "g", "start": None}, range(4, 6), range(0)),
    (
        "group, earliest where none",
        {"consumer_group": "g", "start": StartFrom.group_offsets("earliest")},
        range(4, 6),
        range(3),
    ),
    (
        "offsets, then the group",
        {"consumer_group": "g", "start": StartFrom.specific_offsets({Q1: 1})},
        range(4, 6),
        range(1, 3),
    ),
    ("offsets, then earliest", {"start": StartFrom.specific_offsets({Q1: 1}, "earliest")}, range(6), range(1, 3)),
    ("up to a time", {"stop": StopAt.timestamp(T0 + 2500)}, range(2), range(2)),
    ("up to offsets", {"stop": StopAt.offsets({Q0: 5})}, range(5), range(0)),
    (
        "up to an offset before the start",
        {"start": StartFrom.specific_offsets({Q0: 3}), "stop": StopAt.offsets({Q0: 2})},
        range(0),
        range(0),
    ),
    (
        "between two times",
        {"start": StartFrom.timestamp(T0 + 500), "stop": StopAt.timestamp(T0 + 1500)},
        range(1),
        range(1),
    ),
]


@pytest.mark.parametrize(
    ("arguments", "first", "second"), [row[1:] for row in WINDOWS], ids=[row[0] for row in WINDOWS]
)
def test_a_bounded_read_gives_what_lies_between_start_and_stop(
    cluster: InMemoryCluster, arguments: dict[str, Any], first: range, second: range
) -> None:
    q0, q1 = fill(cluster, 6, 3)
    cluster.commit("g", q0, 4)
    run_bodies(read(cluster, **arguments), bodies(q0, first) + bodies(q1, second))


def test_a_queue_that_is_not_read_needs_no_start_offset(cluster: InMemoryCluster) -> None:
    q0, _ = fill(cluster, 6, 3)
    start = StartFrom.specific_offsets({q0: 1}, reset="error")
    run_bodies(read(cluster, start=start, stop=StopAt.offsets({q0: 4})), bodies(q0, range(1, 4)))


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (["t", "u"], ["t", "u"]),
        (re.compile("[T-U]", re.I), ["t", "u"]),
        (Q0, ["t"]),
        (re.compile("none"), []),
    ],
)
def test_topics_patterns_and_queues_are_read(cluster: InMemoryCluster, topic: Any, expected: list[str]) -> None:
    found = {name: fill(cluster, 3, topic=name)[0] for name in ("t", "u", "other")}
    run_bodies(read(cluster, topic), [one for name in expected for one in bodies(found[name], range(3))])


def test_the_topic_and_group_may_come_from_properties(cluster: InMemoryCluster) -> None:
    q0, _ = fill(cluster, 6, 0)
    cluster.commit("g", q0, 5)
    options = ReadOptions.from_properties({"consumer.topic": "t", "consumer.group": "g"})
    run_bodies(read(cluster, None, start=None, options=options), bodies(q0, [5]))


def test_a_read_without_messages_gives_nothing(cluster: InMemoryCluster) -> None:
    fill(cluster, 0, 0)
    run_bodies(read(cluster), [])


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (4, 4), (7, 7), (100, 9)])
def test_max_num_records_stops_after_as_many_or_at_the_end(cluster: InMemoryCluster, limit: int, expected: int) -> None:
    fill(cluster, 6, 3)
    options = ReadOptions(max_num_records=limit, poll_timeout_ms=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        count = pipeline | read(cluster, options=options) | beam.combiners.Count.Globally()
        assert_that(count, equal_to([expected]))


def test_max_num_records_alone_ends_a_read_without_a_stop(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    options = ReadOptions(max_num_records=5, poll_timeout_ms=1)
    run_bodies(read(cluster, stop=None, options=options), bodies(queue, range(5)))


@pytest.mark.parametrize("poll_records", [1, 7, 32])
def test_bundles_that_end_themselves_lose_and_repeat_nothing(poll_records: int) -> None:
    with InMemoryCluster(poll_records=poll_records) as cluster:
        q0, q1 = fill(cluster, 50, 23)
        options = ReadOptions(max_records_per_bundle=3, poll_timeout_ms=1)
        run_bodies(read(cluster, options=options), bodies(q0, range(50)) + bodies(q1, range(23)))
        close_shared_clients()


def test_a_queue_is_read_in_order(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 100)

    def ascending(batches: list[list[Record]]) -> None:
        offsets = [record.queue_offset for batch in batches for record in batch]
        assert offsets == sorted(offsets)
        assert len(offsets) == 100

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | read(cluster, batches=True), ascending)
    assert queue.topic == "t"


# ---- filters and elements -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "wanted"), [("a", "a"), ("a || b", "ab"), ("none", ""), ("*", "abc"), (None, "abc"), ("", "abc")]
)
def test_tags_select_and_gaps_do_not_stop_the_read(cluster: InMemoryCluster, tags: str | None, wanted: str) -> None:
    cluster.create_topic("t", 1)
    for number in range(120):
        cluster.append("t", b"%d" % number, tags="abc"[number % 3])
    expected = [b"%d" % number for number in range(120) if "abc"[number % 3] in wanted]
    run_bodies(read(cluster, tags=tags), expected)


def test_sql_selects(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 6)
    cluster.define_sql("a > 5", lambda record: record.queue_offset > 3)
    run_bodies(read(cluster, sql_filter="a > 5"), bodies(queue, [4, 5]))


def test_a_record_comes_with_its_system_columns(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    stored = cluster.append("t", b"x", tags="a", keys=["k1", "k2"], properties={"p": "1"}, born_ms=1, store_ms=2)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | read(cluster), equal_to([stored]))


class ToOffset:
    """A deserializer of a user's own, which tells its output type."""

    output_type = int

    def __call__(self, record: Record) -> int:
        return record.queue_offset


@pytest.mark.parametrize(
    ("arguments", "element_type"),
    [
        ({}, Record),
        ({"deserializer": ToOffset()}, int),
        ({"deserializer": ToOffset(), "batches": True}, list[int]),
        ({"deserializer": body}, Any),
    ],
)
def test_the_element_type_is_known_to_beam(
    cluster: InMemoryCluster, arguments: dict[str, Any], element_type: Any
) -> None:
    from apache_beam.typehints import native_type_compatibility

    output = beam.Pipeline(runner=FnApiRunner()) | read(cluster, **arguments)
    assert output.element_type == native_type_compatibility.convert_to_beam_type(element_type)


def test_batches_hold_what_was_pulled_together_stamped_with_the_earliest(cluster: InMemoryCluster) -> None:
    fill(cluster, 70)
    expected = [(list(range(32)), T0), (list(range(32, 64)), T0 + 32_000), (list(range(64, 70)), T0 + 64_000)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        batches = pipeline | read(cluster, deserializer=ToOffset(), batches=True) | beam.Map(stamped)
        assert_that(batches, equal_to(expected))


def double_born(record: Record) -> int:
    return 2 * record.born_timestamp_ms


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("born", [T0, T0 + 1000]),
        ("store", [T0 + 500, T0 + 1500]),
        ("event", [5, 5]),
        (double_born, [2 * T0, 2 * T0 + 2000]),
    ],
)
def test_timestamps_follow_the_policy(cluster: InMemoryCluster, policy: Any, expected: list[int]) -> None:
    fill(cluster, 2, properties={"event": "5"})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        elements = pipeline | read(cluster, deserializer=ToOffset(), timestamp=policy) | beam.Map(stamped)
        assert_that(elements, equal_to(list(enumerate(expected))))


# ---- what does not decode -------------------------------------------------------------------------------------------


def odd_fails(record: Record) -> bytes:
    if record.queue_offset % 2:
        raise SerdeError("an odd one")
    return record.body


def failure_row(failure: Any) -> tuple[Any, ...]:
    return failure.topic, failure.queue_id, failure.queue_offset, failure.error, failure.body


def test_a_deserializers_failures_go_to_the_error_handler_and_the_rest_goes_on(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 4)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(failure_row)) as handler:
            good = pipeline | read(cluster, deserializer=odd_fails).with_error_handler(handler)
        assert_that(good, equal_to(bodies(queue, [0, 2])), label="good")
        expected = [("t", 0, offset, "SerdeError", body_of(queue, offset)) for offset in (1, 3)]
        assert_that(handler.output(), equal_to(expected), label="bad")
    (counter,) = pipeline.result.metrics().query(beam.metrics.MetricsFilter().with_name("decode_failures"))["counters"]
    assert counter.committed == 2


def test_a_corrupt_message_goes_to_the_error_handler_with_its_bytes(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 3)
    cluster.corrupt(queue, 1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(lambda f: (*failure_row(f)[:4], body_of(queue, 1) in f.body))) as handler:
            good = pipeline | read(cluster).with_error_handler(handler) | beam.Map(body)
        assert_that(good, equal_to(bodies(queue, [0, 2])), label="good")
        assert_that(handler.output(), equal_to([("t", 0, 1, "CorruptMessage", True)]), label="bad")


def test_a_record_without_the_timestamp_property_goes_to_the_error_handler(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 1)
    append(cluster, queue, 1, properties={"event": "7"})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(failure_row)) as handler:
            good = pipeline | read(cluster, timestamp="event").with_error_handler(handler) | beam.Map(body)
        assert_that(good, equal_to(bodies(queue, [1])), label="good")
        assert_that(handler.output(), equal_to([("t", 0, 0, "SerdeError", body_of(queue, 0))]), label="bad")


@pytest.mark.parametrize(
    ("arguments", "corrupt", "parts"),
    [
        ({"deserializer": odd_fails}, False, ["queue t/broker-a/0", "offset 1", "an odd one"]),
        ({"deserializer": JsonDeserializer()}, False, ["queue t/broker-a/0", "offset 0", "JSON"]),
        ({"timestamp": "event"}, False, ["queue t/broker-a/0", "offset 0", "no such property"]),
        ({}, True, ["topic 't', broker 'broker-a', queue 0, offset 2", "CRC"]),
    ],
    ids=["own deserializer", "JSON", "timestamp", "corrupt"],
)
def test_without_a_handler_it_fails_the_pipeline_with_the_coordinates_named_once(
    cluster: InMemoryCluster, arguments: dict[str, Any], corrupt: bool, parts: list[str]
) -> None:
    (queue,) = fill(cluster, 3)
    if corrupt:
        cluster.corrupt(queue, 2)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster, **arguments)
    with pytest.raises(Exception) as caught:
        pipeline.run()
    for part in parts:
        assert part in str(caught.value)
    assert str(caught.value).count("queue t/broker-a/0") <= 1
    close_shared_clients()


def test_dead_letters_are_written_with_coordinates_and_reason(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 4, tags="vip", keys=["k"])
    cluster.create_topic("dead", 1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        good = pipeline | read(cluster, deserializer=odd_fails, dead_letter_topic="dead")
        assert_that(good, equal_to(bodies(queue, [0, 2])))
    letters = sorted(cluster.records("dead"), key=lambda record: record.body)
    assert [letter.body for letter in letters] == bodies(queue, [1, 3])
    assert [letter.get_property("RMQIO_ORIGIN") for letter in letters] == ["t/broker-a/0/1", "t/broker-a/0/3"]
    assert {letter.get_property("RMQIO_ERROR") for letter in letters} == {"SerdeError: an odd one"}
    assert {(letter.tags, letter.keys) for letter in letters} == {("vip", ("k",))}


# ---- offsets that are gone ------------------------------------------------------------------------------------------


class DropsTheHead:
    """A deserializer that makes retention delete the next messages after the first; once."""

    def __init__(self, name: str, before: int) -> None:
        self.name, self.before = name, before

    def __call__(self, record: Record) -> int:
        from rmqio.testing.cluster import find_cluster

        if record.queue_offset == 0:
            find_cluster(self.name).delete_before(record.queue, self.before)
        return record.queue_offset


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [0, 6, 7, 8, 9]), ("latest", [0])])
def test_messages_deleted_while_reading_are_skipped_and_counted_by_policy(policy: Any, expected: list[int]) -> None:
    with InMemoryCluster(poll_records=1) as cluster:
        fill(cluster, 10)
        options = ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            found = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6), options=options)
            assert_that(found, equal_to(expected))
        assert counters(pipeline.result)["offsets_skipped"] == 10 - len(expected)
        close_shared_clients()


def test_messages_deleted_while_reading_fail_the_pipeline_by_default() -> None:
    with InMemoryCluster(poll_records=1) as cluster:
        fill(cluster, 10)
        pipeline = beam.Pipeline(runner=FnApiRunner())
        _ = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6))
        with pytest.raises(Exception, match=r"queue t/broker-a/0: offset 1 is not available.*\[6, 10\)"):
            pipeline.run()
        close_shared_clients()


@pytest.mark.parametrize(("policy", "expected"), [("earliest", range(4, 6)), ("latest", range(0)), ("fail", None)])
def test_a_start_that_is_gone_follows_the_policy(cluster: InMemoryCluster, policy: Any, expected: range | None) -> None:
    (queue,) = fill(cluster, 6)
    cluster.delete_before(queue, 4)
    options = ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1)
    transform = read(cluster, start=StartFrom.specific_offsets({queue: 1}), options=options)
    if expected is not None:
        run_bodies(transform, bodies(queue, expected))
        return
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | transform
    with pytest.raises(Exception, match=r"offset 1 is not available; the broker holds \[4, 6\)"):
        pipeline.run()


def test_a_hole_in_the_middle_is_jumped_over_and_counted(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    result = run_bodies(read(cluster), bodies(queue, [0, 1, 2, 5, 6, 7, 8]))
    assert counters(result)["offsets_skipped"] == 2


# ---- commits, metrics -----------------------------------------------------------------------------------------------


def counters(result: Any) -> dict[str, int]:
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["counters"]
    return {counter.key.metric.name: counter.committed for counter in found}


def test_a_bounded_read_commits_its_end_for_the_group(cluster: InMemoryCluster) -> None:
    q0, q1 = fill(cluster, 6, 3)
    run_bodies(read(cluster, consumer_group="g"), bodies(q0, range(6)) + bodies(q1, range(3)))
    assert sorted(cluster.commits) == [("g", q0, 6), ("g", q1, 3)]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"consumer_group": "g", "options": ReadOptions(commit_offsets=False, poll_timeout_ms=1)}],
    ids=["no group", "switched off"],
)
def test_nothing_is_committed_without_a_group_or_when_told(cluster: InMemoryCluster, arguments: dict[str, Any]) -> None:
    (queue,) = fill(cluster, 3)
    run_bodies(read(cluster, **arguments), bodies(queue, range(3)))
    assert cluster.commits == []


def test_a_second_look_at_old_messages_does_not_take_the_group_back(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    cluster.commit("g", queue, 7)
    cluster.commits.clear()
    run_bodies(read(cluster, consumer_group="g", stop=StopAt.offsets({queue: 5})), bodies(queue, range(5)))
    assert cluster.commits == []
    assert cluster.committed("g", queue) == 7


def test_a_failed_pipeline_commits_nothing_of_the_bundle(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 3)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster, consumer_group="g", deserializer=odd_fails)
    with pytest.raises(Exception, match="an odd one"):
        pipeline.run()
    assert cluster.committed("g", queue) is None


def test_a_failed_commit_does_not_fail_the_pipeline(cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    from rmqio.errors import TransportError

    (queue,) = fill(cluster, 3)
    cluster.fail_next("commit_offset", TransportError("reset"))
    with caplog.at_level(logging.WARNING, "rmqio"):
        run_bodies(read(cluster, consumer_group="g"), bodies(queue, range(3)))
    assert "was not committed for group g: reset" in caplog.text


def test_metrics_count_records_bytes_and_lag(cluster: InMemoryCluster) -> None:
    q0, q1 = fill(cluster, 6, 3)
    result = run_bodies(read(cluster, stop=StopAt.offsets({q0: 4, q1: 3})), bodies(q0, range(4)) + bodies(q1, range(3)))
    found = counters(result)
    assert found["records_read"] == 7
    read_bytes = sum(r.stored_size for r in cluster.records("t") if r.queue == q1 or r.queue_offset < 4)
    assert found["bytes_read"] == read_bytes
    assert found.get("offsets_skipped", 0) == found.get("decode_failures", 0) == 0
    gauges = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["gauges"]
    lag = {gauge.key.metric.name: gauge.committed.value for gauge in gauges}
    assert lag == {"lag_messages.t.broker-a.0": 2, "lag_messages.t.broker-a.1": 0}


# ---- ReadAll --------------------------------------------------------------------------------------------------------


def read_all(cluster: InMemoryCluster, **arguments: Any) -> ReadAllFromRocketMQ:
    defaults: dict[str, Any] = {
        "start": StartFrom.earliest(),
        "stop": StopAt.latest(),
        "options": QUICK,
        "client_factory": InMemoryClientFactory(cluster.name),
    }
    return ReadAllFromRocketMQ(**defaults | arguments)


def test_read_all_reads_topics_queues_and_descriptors(cluster: InMemoryCluster) -> None:
    t0, t1 = fill(cluster, 3, 2)
    u0, u1 = fill(cluster, 4, 5, topic="u")
    (v0,) = fill(cluster, 6, topic="v")
    elements = [
        "t",
        u1,
        QueueDescriptor(u0, start=StartFrom.specific_offsets({u0: 2})),
        QueueDescriptor(v0, stop=StopAt.offsets({v0: 5}), limit=3),
    ]
    expected = bodies(t0, range(3)) + bodies(t1, range(2)) + bodies(u1, range(5)) + bodies(u0, range(2, 4))
    expected += bodies(v0, range(3))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | beam.Create(elements, reshuffle=False) | read_all(cluster)
        assert_that(records | beam.Map(body), equal_to(expected))


def test_read_all_without_a_stop_ends_where_its_descriptors_do(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 6)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        elements = pipeline | beam.Create([QueueDescriptor(queue, stop=StopAt.latest())], reshuffle=False)
        assert_that(elements | read_all(cluster, stop=None) | beam.Map(body), equal_to(bodies(queue, range(6))))


def test_read_all_reads_equal_elements_twice(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 3)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | beam.Create(["t", "t"], reshuffle=False) | read_all(cluster)
        assert_that(records | beam.Map(body), equal_to(bodies(queue, range(3)) * 2))


def test_read_all_fails_on_a_missing_topic(cluster: InMemoryCluster) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create(["gone"]) | read_all(cluster)
    with pytest.raises(Exception, match="gone"):
        pipeline.run()


# ---- when it is built -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "earliest"}, "start is 'earliest'; it must be made by StartFrom"),
        ({"stop": 5}, "stop is 5; it must be made by StopAt"),
        ({"start": StartFrom.group_offsets()}, "needs consumer_group"),
        ({"tags": "a", "sql_filter": "b > 1"}, "tags and sql_filter exclude each other"),
        ({"sql_filter": " "}, "sql_filter is empty"),
        ({"deserializer": "json"}, "deserializer is 'json'; it must be callable"),
        ({"timestamp": ""}, "timestamp is ''"),
    ],
)
@pytest.mark.parametrize("make", [read, read_all])
def test_misuse_fails_when_it_is_built(make: Any, arguments: dict[str, Any], message: str) -> None:
    with InMemoryCluster() as cluster, pytest.raises(LocalError, match=re.escape(message)):
        make(cluster, **arguments)


@pytest.mark.parametrize("topic", [None, "", [], 5])
def test_a_bad_topic_fails_when_it_is_built(cluster: InMemoryCluster, topic: Any) -> None:
    with pytest.raises(LocalError, match="topic is"):
        read(cluster, topic)


def test_without_any_name_server_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(LocalError, match="no name server given"):
        ReadFromRocketMQ("t")


def test_read_all_takes_no_record_limit(cluster: InMemoryCluster) -> None:
    with pytest.raises(LocalError, match="max_num_records has no meaning for ReadAllFromRocketMQ"):
        read_all(cluster, options=ReadOptions(max_num_records=5))


def test_display_data_shows_what_is_read(cluster: InMemoryCluster) -> None:
    transform = read(cluster, consumer_group="g", tags="a", dead_letter_topic="dead")
    items = {item.key: item.value for item in DisplayData.create_from(transform).items}
    assert items["topic"] == "t"
    assert (items["start"], items["stop"], items["consumer_group"]) == ("earliest", "latest", "g")
    assert (items["filter"], items["dead_letter_topic"]) == ("a", "dead")
    assert "stop" not in {item.key for item in DisplayData.create_from(read(cluster, stop=None)).items}


@pytest.mark.parametrize(("stop", "bounded"), [(StopAt.latest(), True), (None, False)])
def test_beam_knows_whether_the_read_ends(cluster: InMemoryCluster, stop: StopAt | None, bounded: bool) -> None:
    output = beam.Pipeline(runner=FnApiRunner()) | read(cluster, stop=stop)
    assert output.is_bounded is bounded


# ---- the endless read, bundle by bundle -----------------------------------------------------------------------------


class Finalizer:
    """Keeps what a bundle registers; `finalize` is the runner's commit."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def register(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def finalize(self) -> None:
        for callback in self.callbacks:
            callback()
        self.callbacks.clear()


class Harness:
    """Drives the DoFn over several queues as a worker does: in turn, with the residuals of the bundle before."""

    def __init__(self, cluster: InMemoryCluster, queues: Iterable[MessageQueue], **changes: Any) -> None:
        options = changes.pop("options", QUICK)
        fields: dict[str, Any] = {
            "factory": InMemoryClientFactory(cluster.name),
            "group": "g",
            "start": StartFrom.earliest(),
            "stop": None,
            "message_filter": MessageFilter(),
            "deserializer": body,
            "timestamp_of": timestamp_function("born"),
            "options": options,
        }
        self.config = ReadConfig(**fields | changes)
        self.fn = UnboundedReadFn(self.config) if self.config.stop is None else BoundedReadFn(self.config)
        self.finalizer = Finalizer()
        provider = QueueWatermarks()
        self.estimators = {
            queue: provider.create_watermark_estimator(provider.initial_estimator_state(None, None)) for queue in queues
        }
        self.left = {queue: self.fn.initial_restriction(QueueDescriptor(queue)) for queue in queues}
        self.waits: list[tuple[int, int]] = []
        self.fn.setup()
        self._count_waits()

    def _count_waits(self) -> None:
        client: Any = shared_client(self.config.factory)
        wait = client.wait

        def counted(readers: Iterable[Any], timeout_ms: int) -> bool:
            waited = list(readers)
            self.waits.append((len(waited), timeout_ms))
            done: bool = wait(waited, timeout_ms)
            return done

        client.wait = counted

    def bundle(self, *queues: MessageQueue) -> list[Any]:
        """One bundle on some queues, or all; gives the elements in their order."""
        self.waits.clear()
        self.fn.start_bundle()
        elements: list[Any] = []
        for queue in queues or tuple(self.left):
            elements += self._process(queue)
        return elements

    def _process(self, queue: MessageQueue) -> list[Any]:
        coder = self.fn.restriction_coder()
        restriction = coder.decode(coder.encode(self.left[queue]))
        tracker = ThreadsafeRestrictionTracker(self.fn.create_tracker(restriction))
        outputs = list(
            self.fn.process(
                QueueDescriptor(queue),
                finalizer=self.finalizer,
                tracker=RestrictionTrackerView(tracker),
                estimator=ThreadsafeWatermarkEstimator(self.estimators[queue]),
                window=GlobalWindow(),
            )
        )
        tracker.check_done()
        status = tracker.deferred_status()
        self.left[queue] = status[0] if status else QueueRange(0, 0)
        assert all(isinstance(output, WindowedValue) for output in outputs)
        return [output.value for output in outputs]

    def watermark(self, queue: MessageQueue) -> Timestamp:
        return self.estimators[queue].current_watermark()


@pytest.fixture
def clocked() -> Iterator[InMemoryCluster]:
    """A cluster whose waits take no time."""
    with InMemoryCluster(clock=ManualClock()) as made:
        yield made
        close_shared_clients()


def test_an_endless_read_resumes_where_the_bundle_before_ended(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue])
    assert harness.bundle() == bodies(queue, range(5))
    assert harness.left[queue] == QueueRange(5)
    assert harness.bundle() == []
    append(clocked, queue, 2)
    assert harness.bundle() == bodies(queue, [5, 6])
    assert harness.left[queue] == QueueRange(7)


def test_another_instance_goes_on_with_the_residual_and_ignores_the_start(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    first = Harness(clocked, [queue])
    first.bundle()
    append(clocked, queue, 1)
    second = Harness(clocked, [queue])
    second.left = dict(first.left)
    assert second.bundle() == bodies(queue, [5])


def test_a_retried_bundle_reads_the_same_again_on_the_same_instance(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue])
    before = dict(harness.left)
    assert harness.bundle() == bodies(queue, range(5))
    harness.left = before
    assert harness.bundle() == bodies(queue, range(5))


def test_a_bundle_ends_itself_after_its_records(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 100)
    harness = Harness(clocked, [queue], options=ReadOptions(max_records_per_bundle=40, poll_timeout_ms=1))
    assert harness.bundle() == bodies(queue, range(64))  # whole pulls of 32
    assert harness.bundle() == bodies(queue, range(64, 100))


def test_a_new_queue_is_not_waited_for_and_an_idle_one_once(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 0, 0)
    harness = Harness(clocked, [q0, q1], options=ReadOptions(poll_timeout_ms=700))
    assert harness.bundle() == []
    assert harness.waits == []
    assert harness.bundle() == []
    assert harness.waits == [(2, 700)], "one wait, on both queues at once"


def test_a_bundle_that_has_emitted_does_not_wait(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 0, 0)
    harness = Harness(clocked, [q0, q1])
    harness.bundle()
    append(clocked, q0, 3)
    assert harness.bundle() == bodies(q0, range(3))
    assert harness.waits == []


def test_the_wait_on_an_idle_queue_ends_when_a_busy_sibling_has_something(clocked: InMemoryCluster) -> None:
    idle, busy = fill(clocked, 0, 0)
    harness = Harness(clocked, [idle, busy], options=ReadOptions(poll_timeout_ms=10_000))
    harness.bundle()
    append(clocked, busy, 2)
    before = clocked.clock.monotonic()
    assert harness.bundle() == bodies(busy, range(2))
    assert harness.waits == [(2, 10_000)]
    assert clocked.clock.monotonic() == before, "it was ready, so no time passed"


def test_a_message_that_comes_during_the_wait_is_read_in_the_same_bundle(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 0)
    harness = Harness(clocked, [queue], options=ReadOptions(poll_timeout_ms=10_000))
    harness.bundle()
    assert isinstance(clocked.clock, ManualClock)
    clocked.clock.call_later(3, lambda: append(clocked, queue, 1))
    assert harness.bundle() == bodies(queue, [0])


def test_commits_are_registered_with_the_finalizer_and_happen_when_it_runs(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=0))
    harness.bundle()
    assert clocked.commits == []
    harness.finalizer.finalize()
    assert clocked.commits == [("g", queue, 5)]
    harness.bundle()
    assert harness.finalizer.callbacks == [], "nothing new, nothing to commit"
    append(clocked, queue, 1)
    harness.bundle()
    harness.finalizer.finalize()
    assert clocked.commits == [("g", queue, 5), ("g", queue, 6)]


def test_a_commit_waits_for_its_interval(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=3_600_000))
    harness.bundle()
    harness.finalizer.finalize()
    append(clocked, queue, 1)
    harness.bundle()
    assert harness.finalizer.callbacks == []


def test_late_finalizers_do_not_take_the_group_back(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue], options=ReadOptions(poll_timeout_ms=1, offset_commit_interval_ms=0))
    harness.bundle()
    append(clocked, queue, 1)
    harness.bundle()
    harness.finalizer.callbacks.reverse()
    harness.finalizer.finalize()
    assert clocked.commits == [("g", queue, 6)]


@pytest.mark.parametrize(("late_ms", "expected"), [(0, T0 + 4_000), (1500, T0 + 2_500)])
def test_the_watermark_follows_the_newest_timestamp_less_the_disorder(
    clocked: InMemoryCluster, late_ms: int, expected: int
) -> None:
    (queue,) = fill(clocked, 5)
    options = ReadOptions(poll_timeout_ms=1, max_out_of_orderness_ms=late_ms, idle_timeout_ms=3_600_000)
    harness = Harness(clocked, [queue], options=options)
    assert harness.watermark(queue) == MIN_TIMESTAMP
    harness.bundle()
    assert harness.watermark(queue) == Timestamp(micros=expected * 1000)
    clocked.append("t", b"late", born_ms=T0)
    assert harness.bundle() == [b"late"]
    assert harness.watermark(queue) == Timestamp(micros=expected * 1000), "never back"


def test_an_idle_queue_follows_the_clock_and_a_busy_one_does_not(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = fill(clocked, 0, 200)
    options = ReadOptions(poll_timeout_ms=1, idle_timeout_ms=1_000, max_records_per_bundle=1)
    harness = Harness(clocked, [idle, busy], options=options)
    now = [100.0]
    assert harness.fn._readers is not None
    harness.fn._readers._monotonic = lambda: now[0]
    monkeypatch.setattr("rmqio.transforms.read_fn.time.time", lambda: 1_800_000_000.0)
    harness.bundle()
    now[0] += 0.9
    harness.bundle()
    assert harness.watermark(idle) == MIN_TIMESTAMP
    now[0] += 0.2
    harness.bundle()
    assert harness.watermark(idle) == Timestamp(1_800_000_000)
    assert harness.watermark(busy) == Timestamp(micros=(T0 + 95_000) * 1000)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [5, 6, 7]), ("latest", [])])
def test_an_endless_read_goes_on_behind_deleted_messages_by_policy(
    clocked: InMemoryCluster, policy: Any, expected: list[int]
) -> None:
    (queue,) = fill(clocked, 3)
    harness = Harness(clocked, [queue], options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    harness.bundle()
    append(clocked, queue, 5)
    clocked.delete_before(queue, 5)
    assert harness.bundle() == bodies(queue, expected)
    assert harness.left[queue] == QueueRange(8)


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_a_topic_that_was_made_anew_stops_the_read_whatever_the_policy(clocked: InMemoryCluster, policy: Any) -> None:
    (queue,) = fill(clocked, 5)
    harness = Harness(clocked, [queue], options=ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1))
    harness.bundle()
    clocked.delete_topic("t")
    fill(clocked, 2)
    with pytest.raises(OffsetOutOfRange, match=r"offset 5 is not available; the broker holds \[0, 2\)"):
        harness.bundle()


def test_a_split_while_reading_leaves_the_tail_to_the_residual(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 100)
    config = Harness(clocked, [queue], stop=StopAt.latest()).config
    fn = BoundedReadFn(config)
    fn.setup()
    fn.start_bundle()
    tracker = ThreadsafeRestrictionTracker(fn.create_tracker(QueueRange(0, 100)))
    outputs = iter(
        fn.process(
            QueueDescriptor(queue),
            finalizer=Finalizer(),
            tracker=RestrictionTrackerView(tracker),
            estimator=QueueWatermark(0),
            window=GlobalWindow(),
        )
    )
    got = [next(outputs).value]
    split = tracker.try_split(0.25)
    assert split == (QueueRange(0, 49), QueueRange(49, 100))
    got += [output.value for output in outputs]
    assert got == bodies(queue, range(49))
    tracker.check_done()
    assert tracker.deferred_status() is None
    fn.teardown()


def test_size_is_what_is_left_by_the_mean_size_of_messages(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 10)
    harness = Harness(clocked, [queue])
    fn, descriptor = harness.fn, QueueDescriptor(queue)
    assert fn.restriction_size(descriptor, QueueRange(0)) == 10 * 1024.0
    assert fn.restriction_size(descriptor, QueueRange(4, 6)) == 2 * 1024.0
    assert fn.restriction_size(descriptor, QueueRange(50)) == 0.0


@pytest.mark.parametrize(
    ("restriction", "truncated"),
    [(QueueRange(5), None), (QueueRange(5, 9), QueueRange(5, 9)), (QueueRange(5, None, 3), None)],
)
def test_a_drain_ends_an_endless_range_and_finishes_a_bounded_one(
    clocked: InMemoryCluster, restriction: QueueRange, truncated: QueueRange | None
) -> None:
    (queue,) = fill(clocked, 1)
    assert Harness(clocked, [queue]).fn.truncate(QueueDescriptor(queue), restriction) == truncated


def test_teardown_closes_the_readers_and_is_idempotent(clocked: InMemoryCluster) -> None:
    queues = fill(clocked, 1, 1)
    harness = Harness(clocked, queues)
    harness.bundle()
    assert clocked.open_readers == 2
    harness.fn.teardown()
    harness.fn.teardown()
    assert clocked.open_readers == 0


def test_a_finished_queues_reader_is_closed_at_once(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 3)
    harness = Harness(clocked, [queue], stop=StopAt.latest())
    assert harness.bundle() == bodies(queue, range(3))
    assert clocked.open_readers == 0
    assert harness.left[queue] == QueueRange(0, 0)


# ---- readers --------------------------------------------------------------------------------------------------------


class SlowReader:
    """A reader whose pull is not answered."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue, self.position, self.is_ready, self.is_at_end = queue, 0, False, False

    def poll(self) -> Fetched | None:
        return None

    def seek(self, offset: int) -> None:
        self.position = offset

    def close(self) -> None:
        pass


def test_a_broker_that_does_not_answer_costs_a_bundle_its_wait_once_and_not_once_a_queue(
    clocked: InMemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = fill(clocked, 0, 0, 0)
    factory = InMemoryClientFactory(clocked.name)
    client: Any = shared_client(factory)
    waits: list[int] = []
    monkeypatch.setattr(client, "open_reader", lambda queue, offset, message_filter: SlowReader(queue))
    monkeypatch.setattr(client, "wait", lambda readers, timeout_ms: waits.append(timeout_ms))
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=300)
    readers.start_bundle()
    for queue in queues:
        assert not readers.await_data(readers.slot(queue, 0))
    assert sum(waits) == 300
    waits.clear()
    readers.start_bundle()
    readers.await_data(readers.slot(queues[0], 0))
    assert waits == [200], "a new bundle has a new budget"


def test_a_reader_that_has_not_been_used_for_half_a_minute_is_closed(clocked: InMemoryCluster) -> None:
    q0, q1 = fill(clocked, 1, 1)
    now = [0.0]
    factory = InMemoryClientFactory(clocked.name)
    readers = Readers(factory, MessageFilter(), poll_timeout_ms=1, monotonic=lambda: now[0])
    readers.slot(q0, 0)
    now[0] = 29.0
    readers.slot(q1, 0)
    readers.start_bundle()
    assert clocked.open_readers == 2
    now[0] = 31.0
    readers.start_bundle()
    assert clocked.open_readers == 1
    readers.close()
    assert clocked.open_readers == 0


def test_a_slot_is_positioned_where_its_restriction_begins(clocked: InMemoryCluster) -> None:
    (queue,) = fill(clocked, 9)
    readers = Readers(InMemoryClientFactory(clocked.name), MessageFilter(), poll_timeout_ms=1)
    slot = readers.slot(queue, 3)
    assert slot.reader.position == 3
    slot.reader.poll()
    assert readers.slot(queue, 5) is slot
    assert slot.reader.position == 5
    readers.close()


# ---- values of the read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "descriptor",
    [
        QueueDescriptor(Q0),
        QueueDescriptor(Q0, StartFrom.earliest(), StopAt.latest(), 5),
        QueueDescriptor(Q0, StartFrom.timestamp(T0), StopAt.timestamp(T0)),
        QueueDescriptor(Q0, StartFrom.group_offsets("error"), StopAt.offsets({Q0: 9})),
        QueueDescriptor(Q0, StartFrom.specific_offsets({Q0: 4}, "earliest")),
    ],
)
def test_a_descriptor_survives_its_coder(descriptor: QueueDescriptor) -> None:
    from rmqio.transforms.descriptor import QueueDescriptorCoder

    coder = QueueDescriptorCoder()
    assert coder.decode(coder.encode(descriptor)) == descriptor
    assert coder.encode(descriptor) == coder.encode(coder.decode(coder.encode(descriptor)))


def test_a_descriptor_carries_the_offsets_of_its_own_queue_only() -> None:
    from rmqio.transforms.descriptor import QueueDescriptorCoder

    both = {Q0: 4, Q1: 5}
    encoded = QueueDescriptorCoder().encode(QueueDescriptor(Q1, StartFrom.specific_offsets(both), StopAt.offsets(both)))
    decoded = QueueDescriptorCoder().decode(encoded)
    assert decoded.start == StartFrom.specific_offsets({Q1: 5})
    assert decoded.stop == StopAt.offsets({Q1: 5})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"null", json.dumps({"queue": [1]}).encode()])
def test_garbage_is_no_descriptor(data: bytes) -> None:
    from rmqio.errors import WireError
    from rmqio.transforms.descriptor import QueueDescriptorCoder

    with pytest.raises(WireError, match="not a queue descriptor"):
        QueueDescriptorCoder().decode(data)
