"""What does not decode goes to the dead-letter topic, and a letter that cannot be written stops the read."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.errors_out import ReadFailure, dead_letter
from rmqio.transforms.shared import close_shared_clients


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 1)
        made.create_topic("dead", 1)
        yield made
        close_shared_clients()


def run(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadFromRocketMQ(
            "t",
            client_factory=InMemoryClientFactory(cluster.name),
            consumer_group="g",
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            deserializer=JsonDeserializer(),
            dead_letter_topic="dead",
        )


def test_a_body_that_does_not_decode_is_kept_with_its_coordinates(cluster: InMemoryCluster) -> None:
    for body in (b'{"a": 1}', b"no json"):
        cluster.append("t", body, queue_id=0)
    run(cluster)
    (letter,) = cluster.records("dead")
    assert letter.body == b"no json"
    assert letter.properties["RMQIO_ORIGIN"] == "t/broker-a/0/1"


def test_a_letter_keeps_tags_keys_and_the_senders_properties(cluster: InMemoryCluster) -> None:
    properties = {"tenant": "7", "naïve": "né"}
    cluster.append("t", b"no json", queue_id=0, tags="red", keys=("a", "b"), properties=properties)
    run(cluster)
    (letter,) = cluster.records("dead")
    assert (letter.tags, letter.keys) == ("red", ("a", "b"))
    assert {name: letter.properties[name] for name in properties} == properties
    assert letter.properties["RMQIO_ERROR"].startswith("SerdeError: ")


def test_properties_that_leave_no_room_are_dropped_and_counted() -> None:
    failure = ReadFailure("t", "b", 0, 1, "", "", "", 0, 0, "E", "r", b"x", (("big", "x" * 9_000), ("small", "y")))
    assert dict(dead_letter(failure).properties) == {
        "RMQIO_DROPPED_PROPERTIES": "2",
        "RMQIO_ORIGIN": "t/b/0/1",
        "RMQIO_ERROR": "E: r",
    }


def test_a_letter_that_cannot_be_written_stops_the_read_and_nothing_is_committed(cluster: InMemoryCluster) -> None:
    record = cluster.append("t", b"x" * (5 << 20), queue_id=0)  # no broker takes more than 4 MiB from us
    with pytest.raises(Exception, match="a dead letter cannot be written to topic 'dead'"):
        run(cluster)
    assert cluster.records("dead") == []
    assert cluster.committed("g", record.queue) is None
