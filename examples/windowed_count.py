"""Counts orders by tag, in windows of a minute of event time.

    rmqio local --port 9876 --topic orders:4 &
    python examples/windowed_count.py --name_server=127.0.0.1:9876 --stop=latest

Without --stop, it runs until Ctrl-C, on a runner that streams: --runner=SparkRunner --streaming
--checkpoint_dir=/var/tmp/counts. It prints a count when its window closes; for the orders of write_with_keys.py:

    00:00: 5 sale
    00:00: 1 refund
    00:01: 4 sale
    00:01: 2 refund
"""

import argparse
import contextlib
import json
from typing import Any

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.runners import options
import apache_beam as beam


def placed_ms(record: Record) -> int:
    return int(json.loads(record.body)["placed_ms"])


def show(count: tuple[str, int], window: Any = beam.DoFn.WindowParam) -> None:
    print(f"{window.start.to_utc_datetime():%H:%M}: {count[1]} {count[0]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--stop", choices=["latest"], help="where to end; default: never")
    arguments, runner_options = parser.parse_known_args()

    with contextlib.suppress(KeyboardInterrupt), beam.Pipeline(options=options(runner_options)) as pipeline:
        stop = StopAt.latest() if arguments.stop else None
        at = {"name_server": arguments.name_server, "start": StartFrom.earliest(), "stop": stop}
        orders = pipeline | "Read orders" >> ReadFromRocketMQ(arguments.source_topic, timestamp=placed_ms, **at)
        tags = orders | "Tags" >> beam.Map(lambda record: record.tags)
        minutes = tags | "Minutes" >> beam.WindowInto(beam.window.FixedWindows(60))
        minutes | "Count" >> beam.combiners.Count.PerElement() | "Print" >> beam.Map(show)
