"""Adds the columns of a table to orders: here the tier of the customer.

    rmqio local --port 9876 --topic orders:4 &
    python examples/enrich_orders.py --name_server=127.0.0.1:9876

Tables are mostly files or databases: see Table.from_parquet, from_csv and from_sql, or a topic that goes on being read:
Table.from_topic. For the orders of write_with_keys.py, the program prints 12 lines, among them:

    o-0 of c-0: gold
    o-1 of c-1: tin
    o-2 of c-2: None
"""

import argparse
from typing import Any

from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.enrich import Enrich, Table
from rmqio.runners import options
import apache_beam as beam
import pyarrow as pa


def show(order: dict[str, Any]) -> None:
    print(f"{order['order_id']} of {order['customer']}: {order['tier']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    arguments, runner_options = parser.parse_known_args()

    customers = Table.from_arrow(pa.table({"customer": ["c-0", "c-1"], "tier": ["gold", "tin"]}))
    with beam.Pipeline(options=options(runner_options)) as pipeline:
        orders = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
        )
        orders | Enrich(customers, key="customer", columns=["tier"]) | "Show" >> beam.Map(show)
