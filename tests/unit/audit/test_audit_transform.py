"""`Audit` in a pipeline, and `rmqio audit` over its topics: each fault is named with the hop where it happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.audit.checking import Request, Result, audit
from rmqio.audit.report.document import document
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.batch_coder import BatchConstraint
from rmqio.transforms.shared import close_shared_clients

COUNT = 300


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("source", "sink", "hops", "dead"):
            made.create_topic(topic, 2)
        yield made
        close_shared_clients()


@dataclasses.dataclass
class Flow:
    """Pipelines over one cluster."""

    cluster: InMemoryCluster

    @property
    def factory(self) -> InMemoryClientFactory:
        return InMemoryClientFactory(self.cluster.name)

    def fill(self, count: int = COUNT) -> None:
        for number in range(count):
            self.cluster.append("source", b"%d" % number, keys=(f"k{number}",), queue_id=number % 2)

    def read(self, **more: Any) -> ReadFromRocketMQ:
        return ReadFromRocketMQ(
            "source",
            consumer_group="g",
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            client_factory=self.factory,
            **more,
        )

    def hop(self, name: str, **more: Any) -> Audit:
        return Audit(name, topic="hops", client_factory=self.factory, **more)

    def write(self, **more: Any) -> WriteToRocketMQ:
        return WriteToRocketMQ("sink", client_factory=self.factory, **more)

    def run(self, build: Callable[[Any], Any]) -> None:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            build(pipeline)

    def audit(self, **more: Any) -> Result:
        client = self.factory.queue_client()
        try:
            return audit(client, Request("source", "sink", **{"audit_topic": "hops", **more}))
        finally:
            client.close()


@pytest.fixture
def flow(cluster: InMemoryCluster) -> Flow:
    made = Flow(cluster)
    made.fill()
    return made


def number_of(record: Record) -> int:
    return int(record.body)


def drop_some(record: Record) -> list[Record]:
    return [] if number_of(record) in (7, 8, 9, 250) else [record]


def double_some(record: Record) -> list[Record]:
    return [record] * (2 if number_of(record) in (20, 101) else 1)


def test_singly_each_fault_is_found_where_it_is(flow: Flow) -> None:
    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read()
            | flow.hop("read")
            | "Drop" >> beam.FlatMap(drop_some).with_output_types(Record)
            | flow.hop("dropped")
            | "Double" >> beam.FlatMap(double_some).with_output_types(Record)
            | flow.hop("doubled")
            | flow.write()
        )
    )
    result = flow.audit()
    assert result.identity.name == "place"
    total = result.findings.total
    assert (total.sent, total.arrived, total.lost, total.doubled, total.foreign) == (COUNT, COUNT - 4, 4, 2, 0)
    assert {name: passed.count for name, passed in result.hops.items()} == {
        "read": COUNT,
        "dropped": COUNT - 4,
        "doubled": COUNT - 2,
    }
    report = document(result, 10, {})
    assert {(each["after"][0], each["before"], each["lost"], each["doubled"]) for each in report["faults"]} == {
        ("read", "dropped", 2, 0),
        ("dropped", "doubled", 0, 1),
    }
    ranges = report["ranges"]["lost"]
    assert [(each["queue"], each["first_offset"], each["last_offset"], each["where"]) for each in ranges] == [
        (report["from_queues"][0]["queue"], 4, 4, "between 'read' and 'dropped'"),
        (report["from_queues"][0]["queue"], 125, 125, "between 'read' and 'dropped'"),
        (report["from_queues"][1]["queue"], 3, 4, "between 'read' and 'dropped'"),
    ]
    assert {each["where"] for each in report["messages"]["doubled"]} == {"between 'dropped' and 'doubled'"}


class DropFn(beam.DoFn):
    """Leaves values of batches out, as a user's own code does."""

    def process(self, element: Any) -> Any:
        kept = [n for n, record in enumerate(element) if number_of(record) not in (7, 8, 9, 250)]
        yield element.with_values([element[n] for n in kept], kept)


class FaultyFn(beam.DoFn):
    """Leaves one out, and one twice, of the same queue: the count is right, the sum is not."""

    def process(self, element: Any) -> Any:
        kept = [n for n, message in enumerate(element) for _ in range({b"30": 0, b"40": 2}.get(message.body, 1))]
        yield element.with_values([element[n] for n in kept], kept)


def to_message(record: Record) -> Message:
    if number_of(record) == 77:
        raise ValueError("bad")
    return Message(record.body)


def test_in_batches_with_steps_and_dead_letters(flow: Flow) -> None:
    mapping = MapRecords(to_message, dead_letter_topic="dead", client_factory=flow.factory)
    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read(batches=True)
            | flow.hop("read")
            | "Drop" >> beam.ParDo(DropFn()).with_output_types(BatchConstraint(Record))
            | flow.hop("dropped")
            | "Map" >> mapping
            | flow.hop("mapped")
            | "Fault" >> beam.ParDo(FaultyFn())
            | flow.write(batches=True)
        )
    )
    result = flow.audit(dead_letter_topic="dead")
    total = result.findings.total
    assert (total.sent, total.lost, total.doubled, total.foreign) == (COUNT, 5, 0, 1), "the copy has an id of its own"
    assert result.findings.in_letters == 1
    report = document(result, 10, {})
    faults = {
        (tuple(each["after"]), each["before"]): [(each["offset"], each["queue"]) for each in each["lost_messages"]]
        for each in report["faults"]
    }
    assert set(faults) == {(("read",), "dropped"), (("dropped",), "mapped"), (("mapped",), None)}
    lost = {(each["offset"], each["where"]) for each in report["messages"]["lost"]}
    assert (15, "between 'mapped' and topic sink") in lost
    assert (4, "between 'read' and 'dropped'") in lost
