"""Sums and counts of orders in windows of event time: reads `{key, amount, time_ms}`, writes totals by key and window.

python pipelines/windowed_orders.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/orders \
    --name_server=127.0.0.1:9876 --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

import rmqio.pipelines  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from rmqio.errors import LocalError, RmqioError
from rmqio.model import Message, Record
from rmqio.options import NAME_SERVER_VARIABLE, ReadOptions
from rmqio.pipelines.arguments import parse_start, parse_stop
from rmqio.pipelines.program import count, run_program
from rmqio.runners.options import options as pipeline_options
from rmqio.runners.options import unknown_flags
from rmqio.sending.failures import FailedMessage
from rmqio.serde import JsonDeserializer
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

_DESCRIPTION: Final = """\
Read {"key", "amount", "time_ms"} as JSON from a RocketMQ topic, sum and count the amounts of each key in tumbling
windows of event time, and write {"key", "start_ms", "end_ms", "count", "sum"} to another topic when a window is over.

A window is over when an order has come whose time is --lateness_ms behind its end, on each queue; a queue without new
orders follows the clock. Orders that come later than that are dropped.
"""
_PARSE: Final = JsonDeserializer()


class SumAndCount(beam.CombineFn):
    """(sum, count) of amounts."""

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
    """Unix milliseconds of an order."""
    return int(_PARSE(record)["time_ms"])


def to_pair(record: Record) -> tuple[str, float]:
    """Key and amount of an order."""
    order = _PARSE(record)
    return str(order["key"]), order["amount"]


def to_message(total: tuple[str, tuple[float, int]], window: Any = beam.DoFn.WindowParam) -> Message:
    """The message for the sink. Its key is that of the orders."""
    key, (amount, number) = total
    body = {
        "key": key,
        "start_ms": int(window.start.micros) // 1000,
        "end_ms": int(window.end.micros) // 1000,
        "count": number,
        "sum": amount,
    }
    return Message(json.dumps(body).encode(), keys=(key,))


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    """Wire the job."""
    read = ReadFromRocketMQ(
        arguments.source_topic,
        name_server=arguments.name_server,
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        timestamp=event_time,
        options=ReadOptions(max_out_of_orderness_ms=arguments.lateness_ms, idle_timeout_ms=arguments.idle_timeout_ms),
    )
    totals = (
        pipeline
        | "Read orders" >> read
        | "Key and amount" >> beam.Map(to_pair).with_output_types(tuple[str, float])
        | "Windows" >> beam.WindowInto(FixedWindows(arguments.window_s))
        | "Sum and count" >> beam.CombinePerKey(SumAndCount())
        | "To messages" >> beam.Map(to_message).with_output_types(Message)
    )
    written = totals | "Write totals" >> WriteToRocketMQ(
        arguments.sink_topic, name_server=arguments.name_server, with_sent=False
    )
    _ = written.failed | "Totals refused" >> beam.Map(refuse)


def refuse(failed: FailedMessage) -> None:
    """Fail the pipeline: a total that is not written is not to be forgotten."""
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")


def make_parser() -> argparse.ArgumentParser:
    """The parser, without the options that go to Beam."""
    parser = argparse.ArgumentParser(
        prog="windowed_orders.py",
        description=_DESCRIPTION,
        epilog="Other options go to Beam and its runner; --report shows what that makes of the job, and ends.\n"
        "exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--name_server", metavar="HOST:PORT", help=f"default: the environment variable {NAME_SERVER_VARIABLE}")
    add("--source_topic", required=True, metavar="TOPIC", help="topic with the orders")
    add("--sink_topic", required=True, metavar="TOPIC", help="topic for the totals; must exist")
    add("--consumer_group", metavar="GROUP", help="whose offsets are committed, to be looked at")
    add(
        "--start",
        type=parse_start,
        metavar="WHERE",
        help="earliest, latest, group, timestamp:TIME; at first start only",
    )
    add(
        "--stop",
        type=parse_stop,
        metavar="WHERE",
        help="none (default), latest (what the topic holds when the job starts; all windows are over then) or "
        "timestamp:TIME",
    )
    add("--window_s", type=int, default=10, help="length of a window in seconds. Default: 10")
    add("--lateness_ms", type=int, default=5_000, help="how much later than others an order may come. Default: 5000")
    add("--idle_timeout_ms", type=int, default=30_000, help="when a queue without orders follows the clock")
    add("-v", "--verbose", action="store_true", help="tracebacks, and what Beam tells")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line; the exit status."""
    arguments, rest = make_parser().parse_known_args(sys.argv[1:] if argv is None else argv)
    try:
        found = pipeline_options(rest)
        if unknown := unknown_flags(found):
            raise LocalError(f"unknown option {', '.join(unknown)}; --help shows the job's own")
    except LocalError as error:
        print(f"windowed_orders.py: {error}", file=sys.stderr)
        return 2
    return run_program(
        "windowed_orders.py",
        found,
        lambda pipeline: build(pipeline, arguments),
        lambda result: f"{count(result, 'records_read')} orders read, {count(result, 'messages_sent')} totals written",
        verbose=arguments.verbose,
    )


if __name__ == "__main__":
    # Under its own name, so that other processes find the functions that they are sent.
    from rmqio.pipelines import windowed_orders

    sys.exit(windowed_orders.main())
