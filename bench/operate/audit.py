"""The cost of `Audit`: a copy of a topic with hops beside the same copy without, and `rmqio audit` of the two topics.

python -m bench.operate.audit [--runner=SparkRunner] [--messages 1000000] [--size 100] [--hops 1] [--repeats 5]
    [--elements]

The sides run by turns. The time of the same pipeline on a topic with four messages is subtracted from each run: the
stage of totals and the first write to the audit topic, which a pipeline has once, are told apart from what each message
costs. CPU is that of this process and of all that it has started for Spark, without the broker's. After each run, the
sketches must have counted as many messages as the source has.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import apache_beam as beam

from bench.common.processes import cpu_s
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from bench.copying import fill, same
from rmqio import ClientOptions, MapRecords, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.audit.checking import Request, audit
from rmqio.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options

_QUEUES: Final = 4


class Used(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def copy(given: argparse.Namespace, broker: LocalRocketMQ, topic: str, sink: str, audit_topic: str | None) -> Used:
    """Copies a topic; with an audit topic, through hops."""
    name_server = broker.name_server
    began, cpu = time.perf_counter(), _cpu(broker)
    batches = not given.elements
    with beam.Pipeline(options=options([f"--runner={given.runner}"])) as pipeline:
        ends: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
        found = pipeline | ReadFromRocketMQ(topic, name_server=name_server, batches=batches, **ends)
        if audit_topic is not None:
            for number in range(given.hops):
                found = found | Audit(f"hop {number}", topic=audit_topic, name_server=name_server)
        found = found | (MapRecords(same) if batches else beam.Map(same).with_output_types(Record))
        _ = found | WriteToRocketMQ(sink, name_server=name_server, with_sent=False, batches=batches)
    return Used(time.perf_counter() - began, _cpu(broker) - cpu)


def _cpu(broker: LocalRocketMQ) -> float:
    return cpu_s(os.getpid(), without=[broker.pid("broker") or 0, broker.pid("name_server") or 0])


def checked(client: RemotingQueueClient, sink: str, audit_topic: str, given: argparse.Namespace) -> float:
    """Audits a copy, and returns the seconds. Raises `UnequalWork`."""
    began = time.perf_counter()
    # A copy in batches has ids that depend on the label of MapRecords, which the sketches name.
    result = audit(client, Request("source", sink, audit_topic=audit_topic, by="keys"))
    took = time.perf_counter() - began
    if result.wrong or result.faults:
        raise UnequalWork(f"the audit found {result.wrong}, {result.faults[:3]}")
    counts = {name: passed.count for name, passed in result.hops.items()}
    if list(counts.values()) != [given.messages] * given.hops:
        raise UnequalWork(f"the sketches count {counts}, and the source has {given.messages} messages")
    return took


def measure(broker: LocalRocketMQ, given: argparse.Namespace) -> list[list[str]]:
    """Returns the lines of the table."""
    start_up: dict[bool, Used] = {}
    for with_audit in (True, False):
        runs = [copy(given, broker, "few", "nothing", "audit-few" if with_audit else None) for _ in range(3)]
        start_up[with_audit] = Used(*map(min, zip(*runs, strict=True)))
    costs: dict[str, list[float]] = {"wall": [], "cpu": []}
    rates: dict[bool, list[float]] = {True: [], False: []}
    audits = []
    with closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for number in range(given.repeats + 1):
            used: dict[bool, Used] = {}
            for with_audit in (True, False) if number % 2 else (False, True):
                sink, audit_topic = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("sink", "audit"))
                for topic in (sink, audit_topic):
                    broker.create_topic(topic, queues=_QUEUES)
                took = copy(given, broker, "source", sink, audit_topic if with_audit else None)
                base = start_up[with_audit]
                used[with_audit] = Used(took.wall - base.wall, took.cpu - base.cpu)
                if with_audit:
                    audits.append(checked(client, sink, audit_topic, given))
            if number:  # the first is to warm up
                for name in costs:
                    with_, without = (getattr(used[each], name) for each in (True, False))
                    costs[name].append(100 * (with_ / without - 1))
                for each, times in used.items():
                    rates[each].append(given.messages / times.wall)
    lines = [
        [
            f"{name} of {given.hops} hop{'s' if given.hops > 1 else ''}",
            f"{statistics.median(found):+.1f} % ({min(found):+.1f}..{max(found):+.1f})",
        ]
        for name, found in costs.items()
    ]
    more = start_up[True].wall - start_up[False].wall
    with_, without = (statistics.median(rates[each]) for each in (True, False))
    return [
        *lines,
        ["messages/s with, without", f"{with_:,.0f}, {without:,.0f}"],
        ["once a pipeline", f"{more:.2f} s"],
        ["rmqio audit", f"{given.messages / statistics.median(audits):,.0f} messages/s"],
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operate.audit", description=__doc__)
    parser.add_argument("--runner", default="DirectRunner", choices=("DirectRunner", "SparkRunner"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body; default: %(default)s")
    parser.add_argument("--hops", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--elements", action="store_true", help="one by one instead of in batches")
    given = parser.parse_args(argv)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    with LocalRocketMQ() as broker:
        for topic in ("source", "few", "nothing", "audit-few"):
            broker.create_topic(topic, queues=_QUEUES)
        fill(broker.name_server, "source", given.messages, given.size)
        fill(broker.name_server, "few", 4, given.size)
        lines = measure(broker, given)
    kind = "elements" if given.elements else "batches"
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes in {kind}, {given.runner}.")
    print(aligned([["", "median (least..most)"], *lines], left={0}))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench.operate import audit as own

    own.main()
