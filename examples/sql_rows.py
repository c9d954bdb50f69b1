"""Decodes and sums JSON in SQL, and goes on with the rows in Python.

    rmqio local --port 9876 --topic orders:4 --topic totals &
    python examples/sql_rows.py --name_server=127.0.0.1:9876

A body that is not JSON fails the pipeline; `on_error="output"` sets it aside. The orders of write_with_keys.py give:

    SqlRow(customer='c-0', total=45.0)
    SqlRow(customer='c-1', total=55.0)
    SqlRow(customer='c-2', total=65.0)
"""

import argparse

from rmqio import ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
from rmqio.serde import JsonSerializer
from rmqio.sql import SqlTransform
import apache_beam as beam

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="totals")
    arguments, runner_options = parser.parse_known_args()

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        orders = pipeline | ReadFromRocketMQ(
            arguments.source_topic,
            name_server=arguments.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            batches=True,
        )
        totals = orders | SqlTransform(
            "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer",
            tables={"orders": "(customer STRING, amount DOUBLE)"},
        )
        (
            totals
            | "To dicts" >> beam.Map(lambda row: row._asdict())
            | WriteToRocketMQ(
                arguments.sink_topic,
                name_server=arguments.name_server,
                serializer=JsonSerializer(key_fields=["customer"]),
                id_fn=str,  # a total that is written again has the same id
            )
        )
        totals | beam.Map(print)
