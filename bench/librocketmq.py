"""Our producer beside `backend="librocketmq"`, and that beside the vendor's own module: messages a second, and ratios.

python -m bench.librocketmq [--messages 100000] [--sync-messages 10000] [--repeats 7] [--sizes 100,1024] [--quick]

*single*: one message at a time, each waited for. *batches*: by `submit`, with `--in-flight` of them on their way; what
is one request of ours, librocketmq sends one by one, since a broker takes its batch for one message. *module*: single
sends by `rocketmq` 0.4.4's own `Producer.send_sync`, without ids and choice of queue, to show what is the library's.

All sides send the same bodies with a tag and a key, in alternating repeats after warm-ups, and what they have stored is
read back and compared in each run. Connecting is not timed. Exit status: 0, or 1 when they did not do the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self

from bench.config import BROKER_CONFIG, BROKER_HEAP_MB, Plan
from bench.lab import Lab, say
from bench.ours import body
from bench.report import BUSY_WARNING, Report, table
from bench.rows import Row
from bench.tally import BenchError, Tally, require_equal
from rmqio.librocketmq import LibrocketmqClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.seams import PendingSend

# ---- the side of librocketmq, in a worker process; see `bench.ours` -------------------------------------------------


CONNECT: Final = "connect"
"""The topic of one queue that the library connects by."""


def sync(name_server: str, topic: str, count: int, size: int) -> dict[str, Any]:
    """One message at a time, each waited for."""
    bodies = [body(number, size) for number in range(count)]
    options = ClientOptions(name_servers=name_server, request_timeout_ms=30_000)
    producer = LibrocketmqClientFactory(options).producer("librocketmq-sync")
    try:
        producer.send(Message(b"x", topic=CONNECT))
        started = time.perf_counter()
        for number, content in enumerate(bodies):
            producer.send(Message(content, topic=topic, tags="bench", keys=(f"k{number}",)))
        seconds = time.perf_counter() - started
    finally:
        producer.close()
    return {"seconds": seconds, "count": count, "bytes": sum(map(len, bodies))}


def send(name_server: str, topic: str, count: int, size: int, batch: int, in_flight: int) -> dict[str, Any]:
    """Batches of `batch` messages to the queues in turn, with up to `in_flight` batches on their way."""
    bodies = [body(number, size) for number in range(count)]
    options = ClientOptions(name_servers=name_server, max_in_flight=in_flight, request_timeout_ms=30_000)
    producer = LibrocketmqClientFactory(options).producer("librocketmq-send")
    try:
        targets = cycle(producer.queues(topic))
        (connect,) = producer.queues(CONNECT)
        pending: deque[PendingSend] = deque(producer.submit([Message(b"x")], connect) for _ in range(in_flight))
        while pending:
            pending.popleft().result()
        started = time.perf_counter()
        for first in range(0, count, batch):
            part = bodies[first : first + batch]
            messages = [Message(b, tags="bench", keys=(f"k{i}",)) for i, b in enumerate(part, first)]
            if len(pending) >= in_flight:
                pending.popleft().result()
            pending.append(producer.submit(messages, next(targets)))
        while pending:
            pending.popleft().result()
        seconds = time.perf_counter() - started
    finally:
        producer.close()
    return {"seconds": seconds, "count": count, "bytes": sum(map(len, bodies))}


def module(name_server: str, topic: str, count: int, size: int) -> dict[str, Any]:
    """As `sync`, by the vendor's own Python."""
    from rocketmq.client import Message as TheirMessage  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from rocketmq.client import Producer as TheirProducer

    def message(content: bytes, number: int, to: str = topic) -> Any:
        made = TheirMessage(to)
        made.set_body(content)
        made.set_tags("bench")
        made.set_keys(f"k{number}")
        return made

    bodies = [body(number, size) for number in range(count)]
    producer = TheirProducer("module-sync", timeout=30_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    try:
        producer.send_sync(message(b"x", 0, CONNECT))
        started = time.perf_counter()
        for number, content in enumerate(bodies):
            producer.send_sync(message(content, number))
        seconds = time.perf_counter() - started
    finally:
        producer.shutdown()
    return {"seconds": seconds, "count": count, "bytes": sum(map(len, bodies))}


# ---- the comparison --------------------------------------------------------------------------------------------------

OURS: Final = "ours"
THEIRS: Final = "librocketmq"
MODULE: Final = "module"


class _Lab(Lab):
    """Without Java."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-")))
            say("starting RocketMQ ...")
            self.broker = stack.enter_context(LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG))
            self.name_server = self.broker.name_server
            self._stack = stack.pop_all()
        return self


def _run(lab: Lab, side: str, case: str, size: int) -> tuple[float, Tally]:
    """One run: messages a second, and what is stored of them."""
    plan, topic = lab.plan, lab.topic(f"{side}_{case}_{size}")
    before = lab.ends(topic)
    module = "ours" if side == OURS else "librocketmq"
    if case == "batches":
        many = {"count": plan.messages, "batch": plan.batch, "in_flight": plan.in_flight}
        answer = lab.call(side, module, "send", topic=topic, size=size, **many)
    else:
        function = "module" if side == MODULE else "sync"
        answer = lab.call(side, module, function, topic=topic, size=size, count=plan.sync_messages)
    tally = lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))
    return tally.count / answer["seconds"], tally


def compare(lab: Lab, size: int) -> list[Row]:
    """Warm-ups, then repeats; the order of the sides is turned round at each. Raises `UnequalWork`."""
    plan = lab.plan
    sides = [(OURS, "single"), (THEIRS, "single"), (MODULE, "single"), (OURS, "batches"), (THEIRS, "batches")]
    rates: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
    for repeat in range(1 - plan.warm_ups, plan.repeats + 1):
        tallies: dict[tuple[str, str], Tally] = {}
        for side, case in sides if repeat % 2 == 0 else reversed(sides):
            rate, tallies[side, case] = _run(lab, side, case, size)
            if repeat >= 1:
                rates[side, case].append(rate)
                say(f"  {size} B, repeat {repeat}: {case}, {side}: {rate:,.0f} msg/s")
        for case in ("single", "batches"):
            require_equal(f"{case}, {size} B", {side: tally for (side, of), tally in tallies.items() if of == case})

    def row(case: str, ours: str, peer: str, count: int) -> Row:
        note = f"{ours} beside {peer}, {count:,} messages"
        return Row.ratio_of(case, size, rates[ours, case], rates[peer, case], None, note)

    return [
        row("single", OURS, THEIRS, plan.sync_messages),
        row("single", THEIRS, MODULE, plan.sync_messages),
        row("batches", OURS, THEIRS, plan.messages),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    small = Plan(messages=100_000, sync_messages=10_000, repeats=7, batch=100)
    parser = argparse.ArgumentParser(prog="python -m bench.librocketmq", description=(__doc__ or "").partition("\n")[0])
    names: dict[str, Callable[[str], Any]] = {
        "messages": int, "sync_messages": int, "repeats": int, "warm_ups": int, "batch": int, "in_flight": int,
    }  # fmt: skip
    for name, kind in names.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{getattr(small, name):,} by default")
    parser.add_argument("--sizes", default="100,1024", help="of the bodies, in bytes; 100,1024 by default")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it works, gives no figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    given = parser.parse_args(arguments)
    plan = replace(small, sizes=tuple(int(size) for size in given.sizes.split(",")))
    if given.quick:
        plan = replace(plan, messages=4_000, sync_messages=500, repeats=2, warm_ups=1)
    plan = replace(plan, **{name: getattr(given, name) for name in names if getattr(given, name) is not None})
    report = Report(plan.describe(), round(os.getloadavg()[0], 1))
    try:
        with _Lab(plan) as lab:
            lab.topic(CONNECT, queues=1)
            for size in plan.sizes:
                report.rows += compare(lab, size)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(report.rows))
    if given.json:
        report.write_json(given.json)
    if report.is_busy:
        print(BUSY_WARNING.format(report.load_at_start).strip("*"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
