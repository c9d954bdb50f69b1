"""Messages at a steady rate through our runner on Spark: their latency, and what a long run costs.

python -m bench.streaming.steady latency: a pipeline without state; from the send to the store time in the sink.
python -m bench.streaming.steady soak: windows of 10 s; memory, time per micro-batch, and state, for 15 minutes.
python -m bench.streaming.steady slow: the same with a sink that is slower than the input, and messages of 1 KB.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import apache_beam as beam
import psutil
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.window import FixedWindows

from bench.common.processes import own_mb, tree
from bench.common.report import aligned
from bench.streaming.orders import records_of
from bench.streaming.windowed import key_of, time_of, to_message
from rmqio import Message, ReadFromRocketMQ, Record, StartFrom, WriteToRocketMQ
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.options import ClientOptions, ReadOptions
from rmqio.runners import options

_EVERY_S: Final = 0.02
_SAMPLE_S: Final = 10.0
_SLOW_S: Final = 0.001
_BATCH: Final = 500
_LINE: Final = "{:5.0f} s  Spark {:6,.0f} MB, Python {:6,.0f} MB  {:7,.0f} ms  state {} MB  {:,} rows"
_SOURCE, _SINK = "steady-source", "steady-sink"
Sample = tuple[float, float, float, float, int, int]
"""Seconds, MB of Spark's virtual machine and of Python, ms of the last micro-batch, MB of state, rows of it."""


class Sender:
    """Sends messages `key|milliseconds`, so many a second, in turn to all queues, until it is stopped."""

    def __init__(self, name_server: str, rate: int, keys: int, more: bytes = b"") -> None:
        self._producer = RemotingClientFactory(ClientOptions(name_server)).producer("bench")
        self._rate, self._keys, self._more = rate, keys, more
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        queues = self._producer.queues(_SOURCE)
        began, tick = time.monotonic(), 0
        while not self._stopped.wait(max(0.0, began + tick * _EVERY_S - time.monotonic())):
            tick += 1
            due = int((time.monotonic() - began) * self._rate) - self.sent
            now_ms = int(time.time() * 1000)
            bodies = (b"%d|%d" % (number % self._keys, now_ms) for number in range(self.sent, self.sent + due))
            messages = (Message(body + self._more, topic=_SOURCE) for body in bodies)
            while batch := list(itertools.islice(messages, _BATCH)):
                self._producer.send_batch(batch, queues[tick % len(queues)])
            self.sent += due


def copied(pipeline: beam.Pipeline, name_server: str) -> None:
    """The stateless pipeline."""
    records = pipeline | ReadFromRocketMQ(_SOURCE, name_server=name_server, start=StartFrom.earliest())
    messages = records | beam.Map(_copy).with_output_types(Message)
    _ = messages | WriteToRocketMQ(_SINK, name_server=name_server, with_sent=False)


def counted(pipeline: beam.Pipeline, name_server: str) -> None:
    """The one with windows."""
    read = ReadFromRocketMQ(
        _SOURCE,
        name_server=name_server,
        start=StartFrom.earliest(),
        timestamp=time_of,
        options=ReadOptions(max_out_of_orderness_ms=1_000),
    )
    pairs = pipeline | read | beam.Map(key_of).with_output_types(tuple[str, int]) | beam.WindowInto(FixedWindows(10))
    totals = pairs | beam.CombinePerKey(sum) | "To messages" >> beam.Map(to_message).with_output_types(Message)
    _ = totals | WriteToRocketMQ(_SINK, name_server=name_server, with_sent=False)


def slowed(pipeline: beam.Pipeline, name_server: str) -> None:
    """The one whose sink is slow."""
    records = pipeline | ReadFromRocketMQ(_SOURCE, name_server=name_server, start=StartFrom.earliest())
    messages = records | beam.Map(_copy_slowly).with_output_types(Message)
    _ = messages | WriteToRocketMQ(_SINK, name_server=name_server, with_sent=False)


def _copy(record: Record) -> Message:
    return Message(record.body)


def _copy_slowly(record: Record) -> Message:
    time.sleep(_SLOW_S)
    return Message(record.body[:10])


_PIPELINES: Final = {"latency": copied, "soak": counted, "slow": slowed}


def latencies(name_server: str) -> list[int]:
    """Milliseconds, of all messages in the sink, in the order of their sends."""
    found = [(time_of(record), record.store_timestamp_ms) for record in records_of(name_server, _SINK)]
    return [stored - sent for sent, stored in sorted(found)]


def memory_mb() -> tuple[float, float]:
    """Returns the memory of Spark's virtual machine, and of all Python processes below this one; theirs alone.

    The broker is left out: all that it stores is mapped into its memory.
    """
    spark = python = 0.0
    for each in tree(os.getpid()):
        with suppress(psutil.Error):
            command = each.cmdline() or [""]
            spark += own_mb(each) if any("org.apache.spark" in part for part in command) else 0
            python += own_mb(each) if "java" not in command[0] else 0
    return spark, python


def sample(result: Any, began: float) -> Sample | None:
    """None: no micro-batch yet."""
    progress = result.query.lastProgress if result.query is not None else None
    if progress is None:
        return None
    state = sum(each["memoryUsedBytes"] for each in progress["stateOperators"]) / 1e6
    rows = progress["observedMetrics"]["rmqio"]["rows"] or 0
    took = float(progress["durationMs"].get("triggerExecution", 0))
    return time.monotonic() - began, *memory_mb(), took, round(state), rows


def run(what: str, rate: int, keys: int, seconds: float, heap: str) -> int:
    """Returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder, LocalRocketMQ() as broker:
        broker.create_topic(_SOURCE, queues=4)
        broker.create_topic(_SINK, queues=4)
        flags = ["--runner=SparkRunner", "--streaming", f"--checkpoint_dir={folder}"]
        flags.append(f"--spark_conf=spark.driver.memory={heap}")
        pipeline = beam.Pipeline(options=options(flags))
        _PIPELINES[what](pipeline, broker.name_server)
        result = pipeline.run()
        samples: list[Sample] = []
        try:
            more = b"|" + bytes(1000) if what == "slow" else b""
            with Sender(broker.name_server, rate, keys, more) as sender:
                while sample(result, 0) is None and result.state == PipelineState.RUNNING:
                    time.sleep(0.5)
                began = time.monotonic()
                while time.monotonic() - began < seconds and result.state == PipelineState.RUNNING:
                    time.sleep(min(_SAMPLE_S, seconds))
                    if found := sample(result, began):
                        samples.append(found)
                        print(_LINE.format(*found), flush=True)
        finally:
            result.cancel()  # else an endless pipeline would keep the process
        result.wait_until_finish()  # raises what it failed with
        if what == "latency":
            _tell_latency(latencies(broker.name_server), sender.sent, round(rate * seconds))
        else:
            _tell_soak(samples)
    return 0


def _tell_latency(found: Sequence[int], sent: int, steady: int) -> None:
    late = sorted(found[-min(steady, len(found)) :])  # what waited for Spark's start says nothing
    at = statistics.quantiles(late, n=100, method="inclusive")
    print(f"{sent:,} sent, {len(found):,} in the sink, the last {len(late):,} of them:")
    print(f"latency in ms: median {at[49]:,.0f}, 99 % {at[98]:,.0f}, maximum {late[-1]:,.0f}")


def _tell_soak(samples: Sequence[Sample]) -> None:
    """Medians of the quarters of the run: flat means that the last is not above the second."""
    quarter = max(1, len(samples) // 4)
    cells = [["quarter", "Spark MB", "Python MB", "micro-batch ms", "state MB", "rows"]]
    for number in range(4):
        part = samples[number * quarter : (number + 1) * quarter]
        if part:
            medians = [f"{statistics.median(each[at] for each in part):,.0f}" for at in range(1, 6)]
            cells.append([str(number + 1), *medians])
    print(aligned(cells, left=()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.streaming.steady")
    parser.add_argument("what", choices=sorted(_PIPELINES))
    parser.add_argument("--rate", type=int, default=1_000, help="messages per second; default: %(default)s")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--heap", default="1g", help="the heap of Spark's JVM; default: %(default)s")
    parser.add_argument("--seconds", type=float, help="default: 60 for latency, 900 for the others")
    given = parser.parse_args(arguments)
    seconds = given.seconds or (60.0 if given.what == "latency" else 900.0)
    return run(given.what, given.rate, given.keys, seconds, given.heap)


if __name__ == "__main__":
    from bench.streaming import steady  # under its own name, for other processes

    sys.exit(steady.main())
