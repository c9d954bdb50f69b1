"""Measures what `exactly_once` costs while nothing fails: the same write with and without it, in turns, on one broker.

python -m bench.exact.sink [--messages 200000] [--bundle 10000] [--repeats 9] [--size 100]

It runs the DoFn alone, with ids from an `id_fn` on both sides. Finalizers are timed. Connecting is not timed, and
neither is the first bundle of an instance, which looks back. *together*: as on Spark, whose runner says that nothing is
repeated. *alone*: as on Flink, where an instance looks once. *alone, after a restart*: the same in the first minutes
(`redo_within_s`), when each message may be one of those that were found. *alone, beside another instance*: while an
earlier instance of the process may still send (`outage_timeout_s`).

Figures: the median in messages per second, and the median of the ratios of runs that are next to each other in time.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import tracemalloc
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions, WriteOptions
from rmqio.repeats import Attempt, LookBack, in_attempt
from rmqio.transforms.shared import close_shared_clients
from rmqio.transforms.writing import sink_state
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.exactly_once import committed
from rmqio.transforms.writing.sink_state import Sink, SinkState
from rmqio.transforms.writing.write_fn import WriteFn

TOPIC, LOOKED = "exact", "looked"
NORMAL = Attempt(may_be_repeat=False, commits_together=True)
SIDES = ("at least once", "together", "alone", "alone, after a restart", "alone, beside another instance")


def id_of(message: Message) -> str:
    """Its key."""
    return message.keys[0]


class Side:
    """A writer that has begun; its finalizers run when the next bundle has."""

    def __init__(self, name: str, name_server: str) -> None:
        options = ClientOptions(name_server, max_retries=0)
        self._attempt = NORMAL if name == "together" else None
        self._sink = None
        if name != "at least once":
            redo_s = 1e-3 if name == "alone" else 1e6
            look_back = LookBack(f"position-{uuid.uuid4().hex}", redo_within_s=redo_s, outage_timeout_s=1e6)
            self._sink = Sink(RemotingClientFactory(options), look_back.group, look_back, int(time.time() * 1000))
        self._fn = self._made(options)
        self._marks: list[bytes] = []
        if name == "alone, beside another instance":
            self.write([self._value(message) for message in made(10, 100)])
            self._fn = self._made(options)
        self.write([self._value(message) for message in made(10, 100)])

    def _made(self, options: ClientOptions) -> WriteFn:
        fn = WriteFn(
            MessageMaker(TOPIC, id_fn=id_of), RemotingClientFactory(options), "bench", WriteOptions(), with_sent=False,
            sink=self._sink,
        )  # fmt: skip
        fn.setup()
        return fn

    @staticmethod
    def _value(message: Message) -> WindowedValue:
        return WindowedValue(message, 0, (GlobalWindow(),))

    def write(self, values: Sequence[WindowedValue]) -> None:
        """One bundle."""
        fn = self._fn
        with nullcontext() if self._attempt is None else in_attempt(self._attempt):
            fn.start_bundle()
            for mark in self._marks:
                committed(self._sink, mark)  # type: ignore[arg-type]  # there are none without
            for value in values:
                fn.process(value.value, value)
            outputs: list[Any] = list(fn.finish_bundle())
        self._marks = [each.value.value for each in outputs if isinstance(each, TaggedOutput) and each.tag == "marks"]

    def rate(self, messages: Sequence[Message], bundle: int) -> float:
        """Messages a second."""
        values = [self._value(message) for message in messages]
        gc.collect()
        started = time.perf_counter()
        for begin in range(0, len(values), bundle):
            self.write(values[begin : begin + bundle])
        return len(messages) / (time.perf_counter() - started)


def look_back(name_server: str, count: int) -> tuple[float, float]:
    """Seconds, and bytes a message, of a look back over a topic with so many."""
    factory = RemotingClientFactory(ClientOptions(name_server))
    producer = factory.producer("bench")
    queues = producer.queues(LOOKED)
    for begin in range(0, count, 1_000):
        messages = made(1_000, 100)
        queue = queues[begin // 1_000 % len(queues)]
        producer.send_batch(messages, queue, message_ids=[id_of(message) for message in messages])
    producer.close()
    state = SinkState(Sink(factory, None, LookBack(since=0), 0))
    tracemalloc.start()
    state.look_back(LOOKED, is_new=True, stays=True)
    (held, _), known = tracemalloc.get_traced_memory(), state.known
    tracemalloc.stop()
    assert known is not None
    assert sum(map(len, known.values())) == count
    again = SinkState(state.sink)
    started = time.perf_counter()
    again.look_back(LOOKED, is_new=True, stays=True)
    return time.perf_counter() - started - sink_state.LANDING_S, held / count


def made(count: int, size: int) -> list[Message]:
    """Each with a key of its own."""
    return [Message(b"x" * size, keys=(uuid.uuid4().hex.upper(),)) for _ in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.exact.sink", description=(__doc__ or "").partition("\n")[0])
    for name, usual in (("messages", 200_000), ("bundle", 10_000), ("repeats", 9), ("size", 100)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG) as broker:
        for topic in (TOPIC, LOOKED):
            broker.create_topic(topic, queues=8)
        seconds, held = look_back(broker.name_server, given.messages)
        sides = {SIDES[0]: Side(SIDES[0], broker.name_server)}
        sides[SIDES[0]].rate(made(given.messages, given.size), given.bundle)  # for others to find
        sides |= {name: Side(name, broker.name_server) for name in SIDES[1:]}
        for number in range(given.repeats + 1):
            for name in [*SIDES] if number % 2 else reversed(SIDES):
                rate = sides[name].rate(made(given.messages, given.size), given.bundle)
                if number:  # the first is a warm-up
                    rates[name].append(rate)
        close_shared_clients()
    print(
        f"look-back over {given.messages:,}: {sink_state.LANDING_S:.0f} s of waiting, {seconds:.1f} s, "
        f"{held:.0f} bytes each"
    )
    print(f"{given.messages:,} messages of {given.size} bytes, bundles of {given.bundle:,}, {given.repeats} repeats\n")
    print("| | messages/s | beside at least once (spread) |\n|---|---|---|")
    for name, found in rates.items():
        ratios = [one / base for one, base in zip(found, rates["at least once"], strict=True)]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})"
        print(f"| {name} | {statistics.median(found):,.0f} | {spread} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
