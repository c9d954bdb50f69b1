"""Copies the messages with certain tags to another topic, and prints their keys.

    rmqio local --port 9876 --topic orders:4 --topic refunds &
    python examples/filter_by_tag.py --name_server=127.0.0.1:9876 --tags=refund

The broker filters: other messages do not reach the pipeline. `sql_filter="amount > 10"` in place of `tags` filters by
properties. From the orders of write_with_keys.py, it copies and prints these:

    o-3 refund
    o-7 refund
    o-11 refund
"""

import argparse

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
import apache_beam as beam


def show(record: Record) -> None:
    print(*record.keys, record.tags)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="refunds")
    parser.add_argument("--tags", default="refund", help='one tag, or several: "refund || sale"')
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        found = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            tags=arguments.tags,
        )
        # A record is sent again as it was: with its body, tag, keys, sharding key and properties
        found | WriteToRocketMQ(arguments.sink_topic, name_server=arguments.name_server)
        found | beam.Map(show)
