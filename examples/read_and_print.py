"""Reads what a topic holds, and prints each message.

    rmqio local --port 9876 --topic orders:4 &
    python examples/read_and_print.py --name_server=127.0.0.1:9876

For each order of write_with_keys.py, it prints the queue, the tag, the keys and the body:

    2 sale o-0 {"order_id": "o-0", "customer": "c-0", "amount": 0.0, "placed_ms": 1767225600000}
    3 sale o-1 {"order_id": "o-1", "customer": "c-1", "amount": 2.5, "placed_ms": 1767225610000}
    0 sale o-2 {"order_id": "o-2", "customer": "c-2", "amount": 5.0, "placed_ms": 1767225620000}
    2 refund o-3 {"order_id": "o-3", "customer": "c-0", "amount": 7.5, "placed_ms": 1767225630000}
"""

import argparse

from rmqio import ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.runners import options
import apache_beam as beam


def show(record: Record) -> None:
    print(record.queue_id, record.tags, *record.keys, record.body.decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        records = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),  # without it, the read waits for more messages, for ever
        )
        records | beam.Map(show)
