"""One queue read by one task, and by two at once (`ReadOptions.splits_per_queue`): messages per second, and ratio.

python -m bench.reading.splits [--messages 1000000] [--repeats 5] [--work-us 5]

A bounded read of one queue on SparkRunner with two cores, and a function that takes some microseconds of Python per
message. The sides take turns in one process, on one Spark. The time of the same pipeline on an empty topic is
subtracted. Each run must count all messages.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics, MetricsFilter

from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from bench.copying import fill
from rmqio import ReadFromRocketMQ, ReadOptions, Record, StartFrom, StopAt
from rmqio.local import LocalRocketMQ
from rmqio.runners import options

_HEAD: Final = ("splits_per_queue", "messages/s", "ratio to one task")
_SPLITS: Final = (1, 2)


class Work(beam.DoFn):
    """Keeps a core busy, and counts.

    Args:
      us: microseconds per message.
    """

    def __init__(self, us: float) -> None:
        self._ns = int(1000 * us)
        self._count = Metrics.counter("bench", "messages")

    def process(self, record: Record) -> None:
        until = time.thread_time_ns() + self._ns
        while time.thread_time_ns() < until:
            pass
        self._count.inc()


def read(name_server: str, topic: str, splits: int, us: float) -> tuple[float, int]:
    """Seconds of a read, and the number of messages."""
    began = time.perf_counter()
    flags = ["--runner=SparkRunner", "--spark_master_url=local[2]"]
    pipeline = beam.Pipeline(options=options(flags))
    ends: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
    how = ReadOptions(splits_per_queue=splits)
    _ = pipeline | ReadFromRocketMQ(topic, name_server=name_server, options=how, **ends) | beam.ParDo(Work(us))
    result = pipeline.run()
    result.wait_until_finish()
    seconds = time.perf_counter() - began
    counters = result.metrics().query(MetricsFilter().with_name("messages"))["counters"]
    return seconds, sum(each.committed for each in counters)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reading.splits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--work-us", type=float, default=5.0)
    given = parser.parse_args(argv)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    rates: dict[int, list[float]] = {splits: [] for splits in _SPLITS}
    with LocalRocketMQ() as broker:
        for topic in ("source", "empty"):
            broker.create_topic(topic, queues=1)
        fill(broker.name_server, "source", given.messages, 100)
        start = {
            splits: min(read(broker.name_server, "empty", splits, given.work_us)[0] for _ in range(3))
            for splits in _SPLITS
        }
        for number in range(given.repeats + 1):
            for splits in _SPLITS if number % 2 else reversed(_SPLITS):
                seconds, count = read(broker.name_server, "source", splits, given.work_us)
                if count != given.messages:
                    raise UnequalWork(f"{count} messages were read of {given.messages}")
                rates[splits].append(count / (seconds - start[splits]))
    lines = []
    for splits, found in rates.items():
        ratios = [mine / one for mine, one in zip(found[1:], rates[1][1:], strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})" if splits > 1 else ""
        cells = f"{statistics.median(found[1:]):,.0f} ({min(found[1:]):,.0f}..{max(found[1:]):,.0f})"
        lines.append([str(splits), cells, ratio])
    print(f"Machine: {machine_text()}. {given.messages:,} messages, {given.work_us:g} us of work each.")
    print(aligned([_HEAD, *lines], left=set()))


if __name__ == "__main__":
    # Under its own name, so that workers find this module and not a copy.
    from bench.reading import splits

    splits.main()
