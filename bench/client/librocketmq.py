"""Our producer beside `backend="librocketmq"`, and that one beside the vendor's own module: messages/s and ratios.

python -m bench.client.librocketmq [--messages 100000] [--sync-messages 10000] [--repeats 7] [--sizes 100,1024]
    [--quick]

*single*: one message at a time; each send waits for its answer. *batches*: `submit`, with `--in-flight` batches in
flight. Ours sends a batch in one request. librocketmq sends its messages one by one, because a broker would store its
batch as one message. *module*: single sends by `Producer.send_sync` of `rocketmq` 0.4.4, without ids and without the
choice of a queue, to show how much time the library itself takes.

All sides send the same bodies with a tag and a key, in alternating repeats after warm-ups. In each run, the stored
messages are read back and compared. Connecting is not timed. Exit status: 0; 1 if the sides did unequal work.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, Final

from bench.client import beside
from bench.client.beside import BareLab
from bench.client.ours import body
from bench.common.config import Plan
from bench.common.report import say
from bench.common.rows import Row
from bench.common.tally import Tally, require_equal
from rmqio.interfaces import PendingSend
from rmqio.librocketmq import LibrocketmqClientFactory
from rmqio.model import Message
from rmqio.options import ClientOptions

# ---- the side of librocketmq, in a worker process; see `bench.client.ours` ------------------------------------------


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


def _run(lab: BareLab, side: str, case: str, size: int) -> tuple[float, Tally]:
    """One run: messages a second, and what is stored of them."""
    plan, topic = lab.plan, lab.topic(f"{side}_{case}_{size}")
    before = lab.ends(topic)
    module = "ours" if side == OURS else "librocketmq"
    if case == "batches":
        many: dict[str, Any] = {"count": plan.messages, "batch": plan.batch, "in_flight": plan.in_flight}
        answer = lab.call(side, module, "send", topic=topic, size=size, **many)
    else:
        function = "module" if side == MODULE else "sync"
        answer = lab.call(side, module, function, topic=topic, size=size, count=plan.sync_messages)
    tally = lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))
    return tally.count / answer["seconds"], tally


def compare(lab: BareLab, size: int) -> list[Row]:
    """Warm-ups, then repeats; the order of the sides is turned round at each. Raises `UnequalWork`."""
    plan = lab.plan
    lab.topic(CONNECT, queues=1)
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
    usual = Plan(messages=100_000, sync_messages=10_000, repeats=7, batch=100)
    quick = replace(usual, messages=4_000, sync_messages=500, repeats=2, warm_ups=1)
    return beside.main(arguments, "librocketmq", __doc__, BareLab, compare, usual=usual, quick=quick)


if __name__ == "__main__":
    sys.exit(main())
