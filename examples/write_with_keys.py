"""Writes orders with a tag, a key and a sharding key. The other programs read them.

    rmqio local --port 9876 --topic orders:4 &
    python examples/write_with_keys.py --name_server=127.0.0.1:9876

Consumers filter by the tag, and RocketMQ's tools find a message by its key. Messages with the same sharding key go to
the same queue; docs/write.md says when they also keep their order. The program prints where each order is stored:

    o-0 is in queue orders/broker-a/2
    o-1 is in queue orders/broker-a/3
    o-2 is in queue orders/broker-a/0
    o-3 is in queue orders/broker-a/2
"""

import argparse
import json

from rmqio import Message, WriteToRocketMQ
from rmqio.runners import options
import apache_beam as beam

BEGIN_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def order(number: int) -> Message:
    order_id, customer, placed_ms = f"o-{number}", f"c-{number % 3}", BEGIN_MS + number * 10_000
    fields = {"order_id": order_id, "customer": customer, "amount": number * 2.5, "placed_ms": placed_ms}
    tag = "refund" if number % 4 == 3 else "sale"
    return Message(json.dumps(fields).encode(), tags=tag, keys=[order_id], sharding_key=customer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--sink_topic", default="orders")
    parser.add_argument("--count", type=int, default=12, help="number of orders")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        orders = pipeline | beam.Create(range(arguments.count)) | beam.Map(order)
        written = orders | WriteToRocketMQ(
            arguments.sink_topic,
            name_server=arguments.name_server,
            id_fn=lambda message: message.keys[0],  # the same in a second try, so that readers can drop the copy
        )
        written.sent | beam.Map(lambda sent: print(f"{sent.message_id} is in {sent.queue}"))
