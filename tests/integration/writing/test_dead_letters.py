"""Dead letters and duplicates on a real broker: large bodies, and a write whose bundle is run again."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import DropDuplicates, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import SerdeError
from rmqio.local import LocalRocketMQ
from rmqio.options import ClientOptions
from rmqio.replay import replay
from rmqio.transforms.shared import close_shared_clients
from rmqio.wire.batch import MAX_MESSAGE_BYTES
from tests.helpers.client.raw_send import stored

pytestmark = pytest.mark.broker


class Topics:
    """Topics of a test's own, and what they hold."""

    def __init__(self, broker: LocalRocketMQ) -> None:
        self.broker, self.name_server = broker, broker.name_server
        self.options = ClientOptions(broker.name_server, compress_over_bytes=MAX_MESSAGE_BYTES + 1)
        self._client = RemotingQueueClient(self.options)

    def new(self) -> str:
        name = f"letters-{uuid.uuid4().hex[:12]}"
        self.broker.create_topic(name, queues=2)
        return name

    def send(self, topic: str, *messages: Message) -> None:
        producer = RemotingClientFactory(self.options).producer("g")
        for message in messages:
            producer.send(message.replace(topic=topic))
        producer.close()

    def records(self, topic: str, bodies: list[bytes]) -> list[Record]:
        return stored(self._client, topic, bodies)

    def read(self, topic: str, **arguments: Any) -> ReadFromRocketMQ:
        bounds: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
        return ReadFromRocketMQ(topic, name_server=self.name_server, **(bounds | arguments))

    def close(self) -> None:
        self._client.close()
        close_shared_clients()


@pytest.fixture
def topics(rocketmq: LocalRocketMQ) -> Iterator[Topics]:
    made = Topics(rocketmq)
    yield made
    made.close()


def refuse(record: Record) -> bytes:
    raise SerdeError("not today")


def test_letters_hold_the_largest_messages_with_all_of_their_properties_and_give_them_back(topics: Topics) -> None:
    """The largest that is taken; one that is larger than that and was sent compressed; one full of properties."""
    source, letters = topics.new(), topics.new()
    sent = [
        Message(os.urandom(MAX_MESSAGE_BYTES), tags="t", keys=("k",)),
        Message(os.urandom(1 << 20) + bytes(5 << 20), sharding_key="s"),
        Message(b"small", keys=["k" * 100] * 50, properties={f"p{n}": "v" * 1_000 for n in range(25)}),
    ]
    topics.send(source, *sent)
    bodies = [message.body for message in sent]
    first = topics.records(source, bodies)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | topics.read(source, deserializer=refuse, dead_letter_topic=letters)
    ids = {record.get_property("RMQIO_MESSAGE_ID") for record in topics.records(letters, bodies)}
    assert ids == {record.message_id for record in first}
    assert replay(letters, name_server=topics.name_server).sent == 3
    again = [record for record in topics.records(source, bodies * 2) if record not in first]
    assert len(again) == 3
    by_body = {record.body: record for record in again}
    for message in sent:
        record = by_body[message.body]
        assert (record.tags, record.keys, record.sharding_key) == (message.tags, message.keys, message.sharding_key)
    # As many of those that are too many for a letter as there is room for.
    kept = {name: value for name, value in by_body[b"small"].properties.items() if name[0] == "p"}
    assert kept.items() <= sent[2].properties.items()
    assert len(kept) >= 20


class FailsOnce(beam.DoFn):
    """Behind the write: when it fails, the bundle's messages are stored."""

    def process(self, element: Any) -> None:
        raise RuntimeError("behind the write")


def copy(topics: Topics, source: str, sink: str, *, fails: bool) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        written = pipeline | topics.read(source) | WriteToRocketMQ(sink, name_server=topics.name_server)
        if fails:
            _ = written.sent | beam.ParDo(FailsOnce())


def test_a_bundle_that_is_run_again_leaves_duplicates_which_a_read_drops(topics: Topics) -> None:
    source, sink, plain, once = (topics.new() for _ in range(4))
    bodies = [b"%03d" % number for number in range(200)]
    topics.send(source, *map(Message, bodies))
    topics.records(source, bodies)
    with pytest.raises(Exception, match="behind the write"):
        copy(topics, source, sink, fails=True)
    copy(topics, source, sink, fails=False)
    assert Counter(record.body for record in topics.records(sink, bodies * 2)) == dict.fromkeys(bodies, 2)
    for target, arguments in ((plain, {}), (once, {"deduplicate": DropDuplicates()})):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            read = topics.read(sink, **arguments)
            _ = pipeline | read | WriteToRocketMQ(target, name_server=topics.name_server)
    assert written(topics.records(plain, bodies * 2)) == dict.fromkeys(bodies, 2)
    assert written(topics.records(once, bodies)) == dict.fromkeys(bodies, 1)


def written(records: list[Record]) -> Counter[bytes]:
    """How often each body was written. A send that timed out on a busy machine is stored twice, with one id."""
    return Counter({record.message_id: record.body for record in records}.values())
