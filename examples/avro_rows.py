"""Writes typed orders as Avro, reads them back as rows, and sums a column by another.

    rmqio local --port 9876 --topic orders-avro &
    python examples/avro_rows.py --name_server=127.0.0.1:9876

The schema comes from the class; the path of an .avsc file works as well. Decimals stay exact. The program prints the
sums of what the topic then holds:

    c-0 45.00
    c-1 55.00
    c-2 65.00
"""

import argparse
from decimal import Decimal
from typing import Annotated, NamedTuple

from rmqio import ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
from rmqio.serde.avro import AvroDeserializer, AvroSerializer, schema_of_class
import apache_beam as beam


class Order(NamedTuple):
    order_id: str
    customer: str
    amount: Annotated[Decimal, {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--sink_topic", default="orders-avro")
    arguments, runner_options = parser.parse_known_args()
    topic, at, schema = arguments.sink_topic, {"name_server": arguments.name_server}, schema_of_class(Order)

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        numbers = pipeline | beam.Create(range(12))
        orders = numbers | beam.Map(lambda it: Order(f"o-{it}", f"c-{it % 3}", it * Decimal("2.50")))
        orders | WriteToRocketMQ(topic, serializer=AvroSerializer(schema), id_fn=lambda it: it.order_id, **at)

    with beam.Pipeline(options=options(runner_options)) as pipeline:
        decode = AvroDeserializer(schema, to="row")
        read = ReadFromRocketMQ(topic, start=StartFrom.earliest(), stop=StopAt.latest(), deserializer=decode, **at)
        sums = pipeline | read | beam.GroupBy("customer").aggregate_field("amount", sum, "total")
        sums | beam.Map(lambda row: print(row.customer, row.total))
