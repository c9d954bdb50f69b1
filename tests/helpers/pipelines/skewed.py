"""A pipeline with one hot key, big bodies and a limit, on all runners."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, SlidingWindows

from rmqio import ClaimCheck, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
from rmqio.skew import BoundedGroupIntoBatches, SaltedCombinePerKey, SkewReport, measure_shuffles

BIG_BYTES = 20_000
COUNTS = (900, 300)
BATCH = 100
MOST_BYTES = 200
RATE = 300
"""Records per second that are read."""
SIZE_S, PERIOD_S = 4, 2
WINDOWINGS: dict[str, Any] = {
    "sliding": lambda: beam.WindowInto(SlidingWindows(SIZE_S, PERIOD_S)),
    # The first phase has to discard what it has fired, and the second one not.
    "accumulating": lambda: beam.WindowInto(
        FixedWindows(SIZE_S),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        allowed_lateness=60,
    ),
}


def key_of(number: int) -> str:
    """Returns the key of a message: most have the same."""
    return f"k{number % 10}" if number % 5 == 0 else "hot"


def body_of(number: int) -> bytes:
    """Returns the body: one of a hundred is big."""
    return b"%d" % number if number % 100 else b"%d " % number + b"." * BIG_BYTES


def pair_of(record: Record) -> tuple[str, int, int]:
    """Returns key and number of a message, whatever is behind the number, and when the read emitted it, in ms."""
    number = int(record.body.split()[0])
    if record.body != body_of(number):
        raise ValueError(f"body {number} is not the one that was sent: {len(record.body)} bytes")
    return record.keys[0], number, int(time.time() * 1000)


def emitted(element: tuple[str, int, int]) -> Message:
    """Returns the message of when an element was emitted."""
    return Message(b"%d" % element[2], keys=(element[0],), tags="emitted")


class Together(beam.CombineFn):
    """All numbers of a key, as text: accumulators of another type than values, and as large as they."""

    def create_accumulator(self) -> tuple[str, ...]:
        return ()

    def add_input(self, accumulator: tuple[str, ...], element: int) -> tuple[str, ...]:
        return (*accumulator, str(element))

    def merge_accumulators(self, accumulators: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(each for accumulator in accumulators for each in accumulator)

    def extract_output(self, accumulator: tuple[str, ...]) -> str:
        return " ".join(sorted(accumulator, key=int))


def together(element: tuple[str, str], name: str, window: Any = beam.DoFn.WindowParam) -> Message:
    """Returns the message of all numbers of a key and window, which begins with the window's start in seconds."""
    key, numbers = element
    return Message(f"{int(window.start)} {numbers}".encode(), keys=(key,), tags=name)


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
    stamped = pipeline | read | beam.Map(pair_of).with_output_types(tuple[str, int, int])
    pairs = (
        stamped
        | "Pair" >> beam.Map(lambda element: element[:2]).with_output_types(tuple[str, int])
        | beam.WindowInto(FixedWindows(86_400 * 365))
    )
    _ = stamped | beam.Map(emitted).with_output_types(Message) | "Write times" >> WriteToRocketMQ(sink, **at)
    totals = pairs | "Totals" >> SaltedCombinePerKey(sum, fanout=4) | beam.Map(total).with_output_types(Message)
    batches = pairs | BoundedGroupIntoBatches(BATCH) | "Batch" >> beam.Map(batch).with_output_types(Message)
    small = (
        pairs
        | "Small" >> BoundedGroupIntoBatches(10_000, max_bytes=MOST_BYTES)
        | "Size" >> beam.Map(size).with_output_types(Message)
    )
    for name, windows in WINDOWINGS.items():
        windowed = pairs | f"Windows {name}" >> windows()
        salted = windowed | f"Salted {name}" >> SaltedCombinePerKey(Together(), fanout=3)
        _ = (
            salted
            | f"Together {name}" >> beam.Map(together, name).with_output_types(Message)
            | f"Write {name}" >> WriteToRocketMQ(sink, **at)
        )
    _ = small | "Write sizes" >> WriteToRocketMQ(sink, **at)
    _ = totals | "Write totals" >> WriteToRocketMQ(sink, **at)
    _ = batches | "Write batches" >> WriteToRocketMQ(sink, **at)
    measure_shuffles(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    return SkewReport.of(result)
