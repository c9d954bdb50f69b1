"""Measures a look at the ends of 8 queues on 2 brokers: all at once, beside queue after queue, on the same cluster.

python -m bench.reading.planning [--repeats 3] [--looks 200] [--quick]

It starts a name server and two brokers. Each repeat looks while both are up, while one is under SIGSTOP, and while one
is killed. Each side has a client that has looked before, and the sides take turns at being first. "First" is the look
that notices that the broker is away. "Later" are the looks after it, `--pause` seconds apart, as a planner does it.
Queue after queue means `max_offset` with the retries of `ClientOptions`; it runs only once while a broker is away,
because it takes long. Both sides must find the same end for each queue whose broker is up, and an error for each other
queue. Otherwise, the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.common.report import say
from bench.common.rows import Spread
from bench.common.tally import BenchError, UnequalWork
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import RmqioError
from rmqio.interfaces import OffsetQuery
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.servers.cluster import Cluster

TOPIC: Final = "planned"
QUEUES: Final = 4
"""On each broker."""
AT_ONCE: Final = "all at once"
ONE_BY_ONE: Final = "queue after queue"
UP: Final = "both up"
STOPPED: Final = "one under SIGSTOP"
KILLED: Final = "one killed"

Ends = Mapping[MessageQueue, int | None]
"""None: an error."""
Look = Callable[[RemotingQueueClient, Sequence[MessageQueue]], Ends]


def look_at_once(client: RemotingQueueClient, queues: Sequence[MessageQueue]) -> Ends:
    found = client.look_up([OffsetQuery(queue, "max") for queue in queues])
    return {queue: end if isinstance(end, int) else None for queue, end in zip(queues, found, strict=True)}


def look_one_by_one(client: RemotingQueueClient, queues: Sequence[MessageQueue]) -> Ends:
    ends: dict[MessageQueue, int | None] = {}
    for queue in queues:
        try:
            ends[queue] = client.max_offset(queue)
        except RmqioError:
            ends[queue] = None
    return ends


SIDES: Final[Mapping[str, Look]] = {AT_ONCE: look_at_once, ONE_BY_ONE: look_one_by_one}


class Bench:
    """The cluster, and milliseconds by state, side and which look it was."""

    def __init__(self, cluster: Cluster, looks: int, pause_s: float) -> None:
        self._cluster, self._looks, self._pause_s = cluster, looks, pause_s
        self._options = ClientOptions(cluster.name_server)
        self.times: dict[tuple[str, str, str], list[float]] = {}
        self.queues = [MessageQueue(TOPIC, name, number) for name in ("a", "b") for number in range(QUEUES)]

    def load(self) -> None:
        """Another number of messages in each queue."""
        self._cluster.create_topic(TOPIC, QUEUES)
        with RemotingProducer(self._options, "planning") as producer:
            for count, queue in enumerate(self.queues, 1):
                producer.send_batch([Message(b"x")] * count, queue)
        with contextlib.closing(RemotingQueueClient(self._options)) as client:
            self._until(lambda: list(look_at_once(client, self.queues).values()) == [*range(1, len(self.queues) + 1)])

    def repeat(self, number: int) -> None:
        """All states once."""
        order = list(SIDES)[:: 1 if number % 2 else -1]
        for side in order:
            with contextlib.closing(RemotingQueueClient(self._options)) as client:
                self._checked(SIDES[side], client, set())
                for _ in range(self._looks):
                    self._timed(UP, side, "each", client, set())
        broker = self._cluster.brokers["b"]
        for state in (STOPPED, KILLED):
            for side in order:
                with contextlib.closing(RemotingQueueClient(self._options)) as client:
                    self._checked(SIDES[side], client, set())
                    (broker.pause if state == STOPPED else broker.kill)()
                    try:
                        self._timed(state, side, "first", client, {"b"})
                        for _ in range(10 if side == AT_ONCE else 0):  # the other one learns nothing from the first
                            time.sleep(self._pause_s)
                            self._timed(state, side, "later", client, {"b"})
                    finally:
                        (broker.resume if state == STOPPED else broker.restart)()
                    self._until(lambda c=client: None not in look_at_once(c, self.queues).values())  # type: ignore[misc]

    def _timed(self, state: str, side: str, which: str, client: RemotingQueueClient, away: set[str]) -> None:
        begin = time.perf_counter()
        ends = SIDES[side](client, self.queues)
        took_ms = (time.perf_counter() - begin) * 1000
        self._check(ends, away)
        self.times.setdefault((state, side, which), []).append(took_ms)
        if which != "each":
            say(f"  {state}, {side}, {which}: {took_ms:,.1f} ms")

    def _checked(self, look: Look, client: RemotingQueueClient, away: set[str]) -> None:
        self._check(look(client, self.queues), away)

    def _check(self, ends: Ends, away: set[str]) -> None:
        wanted = {queue: None if queue.broker in away else count for count, queue in enumerate(self.queues, 1)}
        if ends != wanted:
            raise UnequalWork(f"the ends are {wanted}, and a side found {ends}")

    @staticmethod
    def _until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_so():
            if time.monotonic() > deadline:
                raise BenchError("the ends of the queues still changed after 60 s")
            time.sleep(0.2)

    def table(self) -> str:
        """Markdown."""
        lines = ["| brokers | look | all at once, ms | queue after queue, ms |", "|---|---|--:|--:|"]
        for state, which in (
            (UP, "each"),
            (KILLED, "first"),
            (KILLED, "later"),
            (STOPPED, "first"),
            (STOPPED, "later"),
        ):
            cells = []
            for side in SIDES:
                times = self.times.get((state, side, which))
                if times is None:
                    cells.append("-")
                    continue
                spread = Spread.of(times)
                cells.append(spread.text("{:,.1f}" if spread.median < 100 else "{:,.0f}"))
            lines.append(f"| {state} | {which} | {' | '.join(cells)} |")
        return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.reading.planning", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--looks", type=int, default=200, help="looks while both brokers are up; default: %(default)s")
    parser.add_argument(
        "--pause", type=float, default=0.5, help="seconds between looks while a broker is away; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    given = parser.parse_args(arguments)
    repeats, looks = (1, 10) if given.quick else (given.repeats, given.looks)
    load = os.getloadavg()[0]
    try:
        with Cluster(brokers=("a", "b")) as cluster:
            bench = Bench(cluster, looks, given.pause)
            bench.load()
            for number in range(1, repeats + 1):
                say(f"repeat {number} of {repeats}")
                bench.repeat(number)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(bench.table())
    print(f"\nMedian (lowest..highest) of {repeats} repeats; load average {load:.1f} before the start.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
