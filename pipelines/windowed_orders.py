"""Totals of orders in event-time windows: reads {"key", "amount", "time_ms"} as JSON, sums and counts the amounts of
each key in tumbling windows, and writes {"key", "start_ms", "end_ms", "count", "sum"} when a window closes.

A window closes when each queue has had an order whose time is --lateness_ms after the window's end; a queue without new
orders follows the clock. Orders that arrive later are dropped. With --stop, all windows close at the end.

example:
  python pipelines/windowed_orders.py --name_server=127.0.0.1:9876 \\
    --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/orders \\
    --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

from rmqio.command_line.arguments import whole_number
from rmqio.runners import Program

program = Program(__file__, __doc__, source="order", sink="total", stateful=True)
for name, default, text in (
    ("--window_s", 10, "length of a window in seconds"),
    ("--lateness_ms", 5_000, "how far out of order an order may arrive"),
    ("--idle_timeout_ms", 30_000, "after how long a queue without orders follows the clock"),
    ("--offset_commit_interval_ms", 5_000, "how often to commit the group's offsets"),
):
    parse = whole_number("number", 1 if name == "--window_s" else 0)
    program.parser.add_argument(name, type=parse, default=default, metavar="N", help=f"{text}. Default: %(default)s")
if __name__ == "__main__":
    program.check()  # before Beam, whose import takes seconds

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from rmqio import Message, ReadFromRocketMQ, ReadOptions, Record, WriteToRocketMQ
from rmqio.serde import JsonDeserializer
from rmqio.transforms import ids_by
import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

JSON: Final = JsonDeserializer()


class SumAndCount(beam.CombineFn):
    """Combines amounts into (sum, count)."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[float, int], amount: float) -> tuple[float, int]:
        return accumulator[0] + amount, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator


def event_time(record: Record) -> int:
    """Returns the time of an order in Unix milliseconds."""
    return int(JSON(record)["time_ms"])


def to_pair(record: Record) -> tuple[str, float]:
    """Returns key and amount of an order."""
    order = JSON(record)
    return str(order["key"]), order["amount"]


def to_message(total: tuple[str, tuple[float, int]], window: Any = beam.DoFn.WindowParam) -> Message:
    """Returns the message for the sink. Its key is that of the orders."""
    key, (amount, count) = total
    start_ms, end_ms = int(window.start.micros) // 1000, int(window.end.micros) // 1000
    body = {"key": key, "start_ms": start_ms, "end_ms": end_ms, "count": count, "sum": amount}
    return Message(json.dumps(body).encode(), keys=(key,))


def identity(message: Message) -> tuple[Any, ...]:
    """Returns what identifies a total: a key's window closes once."""
    total = json.loads(message.body)
    return total["key"], total["start_ms"], total["end_ms"]


def build(pipeline: beam.Pipeline, options: argparse.Namespace) -> None:
    """Reads with event times and a watermark, and sums by key and window."""
    watermark = ReadOptions(
        max_out_of_orderness_ms=options.lateness_ms,
        idle_timeout_ms=options.idle_timeout_ms,
        offset_commit_interval_ms=options.offset_commit_interval_ms,
    )
    totals = (
        pipeline
        | "Read orders" >> ReadFromRocketMQ(**options.read, timestamp=event_time, options=watermark)
        | "Key and amount" >> beam.Map(to_pair)
        | "Windows" >> beam.WindowInto(FixedWindows(options.window_s))
        | "Sum and count" >> beam.CombinePerKey(SumAndCount())
        | "To messages" >> beam.Map(to_message)
    )
    id_fn = ids_by(pipeline, identity)
    _ = totals | "Write totals" >> WriteToRocketMQ(**options.write, id_fn=id_fn, fail_on_error=True, with_sent=False)


if __name__ == "__main__":
    sys.exit(program.run(build))
