"""Measures what `exactly_once` costs a stream while nothing fails: the same copy on Spark with and without it.

python -m bench.exact.stream [--messages 1000000] [--repeats 5] [--size 100] [--trigger 100000]

Each run is a program of its own, from topic to topic, with ids from the coordinates of the records; the sides take
turns. The rate is that between the first and the last message in the sink, by the broker's clock, so that neither
Spark's start nor the look-back before the first message counts: a stream pays these once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apache_beam as beam

from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB
from bench.common.report import say
from bench.common.tally import UnequalWork
from rmqio import LookBack, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.runners import options
from tests.helpers.check import read_topic

SOURCE: Final = "exact-source"
SIDES: Final = ("at least once", "exactly once")


def copy(name_server: str, sink: str, checkpoint: str, trigger: int, *, exact: bool) -> None:
    """One run, in a process of its own."""
    flags = ["--runner=SparkRunner", "--streaming", "--spark_master_url=local[1]", f"--checkpoint_dir={checkpoint}"]
    with beam.Pipeline(options=options([*flags, f"--max_records_per_trigger={trigger}"])) as pipeline:
        start, stop = StartFrom.earliest(), StopAt.latest()
        records = pipeline | ReadFromRocketMQ(SOURCE, name_server=name_server, start=start, stop=stop)
        look_back = LookBack(f"{sink}-position") if exact else None
        _ = records | WriteToRocketMQ(sink, name_server=name_server, exactly_once=look_back, with_sent=False)


def rate(client: RemotingQueueClient, sink: str, count: int) -> float:
    """Messages a second between the first and the last one. Raises `UnequalWork` unless each was copied once."""
    records = list(read_topic(client, sink))
    if len(records) != count or len({record.message_id for record in records}) != count:
        raise UnequalWork(f"{sink} holds {len(records)} messages, not each of {count} once")
    times = [record.store_timestamp_ms for record in records]
    return count / (max(times) - min(times)) * 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.exact.stream", description=(__doc__ or "").partition("\n")[0]
    )
    for name, usual in (("messages", 1_000_000), ("repeats", 5), ("size", 100), ("trigger", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with (
        LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG) as broker,
        tempfile.TemporaryDirectory() as folder,
    ):
        broker.create_topic(SOURCE, queues=4)
        client = RemotingQueueClient(ClientOptions(broker.name_server))
        producer = RemotingClientFactory(ClientOptions(broker.name_server)).producer("bench")
        queues = producer.queues(SOURCE)
        for number in range(0, given.messages, 1_000):
            producer.send_batch([Message(b"x" * given.size)] * 1_000, queues[number // 1_000 % len(queues)])
        for number in range(given.repeats + 1):
            for name in [*SIDES] if number % 2 else reversed(SIDES):
                sink = f"sink-{number}-{name.replace(' ', '-')}"
                broker.create_topic(sink, queues=4)
                checkpoint = str(Path(folder, sink))
                call = (
                    f"copy({broker.name_server!r}, {sink!r}, {checkpoint!r}, {given.trigger}, exact={name == SIDES[1]})"
                )
                subprocess.run([sys.executable, "-c", f"from bench.exact.stream import copy; {call}"], check=True)
                found = rate(client, sink, given.messages)
                say(f"  {name}: {found:,.0f} messages per second")
                if number:  # the first is a warm-up
                    rates[name].append(found)
        producer.close()
        client.close()
    ratios = [exact / plain for plain, exact in zip(*rates.values(), strict=True)]
    for name, each in rates.items():
        print(f"{name}: {statistics.median(each):,.0f} ({min(each):,.0f}..{max(each):,.0f}) messages per second")
    print(f"ratio: {statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
