"""A bounded `ReadFromRocketMQ` in Beam's in-process runner: where it starts and stops, what it selects and gives."""

from __future__ import annotations

import itertools
import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import MessageQueue, QueueDescriptor, ReadOptions, Record, StartFrom, StopAt
from rmqio.testing import InMemoryCluster
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.reading.read_fn import BoundedReadFn
from rmqio.transforms.reading.restriction import QueueRange
from tests.helpers.transforms.reading import T0, bodies, body, clean_cluster, fill, read, run_bodies

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
        ({"deserializer": ToOffset(), "batches": True}, BatchConstraint(int)),
        ({"deserializer": body}, Any),
    ],
)
def test_the_element_type_is_known_to_beam(
    cluster: InMemoryCluster, arguments: dict[str, Any], element_type: Any
) -> None:
    from apache_beam.typehints import native_type_compatibility, typehints

    output = beam.Pipeline(runner=FnApiRunner()) | read(cluster, **arguments)
    if not isinstance(element_type, BatchConstraint):
        element_type = native_type_compatibility.convert_to_beam_type(element_type)
    assert output.element_type == element_type
    if "batches" in arguments:
        assert typehints.is_consistent_with(output.element_type, typehints.List[int]), "it is a list, too"


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


@pytest.mark.parametrize(("count", "parts"), [(1_000, 7), (3, 7), (0, 7), (1, 1)])
def test_the_parts_of_a_queue_make_the_whole(cluster: InMemoryCluster, count: int, parts: int) -> None:
    """Each message once. Parts without a message are left out."""
    queues = fill(cluster, count, count)
    options = ReadOptions(splits_per_queue=parts, max_records_per_bundle=50, poll_timeout_ms=1)
    wanted = [each for queue in queues for each in bodies(queue, range(count))]
    with beam.Pipeline(FnApiRunner()) as pipeline:
        assert_that(pipeline | read(cluster, deserializer=body, options=options), equal_to(wanted))
    fn = BoundedReadFn(read(cluster, options=options)._config)
    ranges = list(fn.split(QueueDescriptor(queues[0]), QueueRange(0, count)))
    assert len(ranges) == max(1, min(parts, count))
    assert (ranges[0].start, ranges[-1].stop) == (0, count)
    assert all(one.stop == other.start for one, other in itertools.pairwise(ranges))
