"""`windowed_orders.py`, and beside its windows the same totals from user state and timers: what survives a failure.

For each key, it sends messages to the sink like those of the windows, under other keys:

- "kept K": the count and sum of each ten seconds, from a list in state, sent by an event-time timer;
- "told K": the count and sum of everything that K's timers have sent until then. They are right only if no state is
  lost or duplicated;
- "rung K", start_ms 0: the count and sum of all of K's orders when a processing-time timer fires, which an order with
  `ring_s` sets.
"""

from __future__ import annotations

import rmqio  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import Timestamp

from pipelines.windowed_orders import SumAndCount, event_time, program, to_message, to_pair
from rmqio.model import Message, Record
from rmqio.options import ReadOptions
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ
from tests.helpers.pipelines.holding import add_options, hold

PERIOD_MS = 10_000
PAIR = TupleCoder((VarIntCoder(), VarIntCoder()))
Order = tuple[int, int, int]
"""Milliseconds, amount, and the second at which the timer of its key fires; 0: no timer."""


def to_order(record: Record) -> tuple[str, Order]:
    """Returns an order with its key."""
    body = json.loads(record.body)
    return body["key"], (body["time_ms"], body["amount"], body.get("ring_s", 0))


def total(what: str, key: str, start_ms: int, count: int, amount: int) -> Message:
    body = {"key": f"{what} {key}", "start_ms": start_ms, "count": count, "sum": amount}
    return Message(json.dumps(body).encode(), keys=(key,))


class Bag:
    """State with the orders that have not been sent, in no particular order."""

    spec = BagStateSpec("orders", PAIR)

    @staticmethod
    def put(orders: Any, time_ms: int, amount: int) -> None:
        orders.add((time_ms, amount))

    @staticmethod
    def take(orders: Any, end_ms: int) -> tuple[list[int], int | None]:
        """Removes and returns the amounts before `end_ms`. Also returns the time of the first order that is left."""
        found = list(orders.read())
        orders.clear()
        left = [each for each in found if each[0] >= end_ms]
        for each in left:
            orders.add(each)
        return [amount for time_ms, amount in found if time_ms < end_ms], min((at for at, _ in left), default=None)


class Ordered:
    """The same state sorted by time, for runners that have ordered lists."""

    spec = OrderedListStateSpec("orders", VarIntCoder())

    @staticmethod
    def put(orders: Any, time_ms: int, amount: int) -> None:
        orders.add((Timestamp(time_ms / 1000), amount))

    @staticmethod
    def take(orders: Any, end_ms: int) -> tuple[list[int], int | None]:
        end = Timestamp(end_ms / 1000)
        found = [amount for _, amount in orders.read_range(Timestamp(0), end)]
        orders.clear_range(Timestamp(0), end)
        return found, next((int(at.micros) // 1000 for at, _ in orders.read()), None)


def keep(kind: type[Bag] | type[Ordered]) -> beam.DoFn:
    """Returns a DoFn whose state is all in the global window, so it lives as long as the pipeline."""
    count_spec, sum_spec = CombiningValueStateSpec("count", sum), CombiningValueStateSpec("sum", sum)
    told_spec, told_sum_spec = CombiningValueStateSpec("told", sum), CombiningValueStateSpec("told_sum", sum)
    next_spec = ReadModifyWriteStateSpec("next", VarIntCoder())  # the end of the first ten seconds that were not sent
    over_spec, ring_spec = TimerSpec("over", TimeDomain.WATERMARK), TimerSpec("ring", TimeDomain.REAL_TIME)

    class Keep(beam.DoFn):
        def process(
            self,
            element: tuple[str, Order],
            count: Any = beam.DoFn.StateParam(count_spec),
            amounts: Any = beam.DoFn.StateParam(sum_spec),
            begun: Any = beam.DoFn.StateParam(next_spec),
            orders: Any = beam.DoFn.StateParam(kind.spec),
            over: Any = beam.DoFn.TimerParam(over_spec),
            ring: Any = beam.DoFn.TimerParam(ring_spec),
        ) -> None:
            time_ms, amount, ring_s = element[1]
            count.add(1)
            amounts.add(amount)
            kind.put(orders, time_ms, amount)
            end = (time_ms // PERIOD_MS + 1) * PERIOD_MS
            if end < (begun.read() or sys.maxsize):
                begun.write(end)
                over.set(Timestamp(end / 1000))
            if ring_s:
                ring.set(Timestamp(ring_s))

        @on_timer(over_spec)
        def tell(
            self,
            key: Any = beam.DoFn.KeyParam,
            told: Any = beam.DoFn.StateParam(told_spec),
            told_sum: Any = beam.DoFn.StateParam(told_sum_spec),
            begun: Any = beam.DoFn.StateParam(next_spec),
            orders: Any = beam.DoFn.StateParam(kind.spec),
            over: Any = beam.DoFn.TimerParam(over_spec),
        ) -> Iterator[Message]:
            end = begun.read()
            amounts, first_left = kind.take(orders, end)
            told.add(len(amounts))
            told_sum.add(sum(amounts))
            begun.clear()
            if first_left is not None:
                next_end = (first_left // PERIOD_MS + 1) * PERIOD_MS
                begun.write(next_end)
                over.set(Timestamp(next_end / 1000))
            yield total("kept", key, end - PERIOD_MS, len(amounts), sum(amounts))
            yield total("told", key, end - PERIOD_MS, told.read(), told_sum.read())

        @on_timer(ring_spec)
        def rings(
            self,
            key: Any = beam.DoFn.KeyParam,
            count: Any = beam.DoFn.StateParam(count_spec),
            amounts: Any = beam.DoFn.StateParam(sum_spec),
        ) -> Iterator[Message]:
            yield total("rung", key, 0, count.read(), amounts.read())

    return Keep()


class Seen(beam.DoFn):
    """Counts and sends nothing: another step with state for the same orders, so that state could get mixed up."""

    COUNT = CombiningValueStateSpec("count", sum)

    def process(self, element: tuple[str, Order], count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.add(1)


def body_id(message: Message) -> str:
    """Returns an id made from the body. No two totals are equal."""
    return hashlib.blake2b(message.body, digest_size=16).hexdigest().upper()


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    records = pipeline | "Read" >> ReadFromRocketMQ(
        **arguments.read,
        timestamp=event_time,
        options=ReadOptions(
            max_out_of_orderness_ms=arguments.lateness_ms,
            idle_timeout_ms=arguments.idle_timeout_ms,
            offset_commit_interval_ms=arguments.offset_commit_interval_ms,
        ),
    )
    records = hold(records, arguments)
    windows = (
        records
        | "Key and amount" >> beam.Map(to_pair).with_output_types(tuple[str, float])
        | "Windows" >> beam.WindowInto(FixedWindows(PERIOD_MS // 1000))
        | "Sum and count" >> beam.CombinePerKey(SumAndCount())
        | "To messages" >> beam.Map(to_message).with_output_types(Message)
    )
    orders = records | "Orders" >> beam.Map(to_order).with_output_types(tuple[str, Order])
    kept = orders | "Keep" >> beam.ParDo(keep(Ordered if arguments.ordered else Bag)).with_output_types(Message)
    if arguments.beside:
        _ = orders | "Seen" >> beam.ParDo(Seen())
    for name, totals in ("windows", windows), ("kept", kept):
        write = WriteToRocketMQ(**arguments.write, id_fn=body_id, fail_on_error=True, with_sent=False)
        _ = totals | f"Write {name}" >> write


def main() -> int:
    parser = program.parser
    program.name = "keeping.py"
    add_options(parser)
    parser.add_argument("--ordered", action="store_true", help="with an ordered list as state")
    parser.add_argument("--beside", action="store_true", help="with another step that keeps state of the same orders")
    return program.run(build)


if __name__ == "__main__":
    # Uses the module's own name, so that other processes find the functions that are sent to them.
    from tests.helpers.pipelines import keeping

    sys.exit(keeping.main())
