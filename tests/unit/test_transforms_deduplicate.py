"""Records with the same unique id come out once; without one, the place in the commit log tells them apart."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import DropDuplicates, Message, ReadFromRocketMQ, StartFrom, StopAt
from rmqio.errors import LocalError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.shared import close_shared_clients


def test_a_message_that_was_stored_twice_is_read_once() -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("t", 2)
        factory = InMemoryClientFactory(cluster.name)
        producer = factory.producer("p")
        for body, message_id in ((b"a", "1"), (b"b", "2"), (b"a", "1"), (b"c", "3"), (b"b", "2")):
            producer.send(Message(body, topic="t"), message_id=message_id)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            records = pipeline | ReadFromRocketMQ(
                "t", client_factory=factory, start=StartFrom.earliest(), stop=StopAt.latest()
            )
            bodies = records | DropDuplicates() | beam.Map(lambda record: record.body)
            assert_that(bodies, equal_to([b"a", b"b", b"c"]))
        close_shared_clients()


@pytest.mark.parametrize("within_ms", [0, -1, 1.5, True, "1"])
def test_a_wrong_time_is_refused(within_ms: object) -> None:
    with pytest.raises(LocalError, match="within_ms"):
        DropDuplicates(within_ms=within_ms)  # type: ignore[arg-type]
