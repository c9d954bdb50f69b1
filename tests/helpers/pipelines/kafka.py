"""Small pipelines that write to Kafka, and read what is there."""

from __future__ import annotations

import tempfile
import uuid
from typing import Any, NamedTuple, Protocol

import apache_beam as beam

from rmqio.connect import KafkaRecord, ReadFromKafka, WriteToKafka
from rmqio.connect.kafka.records import KafkaRecordCoder
from rmqio.start import StopAt
from tests.helpers.servers.kafka import Kafka


class HasServers(Protocol):
    """A broker, a cluster, or one of their listeners."""

    @property
    def servers(self) -> str: ...


class Listener(NamedTuple):
    """One of several of a broker."""

    servers: str


class Keep:
    """Appends records to a file, from whichever copy of the function."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, record: KafkaRecord) -> None:
        with open(self._path, "a") as file:
            file.write(f"{KafkaRecordCoder().encode(record).hex()}\n")


def new_topic(broker: Kafka, partitions: int = 2) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions)


def write(broker: HasServers, topic: str, elements: list[Any], **options: Any) -> Any:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create(elements, reshuffle=False) | WriteToKafka(broker.servers, topic, **options)
    result = pipeline.run()
    result.wait_until_finish()
    return {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}


def read(broker: HasServers, topic: Any, **options: Any) -> list[KafkaRecord]:
    """Everything up to the end of now."""
    with tempfile.NamedTemporaryFile() as file:
        with beam.Pipeline() as pipeline:
            records = pipeline | ReadFromKafka(broker.servers, topic, **{"stop": StopAt.latest(), **options})
            _ = records | beam.Map(Keep(file.name))
        lines = file.read().splitlines()
    return [KafkaRecordCoder().decode(bytes.fromhex(line.decode())) for line in lines]
