"""Totals per customer in event-time windows: reads Avro orders of two schema versions, writes Avro totals.

Orders are Avro single objects (C3 01, a fingerprint, the value) of any version of shop.Order; totals are single objects
of shop.CustomerTotal, whose key is the customer. `rmqio schemas list schemas` shows the schemas. Messages that are not
orders go to --dead_letter_topic; without it, they fail the job. With --stop, all windows close at the end.

example:
  python pipelines/orders_avro.py --name_server=127.0.0.1:9876 \\
    --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/totals \\
    --source_topic=orders --sink_topic=totals
"""

from __future__ import annotations

from rmqio.command_line.arguments import whole_number
from rmqio.runners import Program

program = Program(
    __file__, __doc__, source="order", sink="total", stateful=True, dead_letters="messages that are not orders"
)
for name, least, default, text in (
    ("--window_s", 1, 60, "length of a window in seconds"),
    ("--lateness_ms", 0, 5_000, "how far out of order an order may arrive"),
):
    parse = whole_number("number", least)
    program.parser.add_argument(name, type=parse, default=default, metavar="N", help=f"{text}. Default: %(default)s")
if __name__ == "__main__":
    program.check()  # before Beam, whose import takes seconds

import argparse
import datetime as dt
import sys
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqio import ReadFromRocketMQ, ReadOptions, Record, WriteToRocketMQ
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.registry import FolderRegistry
from rmqio.transforms import ids_by
import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

SCHEMAS: Final = FolderRegistry(Path(__file__).resolve().parents[1] / "schemas")


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


ORDERS: Final = AvroDeserializer("order", framing="single_object", registry=SCHEMAS, to=Order)
TOTALS: Final = AvroSerializer(
    SCHEMAS.by_version("customer_total").schema, framing="single_object", key_fields=["customer_id"]
)


def event_time(record: Record) -> int:
    """Returns the time of an order in Unix milliseconds."""
    order: Order = ORDERS(record)
    return round(order.created.timestamp() * 1000)


class CountAndSum(beam.CombineFn):
    """Combines amounts into (count, sum)."""

    def create_accumulator(self) -> tuple[int, Decimal]:
        return 0, Decimal(0)

    def add_input(self, accumulator: tuple[int, Decimal], amount: Decimal) -> tuple[int, Decimal]:
        return accumulator[0] + 1, accumulator[1] + amount

    def merge_accumulators(self, accumulators: Iterable[tuple[int, Decimal]]) -> tuple[int, Decimal]:
        counts, sums = zip(*accumulators, strict=True)
        return sum(counts), sum(sums, Decimal(0))

    def extract_output(self, accumulator: tuple[int, Decimal]) -> tuple[int, Decimal]:
        return accumulator


def to_pair(order: Order) -> tuple[str, Decimal]:
    """Returns customer and amount."""
    return order.customer_id, order.amount


def to_total(total: tuple[str, tuple[int, Decimal]], window: Any = beam.DoFn.WindowParam) -> CustomerTotal:
    """Returns the total of a customer in a window."""
    customer, (orders, amount) = total
    start, end = (dt.datetime.fromtimestamp(time.micros // 10**6, dt.UTC) for time in (window.start, window.end))
    return CustomerTotal(customer, start, end, orders, amount)


def identity(total: CustomerTotal) -> tuple[Any, ...]:
    """Returns what identifies a total: a customer's window closes once."""
    return total.customer_id, total.start, total.end


def build(pipeline: beam.Pipeline, options: argparse.Namespace) -> None:
    """Reads orders of all versions, and sums them by customer and window."""
    watermark = ReadOptions(max_out_of_orderness_ms=options.lateness_ms)
    read = ReadFromRocketMQ(**options.read, deserializer=ORDERS, timestamp=event_time, options=watermark)
    totals = (
        pipeline
        | "Read orders" >> read
        | "Customer and amount" >> beam.Map(to_pair)
        | "Windows" >> beam.WindowInto(FixedWindows(options.window_s))
        | "Count and sum" >> beam.CombinePerKey(CountAndSum())
        | "Totals" >> beam.Map(to_total)
    )
    id_fn = ids_by(pipeline, identity)
    write = WriteToRocketMQ(**options.write, serializer=TOTALS, id_fn=id_fn, fail_on_error=True, with_sent=False)
    _ = totals | "Write totals" >> write


if __name__ == "__main__":
    sys.exit(program.run(build))
