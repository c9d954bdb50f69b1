"""Reads JSON, and sends what is not JSON to a dead-letter topic in place of failing.

    rmqio local --port 9876 --topic orders:4 --topic orders-dead &
    python examples/dead_letters.py --name_server=127.0.0.1:9876

Try it with `rmqio produce orders oops --keys o-x`: this message is then in the topic orders-dead, as it was sent, with
its place and the error as properties (`rmqio peek orders-dead`). replay.py sends it back. For the orders of
write_with_keys.py, the program prints their ids and amounts:

    o-0 0.0
    o-1 2.5
"""

import argparse
from typing import Any

from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.runners import options
from rmqio.serde import JsonDeserializer
import apache_beam as beam


def show(order: Any) -> None:
    print(order["order_id"], order["amount"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--dead_letter_topic", default="orders-dead")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        orders = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            deserializer=JsonDeserializer(),
            dead_letter_topic=arguments.dead_letter_topic,
        )
        orders | beam.Map(show)
