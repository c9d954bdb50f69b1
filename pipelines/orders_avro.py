"""Totals per customer in event-time windows: reads Avro orders of two schema versions, writes Avro totals.

python pipelines/orders_avro.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/totals \
    --name_server=127.0.0.1:9876 --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

if __name__ == "__main__":  # before Beam, whose import takes seconds, and logs a warning if rmqio is not there
    from rmqio.pipelines.common import command_lines

    command_lines.check(command_lines.orders_avro)

import argparse
import datetime as dt
import functools
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from rmqio import schemas
from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.options import ReadOptions
from rmqio.pipelines.common import command_lines, job
from rmqio.pipelines.common.job import refuse, run_job, where
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ


class Order(NamedTuple):
    """The fields of shop.Order that the job needs."""

    customer_id: str
    amount: Decimal
    created: dt.datetime


class CustomerTotal(NamedTuple):
    """shop.CustomerTotal."""

    customer_id: str
    start: dt.datetime
    end: dt.datetime
    orders: int
    amount: Decimal


ORDERS: Final = AvroDeserializer("order", framing="single_object", registry=schemas.registry(), to=Order)
TOTALS: Final = AvroSerializer(schemas.load("customer_total"), framing="single_object", key_fields=["customer_id"])


def event_time(record: Record) -> int:
    """Return the time of an order in Unix milliseconds."""
    order: Order = ORDERS(record)
    return round(order.created.timestamp() * 1000)


class CountAndSum(beam.CombineFn):
    """Combines amounts into (count, sum)."""

    def create_accumulator(self) -> tuple[int, Decimal]:
        return 0, Decimal(0)

    def add_input(self, accumulator: tuple[int, Decimal], amount: Decimal) -> tuple[int, Decimal]:
        return accumulator[0] + 1, accumulator[1] + amount

    def merge_accumulators(self, accumulators: Iterable[tuple[int, Decimal]]) -> tuple[int, Decimal]:
        parts = list(accumulators)
        return sum(number for number, _ in parts), sum((amount for _, amount in parts), Decimal(0))

    def extract_output(self, accumulator: tuple[int, Decimal]) -> tuple[int, Decimal]:
        return accumulator


def to_pair(order: Order) -> tuple[str, Decimal]:
    """Return customer and amount."""
    return order.customer_id, order.amount


def to_total(found: tuple[str, tuple[int, Decimal]], window: Any = beam.DoFn.WindowParam) -> CustomerTotal:
    """Return the total of a customer in a window."""
    customer, (number, amount) = found
    start, end = (dt.datetime.fromtimestamp(each.micros // 10**6, dt.UTC) for each in (window.start, window.end))
    return CustomerTotal(customer, start, end, number, amount)


def total_id(run: str, total: CustomerTotal) -> str:
    """Return a unique id: a customer's window closes once in a run, so customer and window identify a total."""
    return job.id_of(run, total.customer_id, total.start, total.end)


def build(
    pipeline: beam.Pipeline, arguments: argparse.Namespace, *, client_factory: ClientFactory | None = None
) -> None:
    """Wire the job. `client_factory` replaces the clients in tests."""
    at = where(arguments, client_factory)
    read = ReadFromRocketMQ(
        arguments.source_topic,
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        deserializer=ORDERS,
        timestamp=event_time,
        dead_letter_topic=arguments.dead_letter_topic,
        options=ReadOptions(max_out_of_orderness_ms=arguments.lateness_ms),
        **at,
    )
    totals = (
        pipeline
        | "Read orders" >> read
        | "Customer and amount" >> beam.Map(to_pair).with_output_types(tuple[str, Decimal])
        | "Windows" >> beam.WindowInto(FixedWindows(arguments.window_s))
        | "Count and sum" >> beam.CombinePerKey(CountAndSum())
        | "Totals" >> beam.Map(to_total).with_output_types(CustomerTotal)
    )
    id_fn = functools.partial(total_id, job.run_of(pipeline))
    write = WriteToRocketMQ(arguments.sink_topic, serializer=TOTALS, id_fn=id_fn, with_sent=False, **at)
    _ = (totals | "Write totals" >> write).failed | "Totals refused" >> beam.Map(refuse)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return the exit status."""
    return run_job(command_lines.orders_avro(), build, argv, source="order")


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import orders_avro

    sys.exit(orders_avro.main())
