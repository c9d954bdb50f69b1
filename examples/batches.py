"""Takes 10 % off each order and writes it to another topic, in batches: several times as fast for many messages.

    rmqio local --port 9876 --topic orders:4 --topic discounted --topic orders-dead &
    python examples/batches.py --name_server=127.0.0.1:9876

One element of the pipeline holds all messages of a pull. `MapRecords` calls the function for each message in it. An
order that is not JSON goes to `--dead_letter_topic`, and the others of its batch go on. It prints each order with the
amounts before and after:

    o-1 2.5 2.25
    o-2 5.0 4.5
    o-3 7.5 6.75
"""

import argparse
import json

from rmqio import MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
import apache_beam as beam


def discounted(record: Record) -> Message:
    order = json.loads(record.body)
    before, order["amount"] = order["amount"], order["amount"] * 0.9
    print(*record.keys, before, order["amount"])
    return Message(json.dumps(order).encode(), tags=record.tags, keys=record.keys, sharding_key=record.sharding_key)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="discounted")
    parser.add_argument("--dead_letter_topic", default="orders-dead")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        batches = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            batches=True,
        )
        results = batches | MapRecords(
            discounted, dead_letter_topic=arguments.dead_letter_topic, name_server=arguments.name_server
        )
        results | WriteToRocketMQ(arguments.sink_topic, name_server=arguments.name_server, batches=True)
