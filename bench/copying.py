"""A copy of a topic in batches beside the same copy by elements: messages per second, and ratio.

python -m bench.copying [--runner=SparkRunner] [--messages 1000000] [--size 100] [--repeats 5]

Both sides run `read | function | write` on one runner, in one process and by turns. The time of the same pipeline on an
empty topic is subtracted from each run. After each run the sink must hold as many messages more as the source has. CPU
is what a message costs the process of the DirectRunner.
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
from typing import Any, Final

import apache_beam as beam

from bench.report import aligned, machine_text
from bench.tally import UnequalWork
from rmqio import ClientOptions, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options

_HEAD: Final = ("runner", "batches/s", "elements/s", "ratio", "target", "CPU us, batches", "CPU us, elements")
_TARGETS: Final = {"DirectRunner": 3.0, "SparkRunner": 2.0}
_QUEUES: Final = 4
_SETTLES_S: Final = 10.0


def same(record: Record) -> Record:
    return record


def copy(runner: str, name_server: str, topic: str, sink: str, *, batches: bool) -> float:
    """Seconds of one copy."""
    began = time.perf_counter()
    with beam.Pipeline(options=options([f"--runner={runner}"])) as pipeline:
        ends: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
        records = pipeline | ReadFromRocketMQ(topic, name_server=name_server, batches=batches, **ends)
        mapped = records | (MapRecords(same) if batches else beam.Map(same).with_output_types(Record))
        _ = mapped | WriteToRocketMQ(sink, name_server=name_server, with_sent=False, batches=batches)
    return time.perf_counter() - began


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


def measure(name_server: str, runner: str, count: int, repeats: int) -> list[str]:
    """The line of a runner. Raises `UnequalWork`."""
    start_up = {
        batches: min(copy(runner, name_server, "empty", "sink", batches=batches) for _ in range(3))
        for batches in (True, False)
    }
    rates = []
    costs: dict[bool, list[float]] = {True: [], False: []}
    with closing(RemotingQueueClient(ClientOptions(name_server))) as client:
        for number in range(repeats + 1):
            rate = {}
            for batches in (True, False) if number % 2 else (False, True):
                before, began_s = held(client, "sink"), time.process_time()
                rate[batches] = count / (
                    copy(runner, name_server, "source", "sink", batches=batches) - start_up[batches]
                )
                costs[batches].append(1e6 * (time.process_time() - began_s) / count)
                until = time.monotonic() + _SETTLES_S  # the broker's index follows its log
                while (copied := held(client, "sink") - before) != count and time.monotonic() < until:
                    time.sleep(0.1)
                if copied != count:
                    raise UnequalWork(f"{copied} messages were copied of {count}")
            if number:  # the first is to warm up
                rates.append(rate)
    ratios = sorted(rate[True] / rate[False] for rate in rates)
    mine, others = (statistics.median(rate[batches] for rate in rates) for batches in (True, False))
    cells = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
    target = _TARGETS[runner]
    met = f"{target:g}, {'met' if statistics.median(ratios) >= target else 'MISSED'}"
    cpu = [f"{statistics.median(costs[each][1:]):.2f}" if runner == "DirectRunner" else "" for each in (True, False)]
    return [runner, f"{mine:,.0f}", f"{others:,.0f}", cells, met, *cpu]


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
        line = measure(broker.name_server, given.runner, given.messages, given.repeats)
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes, {given.repeats} repeats.")
    print(aligned([_HEAD, line], left={0}))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench import copying

    copying.main()
