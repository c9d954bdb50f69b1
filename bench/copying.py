"""A copy of a topic in batches beside the same copy by elements: messages per second, and ratio.

python -m bench.copying [--runner=SparkRunner] [--messages 1000000] [--size 100] [--repeats 5]

Both sides run `read | function | write` on one runner, in one process and by turns. The time of the same pipeline on an
empty topic is subtracted from each run. After each run the sink must hold as many messages more as the source has. CPU
is what a message costs the processes of the runner, and the broker: batches, then elements.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import apache_beam as beam

from bench.common.processes import cpu_s
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio import ClientOptions, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options

_HEAD: Final = ("runner", "batches/s", "elements/s", "ratio", "target", "CPU us, runner", "CPU us, broker")
_TARGETS: Final = {"DirectRunner": 3.0, "SparkRunner": 2.0}
_QUEUES: Final = 4
_SETTLES_S: Final = 10.0
_SIDES: Final = (True, False)
"""Whether it copies batches."""


def same(record: Record) -> Record:
    return record


class Cost(NamedTuple):
    """Seconds of one copy, and of CPU."""

    seconds: float
    runner: float
    broker: float

    def less(self, other: Cost) -> Cost:
        return Cost(*(mine - its for mine, its in zip(self, other, strict=True)))


def cost_so_far(broker: LocalRocketMQ) -> Cost:
    pids = {pid for part in ("broker", "name_server") if (pid := broker.pid(part))}
    return Cost(time.perf_counter(), cpu_s(os.getpid(), without=pids), sum(map(cpu_s, pids)))


def copy(runner: str, broker: LocalRocketMQ, topic: str, *, batches: bool) -> Cost:
    """Copies a topic to the sink."""
    name_server, sink = broker.name_server, "sink"
    began = cost_so_far(broker)
    with beam.Pipeline(options=options([f"--runner={runner}"])) as pipeline:
        ends: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
        records = pipeline | ReadFromRocketMQ(topic, name_server=name_server, batches=batches, **ends)
        mapped = records | (MapRecords(same) if batches else beam.Map(same).with_output_types(Record))
        _ = mapped | WriteToRocketMQ(sink, name_server=name_server, with_sent=False, batches=batches)
    return cost_so_far(broker).less(began)


def fill(name_server: str, topic: str, count: int, size: int) -> None:
    body = b"x" * size

    def lists(_: bytes) -> Iterator[list[Message]]:
        for at in range(0, count, 500):
            yield [Message(body, keys=[str(at)])] * min(500, count - at)

    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        made = pipeline | beam.Impulse() | beam.FlatMap(lists).with_output_types(list[Message])
        _ = made | WriteToRocketMQ(topic, name_server=name_server, batches=True, with_sent=False)


def held(client: RemotingQueueClient, topic: str) -> int:
    return sum(client.max_offset(queue) for queue in client.queues(topic))


def measure(broker: LocalRocketMQ, runner: str, count: int, repeats: int) -> list[str]:
    """The line of a runner. Raises `UnequalWork`."""
    start_up = {batches: min(copy(runner, broker, "empty", batches=batches) for _ in range(3)) for batches in _SIDES}
    costs: dict[bool, list[Cost]] = {batches: [] for batches in _SIDES}
    with closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for number in range(repeats + 1):
            for batches in _SIDES if number % 2 else reversed(_SIDES):
                before = held(client, "sink")
                cost = copy(runner, broker, "source", batches=batches).less(start_up[batches])
                until = time.monotonic() + _SETTLES_S  # the broker's index follows its log
                while (copied := held(client, "sink") - before) != count and time.monotonic() < until:
                    time.sleep(0.1)
                if copied != count:
                    raise UnequalWork(f"{copied} messages were copied of {count}")
                if number:  # the first is to warm up
                    costs[batches].append(cost)
    mine, others = costs[True], costs[False]
    ratios = sorted(other.seconds / one.seconds for one, other in zip(mine, others, strict=True))
    ratio = statistics.median(ratios)
    met = f"{_TARGETS[runner]:g}, {'met' if ratio >= _TARGETS[runner] else 'MISSED'}"
    rates = [f"{count / statistics.median(each.seconds for each in side):,.0f}" for side in (mine, others)]
    used = [
        ", ".join(
            f"{1e6 * statistics.median(getattr(each, of) for each in side) / count:.2f}" for side in (mine, others)
        )
        for of in ("runner", "broker")
    ]
    return [runner, *rates, f"{ratio:.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})", met, *used]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.copying", description=__doc__)
    parser.add_argument("--runner", default="DirectRunner", choices=[*_TARGETS])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    with LocalRocketMQ() as broker:
        for topic in ("source", "empty", "sink"):
            broker.create_topic(topic, queues=_QUEUES)
        fill(broker.name_server, "source", given.messages, given.size)
        line = measure(broker, given.runner, given.messages, given.repeats)
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes, {given.repeats} repeats.")
    print(aligned([_HEAD, line], left={0}))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench import copying

    copying.main()
