"""Two brokers over sockets, and a client that asks for the end offsets of their queues."""

from __future__ import annotations

import time
from typing import Any

from rmqio.client.client import RemotingQueueClient
from rmqio.client.environment import Environment
from rmqio.errors import BrokerSilent, RequestTimeout, RmqioError
from rmqio.interfaces import OffsetQuery
from rmqio.options import ClientOptions
from rmqio.testing import FakeBroker
from tests.helpers.waiting import until

DEADLINE_S = 1.5
"""For tests in which a broker does not answer: they wait that long, and the other broker has to answer by then."""
A, B = "broker-a", "broker-b"


class Setup:
    """Two brokers with two queues each, a client, and a clock that can be advanced."""

    def __init__(self, broker: FakeBroker, deadline_s: float = 15.0, **options: Any) -> None:
        self.broker = broker
        self.skipped_s = 0.0
        self.stopped_at: float | None = None
        self.queues = broker.cluster.create_topic("t", 2, (A, B))
        for queue in self.queues:
            for _ in range(queue.queue_id + (10 if queue.broker == B else 1)):
                broker.cluster.append("t", b"x", queue_id=queue.queue_id, broker=queue.broker)
        self.options = ClientOptions(
            broker.name_server, request_timeout_ms=int(deadline_s * 1000), retry_backoff_ms=10, **options
        )
        self.environment = Environment(clock=self.now)
        self.client = RemotingQueueClient(self.options, self.environment)

    def now(self) -> float:
        return (time.monotonic() if self.stopped_at is None else self.stopped_at) + self.skipped_s

    def stop_clock(self) -> None:
        """From here on only `skipped_s` advances it, however long a busy machine takes."""
        self.stopped_at = time.monotonic()

    def ends(self) -> list[int | RmqioError | None]:
        return list(self.client.look_up([OffsetQuery(queue, "max") for queue in self.queues]))

    def kinds(self) -> list[object]:
        """Returns the numbers, and the classes of the errors."""
        return [end if isinstance(end, int) else type(end) for end in self.ends()]

    def until_answered(self, wanted: list[object]) -> int:
        """Looks once a second until everything is answered. Returns the number of seconds."""
        for count in range(1, 10):
            self.skipped_s += 1.0
            if self.kinds() == wanted:
                return count
            time.sleep(0.02)  # an answer takes real time, whatever the client's clock says
        raise AssertionError(f"{self.ends()}")

    def soon(self, wanted: list[object]) -> bool:
        """Looks until the answer is this: a probe's answer takes real time."""
        return until(lambda: self.kinds() == wanted, f"{wanted}", details=self.kinds, pause_s=0.02)


ALL = [1, 2, 10, 11]
B_TIMED_OUT = [1, 2, RequestTimeout, RequestTimeout]
B_SILENT = [1, 2, BrokerSilent, BrokerSilent]
