"""Dead letters on an in-memory cluster, and replays of them."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.dead_letters.command import main
from rmqio.dead_letters.letters import Failed, letter_id, make_letter
from rmqio.errors import SerdeError
from rmqio.model import MessageQueue
from rmqio.replay import ReplayResult, replay
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

DEAD = [MessageQueue("dead", "broker-a", 0), MessageQueue("dead", "broker-a", 1)]
AT = ["--name_server=127.0.0.1:1", "--dead_letter_topic=dead"]


def refuse(record: Record) -> bytes:
    raise SerdeError(f"no {record.body.decode()}")


def fail_to_read(cluster: InMemoryCluster, topic: str = "src") -> None:
    """Makes dead letters of all messages in a topic."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadFromRocketMQ(
            topic,
            client_factory=InMemoryClientFactory(cluster.name),
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            deserializer=refuse,
            dead_letter_topic="dead",
        )


def letter(cluster: InMemoryCluster, body: bytes = b"x", topic: str = "src", offset: int = 0, **fields: Any) -> Record:
    """Returns a letter as a read of `topic` would write it."""
    fields = {"error": "SerdeError", "reason": "no JSON", "origin": MessageQueue(topic, "broker-a", 0)} | fields
    message = make_letter(Failed(body, queue_offset=offset, **fields))
    producer = InMemoryClientFactory(cluster.name).producer("g")
    sent = producer.send(message, DEAD[0], message_id=letter_id(message))
    producer.close()
    return cluster.records("dead")[sent.queue_offset]


def run(cluster: InMemoryCluster, **arguments: Any) -> ReplayResult:
    return replay("dead", client_factory=InMemoryClientFactory(cluster.name), **arguments)


def program(cluster: InMemoryCluster, *argv: str) -> int:
    return main([*AT, *argv], client_factory=InMemoryClientFactory(cluster.name))


def new(cluster: InMemoryCluster, topic: str, begin: int = 0) -> list[Record]:
    return [record for record in cluster.records(topic) if record.queue_offset >= begin]


def fill(cluster: InMemoryCluster) -> None:
    for number in range(3):
        letter(cluster, b"src", offset=number)
    letter(cluster, b"late", offset=9, error="ValueError", reason="too late")
    letter(cluster, b"other", topic="other", reason="no Avro")
