"""Sums and counts of orders in event-time windows: reads `{key, amount, time_ms}`, writes totals by key and window.

python pipelines/windowed_orders.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/orders \
    --name_server=127.0.0.1:9876 --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

if __name__ == "__main__":  # before Beam, whose import takes seconds, and logs a warning if rmqio is not there
    from rmqio.pipelines.common import command_lines

    command_lines.check(command_lines.windowed_orders)

import argparse
import functools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from rmqio.model import Message, Record
from rmqio.options import ReadOptions
from rmqio.pipelines.common import command_lines, job
from rmqio.pipelines.common.job import refuse, run_job, where
from rmqio.serde import JsonDeserializer
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

_PARSE: Final = JsonDeserializer()


class SumAndCount(beam.CombineFn):
    """Combines amounts into (sum, count)."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[float, int], amount: float) -> tuple[float, int]:
        return accumulator[0] + amount, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        parts = list(accumulators)
        return sum(total for total, _ in parts), sum(number for _, number in parts)

    def extract_output(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator


def event_time(record: Record) -> int:
    """Return the time of an order in Unix milliseconds."""
    return int(_PARSE(record)["time_ms"])


def to_pair(record: Record) -> tuple[str, float]:
    """Return key and amount of an order."""
    order = _PARSE(record)
    return str(order["key"]), order["amount"]


def to_message(total: tuple[str, tuple[float, int]], window: Any = beam.DoFn.WindowParam) -> Message:
    """Return the message for the sink. Its key is that of the orders."""
    key, (amount, number) = total
    body = {
        "key": key,
        "start_ms": int(window.start.micros) // 1000,
        "end_ms": int(window.end.micros) // 1000,
        "count": number,
        "sum": amount,
    }
    return Message(json.dumps(body).encode(), keys=(key,))


def total_id(run: str, message: Message) -> str:
    """Return a unique id: a key's window closes once in a run, so key and window identify a total."""
    total = json.loads(message.body)
    return job.id_of(run, total["key"], total["start_ms"], total["end_ms"])


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    """Wire the job."""
    read = ReadFromRocketMQ(
        arguments.source_topic,
        **where(arguments),
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        timestamp=event_time,
        options=ReadOptions(
            max_out_of_orderness_ms=arguments.lateness_ms,
            idle_timeout_ms=arguments.idle_timeout_ms,
            offset_commit_interval_ms=arguments.offset_commit_interval_ms,
        ),
    )
    totals = (
        pipeline
        | "Read orders" >> read
        | "Key and amount" >> beam.Map(to_pair).with_output_types(tuple[str, float])
        | "Windows" >> beam.WindowInto(FixedWindows(arguments.window_s))
        | "Sum and count" >> beam.CombinePerKey(SumAndCount())
        | "To messages" >> beam.Map(to_message).with_output_types(Message)
    )
    id_fn = functools.partial(total_id, job.run_of(pipeline))
    written = totals | "Write totals" >> WriteToRocketMQ(
        arguments.sink_topic, id_fn=id_fn, with_sent=False, **where(arguments)
    )
    _ = written.failed | "Totals refused" >> beam.Map(refuse)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return the exit status."""
    return run_job(command_lines.windowed_orders(), build, argv, source="order")


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import windowed_orders

    sys.exit(windowed_orders.main())
