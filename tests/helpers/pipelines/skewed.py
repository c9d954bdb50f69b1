"""A pipeline with one hot key, big bodies and a limit, on all runners."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from rmqio import ClaimCheck, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
from rmqio.skew import BoundedGroupIntoBatches, SaltedCombinePerKey, SkewReport, measure_shuffles

BIG_BYTES = 20_000
COUNTS = (900, 300)
BATCH = 100
MOST_BYTES = 200
RATE = 2_000


def key_of(number: int) -> str:
    """Returns the key of a message: most have the same."""
    return f"k{number % 10}" if number % 5 == 0 else "hot"


def body_of(number: int) -> bytes:
    """Returns the body: one of a hundred is big."""
    return b"%d" % number if number % 100 else b"%d " % number + b"." * BIG_BYTES


def pair_of(record: Record) -> tuple[str, int]:
    """Returns key and number of a message, whatever is behind the number."""
    number = int(record.body.split()[0])
    if record.body != body_of(number):
        raise ValueError(f"body {number} is not the one that was sent: {len(record.body)} bytes")
    return record.keys[0], number


def total(element: tuple[str, int]) -> Message:
    """Returns the message of a total."""
    return Message(b"%d" % element[1], keys=(element[0],), tags="total")


def batch(element: tuple[str, list[int]]) -> Message:
    """Returns the message of a batch, as large as a batch of big bodies would be."""
    key, numbers = element
    return Message(" ".join(map(str, sorted(numbers))).encode().ljust(BIG_BYTES), keys=(key,), tags="batch")


def size(element: tuple[str, list[int]]) -> Message:
    """Returns the message of how many values a batch has."""
    return Message(b"%d" % len(element[1]), keys=(element[0],), tags="size")


def run(source: str, sink: str, name_server: str, folder: str, flags: list[str]) -> SkewReport:
    """Runs it from one topic to the other, with the folder of claims."""
    at: Any = {"name_server": name_server, "claim_check": ClaimCheck(folder, above_bytes=10_000)}
    pipeline = beam.Pipeline(options=options(flags))
    read = ReadFromRocketMQ(source, start=StartFrom.earliest(), stop=StopAt.latest(), max_records_per_second=RATE, **at)
    pairs = (
        pipeline
        | read
        | beam.Map(pair_of).with_output_types(tuple[str, int])
        | beam.WindowInto(FixedWindows(86_400 * 365))
    )
    totals = pairs | "Totals" >> SaltedCombinePerKey(sum, fanout=4) | beam.Map(total).with_output_types(Message)
    batches = pairs | BoundedGroupIntoBatches(BATCH) | "Batch" >> beam.Map(batch).with_output_types(Message)
    small = (
        pairs
        | "Small" >> BoundedGroupIntoBatches(10_000, max_bytes=MOST_BYTES)
        | "Size" >> beam.Map(size).with_output_types(Message)
    )
    _ = small | "Write sizes" >> WriteToRocketMQ(sink, **at)
    _ = totals | "Write totals" >> WriteToRocketMQ(sink, **at)
    _ = batches | "Write batches" >> WriteToRocketMQ(sink, **at)
    measure_shuffles(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    return SkewReport.of(result)
