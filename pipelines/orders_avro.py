"""What each customer has ordered in windows of event time: Avro in, of two versions of a schema, and Avro out.

python pipelines/orders_avro.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/totals \
    --name_server=127.0.0.1:9876 --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

import rmqio.pipelines  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

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
from rmqio.pipelines import job
from rmqio.pipelines.job import refuse, run_job, where
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

_DESCRIPTION: Final = """\
Read orders from a RocketMQ topic, count them and sum their amounts by customer in tumbling windows of event time, and
write the totals to another topic when a window is over.

Orders are Avro single objects (C3 01, a fingerprint, the value) of any version of shop.Order, totals such of
shop.CustomerTotal: `python -m rmqio.schemas list` shows them. The customer is a total's key.
"""
_EPILOG: Final = """\
Other options go to Beam and its runner; --report shows what that makes of the job, and ends. With --stop all windows
are over at the end. What is no order goes to --dead_letter_topic; without one it fails the job.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""


class Order(NamedTuple):
    """What is needed of shop.Order."""

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
    """Unix milliseconds of an order."""
    order: Order = ORDERS(record)
    return round(order.created.timestamp() * 1000)


class CountAndSum(beam.CombineFn):
    """(how many, their sum) of amounts."""

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
    """Customer and amount."""
    return order.customer_id, order.amount


def to_total(found: tuple[str, tuple[int, Decimal]], window: Any = beam.DoFn.WindowParam) -> CustomerTotal:
    """Of a customer and a window."""
    customer, (number, amount) = found
    start, end = (dt.datetime.fromtimestamp(each.micros // 10**6, dt.UTC) for each in (window.start, window.end))
    return CustomerTotal(customer, start, end, number, amount)


def total_id(run: str, total: CustomerTotal) -> str:
    """A window of a customer is over once in a run, so these two tell a total from all others."""
    return job.id_of(run, total.customer_id, total.start, total.end)


def build(
    pipeline: beam.Pipeline, arguments: argparse.Namespace, *, client_factory: ClientFactory | None = None
) -> None:
    """Wire the job. `client_factory`: another way to make clients, for tests."""
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


def make_parser() -> argparse.ArgumentParser:
    """The parser, without the options that go to Beam."""
    parser = job.make_parser("orders_avro.py", _DESCRIPTION, _EPILOG, source="orders")
    add = parser.add_argument
    add("--window_s", type=int, default=60, help="length of a window in seconds. Default: 60")
    add("--lateness_ms", type=int, default=5_000, help="how much later than others an order may come. Default: 5000")
    add("--dead_letter_topic", metavar="TOPIC", help="for what is no order; must exist")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line; the exit status."""
    return run_job(make_parser(), build, argv, source="orders")


if __name__ == "__main__":
    # Under its own name, so that other processes find the functions that they are sent.
    from rmqio.pipelines import orders_avro

    sys.exit(orders_avro.main())
