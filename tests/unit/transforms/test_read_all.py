"""`ReadAllFromRocketMQ` in Beam's in-process runner."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import MessageQueue, QueueDescriptor, StartFrom, StopAt
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import bodies, body, fill, read_all


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


def test_read_all_that_can_read_nothing_says_so_once(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 2, 1)
    (queue,) = fill(cluster, 4, topic="u")
    elements = ["t", queue, QueueDescriptor(queue)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = read_all(cluster, start=StartFrom.group_offsets(), consumer_group="bilings")
        assert_that(pipeline | beam.Create(elements, reshuffle=False) | read, equal_to([]))
    (said,) = [text for text in caplog.messages if "reads none of" in text]
    assert "group 'bilings' has no offset there" in said


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
