"""Orders for `keeping.py`, and the ledger of what its windows, its state and its timers must tell."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmqio.model import Message, MessageQueue
from tests.helpers.jobs import Job
from tests.helpers.orders import QUEUES, WINDOW_MS, Bench
from tests.helpers.raw_send import send_all

RINGING = 20
"""Keys of orders whose timer by the clock is to outlive a failure."""


class KeptBench(Bench):
    """As `Bench`, with what is kept in state: everything is to be told once by a window and once by a timer."""

    rings_at_s = 0

    def send_ringing(self, later_s: int) -> None:
        """Two orders of some keys of their own, whose timers fire so much later."""
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

    @contextmanager
    def incoming(self) -> Iterator[None]:
        """Meanwhile more and more are sent, so that something is on its way whatever happens."""
        is_enough = threading.Event()

        def send() -> None:
            while not is_enough.wait(0.05):
                self.send(200)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            is_enough.set()
            thread.join()

    def end_windows(self) -> None:
        """An order a minute later in each queue, itself in no window that ends: where idle queues are to wait."""
        for number in range(QUEUES):
            body = {"key": "end", "amount": 0, "time_ms": self.begin_ms + 2 * self.sent + 60_000}
            queue = MessageQueue(self.source, self.broker.name, number)
            send_all(self.broker.broker, queue, [Message(json.dumps(body).encode())])
            self.sent += 1

    def want_what_is_kept(self) -> None:
        """When all has been sent."""
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
        program: Sequence[str] = ("-m", "tests.helpers.keeping"),
        runner: str = "SparkRunner",
    ) -> Job:
        return super().job(*more, program=program, runner=runner)
