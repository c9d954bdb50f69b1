"""Copies orders, but leaves some out by mistake. The audit then says which ones, and between which steps.

    rmqio local --port 9876 --topic orders:4 --topic sales --topic orders-hops &
    python examples/audit_hops.py --name_server=127.0.0.1:9876

`Audit` counts what goes by between two transforms. The mistake is that refunds are left out; the program prints them:

    left out o-3
    left out o-7
    left out o-11

An audit finds them without knowing the program. It names each lost message, and the steps between which it was lost:

    rmqio audit --from_topic orders --to_topic sales --audit_topic orders-hops --name_server=127.0.0.1:9876
"""

import argparse
from collections.abc import Iterator

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.runners import options
import apache_beam as beam


def sales(record: Record) -> Iterator[Record]:
    if record.tags == "refund":
        print("left out", *record.keys)
    else:
        yield record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="sales")
    parser.add_argument("--audit_topic", default="orders-hops")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        at = {"name_server": arguments.name_server}
        hops = {"topic": arguments.audit_topic, **at}
        read = ReadFromRocketMQ(arguments.source_topic, start=StartFrom.earliest(), stop=StopAt.latest(), **at)
        orders = pipeline | read | Audit("read", **hops)
        found = orders | beam.FlatMap(sales).with_output_types(Record) | Audit("sales", **hops)
        found | WriteToRocketMQ(arguments.sink_topic, **at)
