"""A pipeline with hops that drops, doubles and delays messages at known places, on all runners."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from rmqio import Batch, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.runners import options
from rmqio.transforms.coders import BatchConstraint

DROPPED = frozenset({(0, 10), (0, 11), (0, 12), (0, 4500)})
BAD = (1, 5)
DOUBLED = (0, 4200)
SLOW_QUEUE = 1
SLOW_S = 0.2


def place_of(record: Record) -> tuple[int, int]:
    """Returns queue id and offset."""
    return record.queue_id, record.queue_offset


def message_of(record: Record) -> Message:
    """Returns the same message. Raises for one of them."""
    if place_of(record) == BAD:
        raise ValueError("bad")
    return Message(record.body, keys=record.keys)


class DropFn(beam.DoFn):
    """Leaves some messages out."""

    def process(self, element: Batch[Record]) -> Iterator[Batch[Record]]:
        kept = [n for n, record in enumerate(element) if place_of(record) not in DROPPED]
        yield element.with_values([element[n] for n in kept], kept)


class DoubleFn(beam.DoFn):
    """Emits one message twice."""

    def process(self, element: Batch[Message]) -> Iterator[Batch[Message]]:
        assert element.queue is not None
        queue_id, offsets = element.queue.queue_id, element.offsets
        kept = [n for n in range(len(element)) for _ in range(1 + ((queue_id, offsets[n]) == DOUBLED))]
        yield element.with_values([element[n] for n in kept], kept)


class SlowFn(beam.DoFn):
    """Takes its time for the batches of one queue."""

    def process(self, element: Batch[Message]) -> Iterator[Batch[Message]]:
        assert element.queue is not None
        if element.queue.queue_id == SLOW_QUEUE:
            time.sleep(SLOW_S)
        yield element


def main() -> None:
    """Takes the topics of messages, results, dead letters and hops, the name server, and flags of the runner."""
    source, sink, dead, hops, name_server = sys.argv[1:6]
    at: Any = {"name_server": name_server}

    def hop(name: str) -> Audit:
        return Audit(name, topic=hops, **at)

    with beam.Pipeline(options=options(sys.argv[6:])) as pipeline:
        _ = (
            pipeline
            | ReadFromRocketMQ(source, start=StartFrom.earliest(), stop=StopAt.latest(), batches=True, **at)
            | hop("read")
            | "Drop" >> beam.ParDo(DropFn()).with_output_types(BatchConstraint(Record))
            | MapRecords(message_of, dead_letter_topic=dead, **at)
            | hop("parsed")
            | "Double" >> beam.ParDo(DoubleFn()).with_output_types(BatchConstraint(Message))
            | "Slow" >> beam.ParDo(SlowFn()).with_output_types(BatchConstraint(Message))
            | hop("doubled")
            | WriteToRocketMQ(sink, batches=True, **at)
        )


if __name__ == "__main__":
    main()
