"""The time of a batch send, part by part, and how fast it could be with a sender that does not hold the GIL.

python -m bench.client.sending [--messages 500000] [--repeats 5] [--size 100]

Every line sends the same messages in the same batches, or does a part of that, and all take turns, on one broker:

- made: only the benchmark's own loop, which makes messages with tags and keys.
- encoded: the same, ids, and the batches as bytes; nothing is sent.
- ready: ready-made requests on one connection, so many in flight.
- whole: `Producer.submit`, as in `python -m bench send`.
- ceiling: one process makes messages, ids and results, and another one sends ready-made requests at the same time, in
  step. This is what a sender in C could reach that encodes in no time and never holds the GIL.
- Java: its client's batch send.

CPU is that of the sending side and of the broker, in microseconds per message.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

from bench.client.lab import Lab
from bench.client.ours import body
from bench.common.config import Plan
from bench.common.report import aligned, machine_text
from rmqio.client.connection import Connection
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.routes import Routes
from rmqio.client.session import Call
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendStatus
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.batch import BatchBuilder, BatchResults
from rmqio.wire.ids import MessageIds
from rmqio.wire.templates import SendRequest, SendTemplate

_HEAD: Final = ("", "messages/s", "of Java's", "CPU us, sender", "CPU us, broker")
_TICK: Final = 1e6 / os.sysconf("SC_CLK_TCK")


@dataclass
class Work:
    """The messages of a run, and where they go."""

    name_server: str
    address: str
    queues: Sequence[MessageQueue]
    bodies: list[bytes]
    batch: int
    in_flight: int

    def made(self) -> Iterator[list[Message]]:
        for first in range(0, len(self.bodies), self.batch):
            part = self.bodies[first : first + self.batch]
            yield [Message(each, tags="bench", keys=(f"k{at}",)) for at, each in enumerate(part, first)]


def encoded(messages: list[Message], ids: Sequence[str]) -> bytes:
    builder = BatchBuilder()
    assert builder.add_all(messages, ids) == len(messages)
    return builder.encode()


def make(work: Work) -> None:
    for _ in work.made():
        pass


def encode(work: Work) -> None:
    ids = MessageIds()
    for messages in work.made():
        encoded(messages, ids.take(len(messages)))


def ready_requests(work: Work) -> list[SendRequest]:
    """A request for each queue; all batches have the bytes of the first one."""
    messages = next(work.made())
    content = encoded(messages, MessageIds().take(len(messages)))
    now_ms = int(time.time() * 1000)
    return [SendRequest(SendTemplate("bench", queue), content, "", now_ms, batch=True) for queue in work.queues]


def send_ready(work: Work, wait: Callable[[], Any] = lambda: None, done: Callable[[], Any] = lambda: None) -> None:
    """Sends as many batches as the work has. Calls `wait` before each, and `done` after each answer."""
    targets, pending = cycle(ready_requests(work)), deque[Call]()
    with closing(Connection(work.address)) as connection:

        def settle() -> None:
            requests.parse_send(pending.popleft().result(30_000), "a send")
            done()

        for _ in range(0, len(work.bodies), work.batch):
            if len(pending) >= work.in_flight:
                settle()
            wait()
            pending.append(connection.start(next(targets)))
        while pending:
            settle()


def send_whole(work: Work) -> None:
    options = ClientOptions(name_servers=work.name_server, max_in_flight=work.in_flight, request_timeout_ms=30_000)
    with closing(RemotingClientFactory(options).producer("bench")) as producer:
        send_all(work, producer)


def send_all(work: Work, producer: Producer) -> None:
    """Sends all batches, so many in flight."""
    targets, pending = cycle(work.queues), deque[PendingSend]()
    for messages in work.made():
        if len(pending) >= work.in_flight:
            pending.popleft().result()
        pending.append(producer.submit(messages, next(targets)))
    while pending:
        pending.popleft().result()


def send_beside(work: Work) -> None:
    """The Python of a send here, the rest in another process."""
    context = get_context("fork")
    mine, its = context.Pipe()
    other = context.Process(target=_other, args=(work, its))
    other.start()
    ids, waiting = MessageIds(), deque[Sequence[str]]()

    def settle() -> None:
        mine.recv_bytes()
        taken = waiting.popleft()
        BatchResults(work.queues[0], 0, taken, "", SendStatus.OK)

    for messages in work.made():
        if len(waiting) >= work.in_flight:
            settle()
        waiting.append(ids.take(len(messages)))
        mine.send_bytes(b"x")
    while waiting:
        settle()
    other.join()
    assert other.exitcode == 0


def _other(work: Work, pipe: Pipe) -> None:
    send_ready(work, pipe.recv_bytes, lambda: pipe.send_bytes(b"x"))


SIDES: Final[dict[str, Callable[[Work], None]]] = {
    "made": make,
    "encoded": encode,
    "ready": send_ready,
    "whole": send_whole,
    "ceiling": send_beside,
}


def cpu_us(pid: int) -> float:
    """Microseconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


def measure(lab: Lab, size: int) -> list[list[str]]:
    plan = lab.plan
    broker = lab.broker.pid()
    assert broker is not None
    options = ClientOptions(name_servers=lab.name_server)
    topic = lab.topic("sending")
    with closing(RemotingClientFactory(options).producer("bench")) as producer:
        queues = list(producer.queues(topic))
        routes: Any = producer._routes  # type: ignore[attr-defined]
        assert isinstance(routes, Routes)
        address = routes.master(*queues[0])
    bodies = [body(number, size) for number in range(plan.messages)]
    work = Work(lab.name_server, address, queues, bodies, plan.batch, plan.in_flight)
    lab.java(f"send {topic} {plan.batch} {size} {plan.batch} {plan.in_flight}")  # so that it runs
    found: dict[str, list[tuple[float, float, float]]] = {side: [] for side in (*SIDES, "Java")}
    for number in range(plan.repeats + plan.warm_ups):
        for side in found if number % 2 else reversed(found):
            times, broker_us, began = os.times(), cpu_us(broker), time.perf_counter()
            if side == "Java":
                java_us = cpu_us(lab.java_pid)
                told = lab.java(f"send {topic} {plan.messages} {size} {plan.batch} {plan.in_flight}")
                seconds, mine = told["seconds"], (cpu_us(lab.java_pid) - java_us) / 1e6
            else:
                SIDES[side](work)
                seconds, after = time.perf_counter() - began, os.times()
                mine = sum(after[:4]) - sum(times[:4])
            row = plan.messages / seconds, 1e6 * mine / plan.messages, (cpu_us(broker) - broker_us) / plan.messages
            if number >= plan.warm_ups:
                found[side].append(row)
    java = [rate for rate, _, _ in found["Java"]]
    lines = []
    for side, rows in found.items():
        rates, mine_us, its_us = ([row[at] for row in rows] for at in range(3))
        ratios = [rate / other for rate, other in zip(rates, java, strict=True)]
        lines.append(
            [
                side,
                f"{statistics.median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})",
                f"{statistics.median(mine_us):.2f}",
                "" if side in ("made", "encoded") else f"{statistics.median(its_us):.2f}",
            ]
        )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.client.sending", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--size", type=int, default=100)
    given = parser.parse_args(argv)
    began = os.getloadavg()[0]
    with Lab(Plan(messages=given.messages, repeats=given.repeats, warm_ups=1)) as lab:
        lines = measure(lab, given.size)
    print(
        f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes; load at the start {began:.1f}."
    )
    print(aligned([_HEAD, *lines], left={0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
