"""`ReadFromRocketMQ` and `ReadAllFromRocketMQ` on a cluster in memory, bounded, in Beam's in-process runner."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any, Literal

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

from rmqio import MessageQueue, QueueDescriptor, ReadOptions, Record, StartFrom, StopAt
from rmqio.errors import RmqioError
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryCluster
from tests.helpers.reading import (
    T0,
    append,
    bodies,
    body,
    body_of,
    clean_cluster,
    counters,
    fill,
    odd_fails,
    read,
    read_all,
    run_bodies,
)


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


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
    with clean_cluster(poll_records=poll_records) as cluster:
        q0, q1 = fill(cluster, 50, 23)
        options = ReadOptions(max_records_per_bundle=3, poll_timeout_ms=1)
        run_bodies(read(cluster, options=options), bodies(q0, range(50)) + bodies(q1, range(23)))


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


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(20_000, [70]), (40, [64, 6])],
    ids=["all that had arrived", "whole pulls up to 40"],
)
def test_batches_hold_what_had_arrived_stamped_with_the_earliest(
    cluster: InMemoryCluster, most: int, sizes: list[int]
) -> None:
    fill(cluster, 70)
    offsets = iter(range(70))
    expected = [list(itertools.islice(offsets, size)) for size in sizes]
    options = ReadOptions(max_records_per_bundle=most, poll_timeout_ms=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        batches = pipeline | read(cluster, deserializer=ToOffset(), batches=True, options=options) | beam.Map(stamped)
        assert_that(batches, equal_to([(batch, T0 + batch[0] * 1000) for batch in expected]))


def stamped(element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> tuple[Any, int]:
    return element, timestamp.micros // 1000


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


def failure_row(failure: Any) -> tuple[Any, ...]:
    return failure.topic, failure.queue_id, failure.queue_offset, failure.error, failure.body


class Down(RmqioError):
    """As of a registry: no fault of a record."""


def test_what_is_no_fault_of_a_record_makes_no_dead_letters(cluster: InMemoryCluster) -> None:
    fill(cluster, 4)

    def ask(_: Any) -> Any:
        raise Down("the registry does not answer")

    pipeline = beam.Pipeline(runner=FnApiRunner())
    with ErrorHandler(beam.Map(failure_row)) as handler:
        _ = pipeline | read(cluster, deserializer=ask).with_error_handler(handler)
    with pytest.raises(Down, match="the registry does not answer"):
        pipeline.run()


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
    with clean_cluster(poll_records=1) as cluster:
        fill(cluster, 10)
        options = ReadOptions(on_offset_out_of_range=policy, max_records_per_bundle=1, poll_timeout_ms=1)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            found = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6), options=options)
            assert_that(found, equal_to(expected))
        assert counters(pipeline.result)["offsets_skipped"] == 10 - len(expected)


def test_messages_deleted_while_reading_fail_the_pipeline_by_default() -> None:
    with clean_cluster(poll_records=1) as cluster:
        fill(cluster, 10)
        pipeline = beam.Pipeline(runner=FnApiRunner())
        options = ReadOptions(max_records_per_bundle=1, poll_timeout_ms=1)
        _ = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6), options=options)
        with pytest.raises(Exception, match=r"queue t/broker-a/0: offset 1 is not available.*\[6, 10\)"):
            pipeline.run()


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


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_hole_in_the_middle_is_jumped_over_and_counted_if_that_is_permitted(
    cluster: InMemoryCluster, policy: Literal["earliest", "latest"]
) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    options = ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1)
    result = run_bodies(read(cluster, options=options), bodies(queue, [0, 1, 2, 5, 6, 7, 8]))
    assert counters(result)["offsets_skipped"] == 2


def test_a_hole_in_the_middle_fails_the_pipeline_by_default(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster)
    with pytest.raises(Exception, match=r"2 offsets after \d+ are missing"):
        pipeline.run()


# ---- commits, metrics -----------------------------------------------------------------------------------------------


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
    from rmqio.errors import BrokerError

    (queue,) = fill(cluster, 3)
    cluster.fail_next("commit_offset", BrokerError(16, "no permission", "update the offset"))
    with caplog.at_level(logging.WARNING, "rmqio"):
        run_bodies(read(cluster, consumer_group="g"), bodies(queue, range(3)))
    assert re.search("was not committed for group g: .*no permission", caplog.text)


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
    assert lag.pop("lag_seconds.t.broker-a.0") > 1_000_000, "the cluster's clock stands in the past"
    assert lag == {
        "lag_messages.t.broker-a.0": 2,
        "lag_messages.t.broker-a.1": 0,
        "lag_bytes.t.broker-a.0": 2 * read_bytes // 7,
        "lag_bytes.t.broker-a.1": 0,
        "lag_seconds.t.broker-a.1": 0,
    }


# ---- ReadAll --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "named",
    [
        {"start": StartFrom.specific_offsets({MessageQueue("t", "brokr-a", 0): 1})},
        {"stop": StopAt.offsets({MessageQueue("t", "broker-a", 7): 1, MessageQueue("u", "broker-a", 0): 1})},
    ],
)
@pytest.mark.parametrize("element", ["t", MessageQueue("t", "broker-a", 1)])
def test_read_all_refuses_an_offset_of_a_queue_that_does_not_exist(
    cluster: InMemoryCluster, named: dict[str, Any], element: Any
) -> None:
    fill(cluster, 3, 2)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([element], reshuffle=False) | read_all(cluster, **named)
    with pytest.raises(Exception, match=r"has an offset for queue t/.*, which is not among the queues that are read: "):
        pipeline.run()
