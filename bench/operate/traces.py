"""The cost of the message trace, for writes and reads, and of a producer's heartbeat.

python -m bench.operate.traces [--messages 300000] [--size 100] [--repeats 5]

A write and a read with the trace run beside the same without it, by turns, on the DirectRunner, in elements and in
batches. CPU is that of this process, in microseconds for each message: with the trace, that of the thread that sends
the entries is part of it. Traces are best effort: *stored* is the share of the entries that were not dropped, of one
for each message that is written, and two for each that is read.

A heartbeat goes out with the next send when it is due. It is measured by a producer whose heartbeats are due each
millisecond, so that each of its single sends has one, beside a producer whose heartbeats are due each half a minute.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import apache_beam as beam

from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio import (
    ClientOptions,
    Message,
    ReadFromRocketMQ,
    ReadOptions,
    StartFrom,
    StopAt,
    WriteOptions,
    WriteToRocketMQ,
    telemetry,
)
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.sending.traces import flush_traces

_QUEUES: Final = 4
_LIST: Final = 500
_HEARTBEAT_MS: Final = 30_000
_APART_S: Final = 0.002


class Used(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


class Drops:
    """Counts the entries that were dropped; nothing else of the metrics."""

    def __init__(self) -> None:
        self.count = 0

    def record(self, metric: telemetry.Metric, labels: tuple[str, ...], value: float) -> None:
        if metric.name == "traces_dropped":
            self.count += int(value)


class Given(NamedTuple):
    """A write or read of one run."""

    name_server: str
    topic: str
    number: int
    size: int
    batches: bool
    trace: bool


def messages(_: bytes, count: int, size: int) -> Iterator[Message]:
    body = b"x" * size
    return (Message(body, tags="bench", keys=(f"k{number}",)) for number in range(count))


def lists(_: bytes, count: int, size: int) -> Iterator[list[Message]]:
    made = messages(b"", count, size)
    for at in range(0, count, _LIST):
        yield [next(made) for _ in range(min(_LIST, count - at))]


def write(given: Given) -> None:
    """Write messages that a DoFn makes."""
    kind: Any = list[Message] if given.batches else Message
    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        make = lists if given.batches else messages
        made = pipeline | beam.Impulse() | beam.FlatMap(make, given.number, given.size).with_output_types(kind)
        _ = made | WriteToRocketMQ(
            given.topic,
            name_server=given.name_server,
            options=WriteOptions(trace=given.trace),
            batches=given.batches,
            with_sent=False,
        )


def read(given: Given) -> None:
    """Read a topic, and count."""
    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        found = pipeline | ReadFromRocketMQ(
            given.topic,
            name_server=given.name_server,
            consumer_group="bench",
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            options=ReadOptions(trace=given.trace),
            batches=given.batches,
        )
        sizes = found | beam.Map(len) if given.batches else found | beam.Map(_one)
        _ = sizes | beam.CombineGlobally(sum) | beam.Map(_require, given.number)


def _one(_: Any) -> int:
    return 1


def _require(found: int, count: int) -> None:
    if found != count:
        raise UnequalWork(f"{found} messages were read of {count}")


def timed(run: Callable[[Given], None], given: Given) -> Used:
    """Run it, and let the trace end, whose CPU counts, too."""
    began, cpu = time.perf_counter(), time.process_time()
    run(given)
    wall = time.perf_counter() - began
    flush_traces(30)
    return Used(wall, time.process_time() - cpu)


def measure(broker: LocalRocketMQ, given: argparse.Namespace) -> list[list[str]]:
    """Return the lines of the table. Raises `UnequalWork`."""
    drops = Drops()
    telemetry.install(drops)
    lines = []
    cases = [(run, entries, batches) for run, entries in ((write, 1), (read, 2)) for batches in (False, True)]
    with closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for run, entries, batches in cases:
            used: dict[bool, list[Used]] = {True: [], False: []}
            dropped = []
            for number in range(given.repeats + 1):
                for trace in (True, False) if number % 2 else (False, True):
                    topic = "source"
                    if run is write:
                        topic = f"sink-{uuid.uuid4().hex[:8]}"
                        broker.create_topic(topic, queues=_QUEUES)
                    before = drops.count
                    job = Given(broker.name_server, topic, given.messages, given.size, batches, trace)
                    took = timed(run, job)
                    _require(held(client, topic, given.messages), given.messages)
                    if number:  # the first is to warm up
                        used[trace].append(took)
                        if trace:
                            dropped.append((drops.count - before) / given.messages / entries)
            what = f"{run.__name__}, {'batches' if batches else 'elements'}"
            lines.append(line_of(what, given.messages, used, statistics.median(dropped)))
    telemetry.install(None)
    return lines


def line_of(what: str, count: int, used: dict[bool, list[Used]], dropped: float) -> list[str]:
    """Return name, rates, cost of the trace in wall time and in CPU, and the share of entries that are stored."""
    costs = sorted(100 * (a.wall / b.wall - 1) for a, b in zip(used[True], used[False], strict=True))
    rates = (f"{count / statistics.median(each.wall for each in used[trace]):,.0f}" for trace in (False, True))
    cpu = {trace: 1e6 * statistics.median(each.cpu for each in used[trace]) / count for trace in used}
    spread = f"{statistics.median(costs):+.0f} % ({costs[0]:+.0f}..{costs[-1]:+.0f})"
    return [what, *rates, spread, f"{cpu[False]:.2f}", f"{cpu[True]:.2f}", f"{100 * (1 - dropped):.0f} %"]


def held(client: RemotingQueueClient, topic: str, count: int) -> int:
    """Return how many messages a topic has, once the broker's index has followed its log."""
    until = time.monotonic() + 10
    while (found := sum(map(client.max_offset, client.queues(topic)))) < count and time.monotonic() < until:
        time.sleep(0.1)
    return found


def heartbeat_us(name_server: str, topic: str, *, sends: int, repeats: int) -> tuple[float, float]:
    """Return the microseconds of CPU, and of time, that one heartbeat adds to the send that it goes out with."""
    found = []
    for _ in range(repeats):
        often, seldom = (sent_singly(name_server, topic, sends, every_ms) for every_ms in (1, _HEARTBEAT_MS))
        found.append([1e6 * (one - other) / sends for one, other in zip(often, seldom, strict=True)])
    wall_us, cpu_us = (statistics.median(each) for each in zip(*found, strict=True))
    return cpu_us, wall_us


def sent_singly(name_server: str, topic: str, sends: int, heartbeat_ms: int) -> Used:
    """Send one message after the other, more than a millisecond apart, and return the time within the sends."""
    wall = 0.0
    with closing(RemotingProducer(ClientOptions(name_server, heartbeat_ms=heartbeat_ms), "bench")) as producer:
        producer.send(Message(b"first", topic=topic))
        cpu = time.process_time()
        for _ in range(sends):
            time.sleep(_APART_S)
            began = time.perf_counter()
            producer.send(Message(b"x" * 100, topic=topic))
            wall += time.perf_counter() - began
        return Used(wall, time.process_time() - cpu)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operate.traces", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    with LocalRocketMQ(broker_config={"traceTopicEnable": True}) as broker:
        for topic in ("source", "beats"):
            broker.create_topic(topic, queues=_QUEUES)
        write(Given(broker.name_server, "source", given.messages, given.size, batches=True, trace=False))
        lines = measure(broker, given)
        cpu_us, wall_us = heartbeat_us(broker.name_server, "beats", sends=2_000, repeats=given.repeats)
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes, DirectRunner.")
    head = ["", "messages/s without", "with", "cost", "CPU us without", "with", "stored"]
    print(aligned([head, *lines], left={0}))
    share = cpu_us / _HEARTBEAT_MS / 10
    print(f"A heartbeat takes {cpu_us:.0f} us of CPU and {wall_us:.0f} us of time: each 30 s, {share:.6f} % of a core.")


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench.operate import traces as own

    own.main()
