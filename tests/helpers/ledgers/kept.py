"""Orders for `keeping.py`, and the ledger of what its windows, state and timers must send."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rmqio.model import Message, MessageQueue
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.orders import QUEUES, WINDOW_MS, Bench
from tests.helpers.servers.jobs import Job
from tests.helpers.waiting import Inconclusive, repeated

RINGING = 20
"""The number of keys whose processing-time timer is to survive a failure."""


class KeptBench(Bench):
    """A `Bench` with user state: a window and a timer must each send every total once."""

    rings_at_s = 0

    def send_ringing(self, later_s: int) -> None:
        """Sends two orders for each of some new keys. Their timers fire `later_s` seconds from now."""
        self.rings_at_s = int(time.time()) + later_s
        for number in range(2 * RINGING):
            key, time_ms = f"r{number % RINGING}", self.begin_ms + 2 * self.sent
            body = {"key": key, "amount": self.sent, "time_ms": time_ms, "ring_s": self.rings_at_s}
            queue = MessageQueue(self.source, self.broker.name, self.sent % QUEUES)
            send_all(self.broker.broker, queue, [Message(json.dumps(body).encode())])
            for at in ((key, time_ms // WINDOW_MS * WINDOW_MS), (f"rung {key}", 0)):
                count, total = self.wanted.get(at, (0, 0))
                self.wanted[at] = count + 1, total + self.sent
            self.sent += 1

    def still_rings(self) -> None:
        """Raises an error if the timers have fired: then this machine was too slow to kill anything before."""
        if time.time() >= self.rings_at_s:
            raise Inconclusive("timers that were to survive have fired before the failure")

    def incoming(self) -> AbstractContextManager[None]:
        """Keeps sending orders inside the context, so that something is always in flight."""
        return repeated(lambda: self.send(200), 0.05)

    def end_windows(self) -> None:
        """Sends an order that is a minute later to each queue, where the watermark would wait for idle queues.

        The order itself is in a window that does not end.
        """
        for number in range(QUEUES):
            body = {"key": "end", "amount": 0, "time_ms": self.begin_ms + 2 * self.sent + 60_000}
            queue = MessageQueue(self.source, self.broker.name, number)
            send_all(self.broker.broker, queue, [Message(json.dumps(body).encode())])
            self.sent += 1

    def want_what_is_kept(self) -> None:
        """Adds the totals of state and timers to the wanted ones. Call this after everything has been sent."""
        told: dict[str, tuple[int, int]] = {}
        for (key, start_ms), (count, total) in sorted(self.wanted.items()):
            if start_ms:
                before = told.get(key, (0, 0))
                told[key] = before[0] + count, before[1] + total
                self.wanted[f"kept {key}", start_ms] = count, total
                self.wanted[f"told {key}", start_ms] = told[key]

    def job(
        self,
        *more: str,
        program: Sequence[str] = ("-m", "tests.helpers.pipelines.keeping"),
        runner: str = "SparkRunner",
    ) -> Job:
        return super().job(*more, program=program, runner=runner)
