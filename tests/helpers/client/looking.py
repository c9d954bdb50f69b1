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

DEADLINE_S = 0.6
A, B = "broker-a", "broker-b"


class Setup:
    """Two brokers with two queues each, a client, and a clock that can be advanced."""

    def __init__(self, broker: FakeBroker, **options: Any) -> None:
        self.broker = broker
        self.skipped_s = 0.0
        self.queues = broker.cluster.create_topic("t", 2, (A, B))
        for queue in self.queues:
            for _ in range(queue.queue_id + (10 if queue.broker == B else 1)):
                broker.cluster.append("t", b"x", queue_id=queue.queue_id, broker=queue.broker)
        self.options = ClientOptions(
            broker.name_server, **{"request_timeout_ms": int(DEADLINE_S * 1000), "retry_backoff_ms": 10} | options
        )
        self.environment = Environment(clock=lambda: time.monotonic() + self.skipped_s)
        self.client = RemotingQueueClient(self.options, self.environment)

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


ALL = [1, 2, 10, 11]
B_TIMED_OUT = [1, 2, RequestTimeout, RequestTimeout]
B_SILENT = [1, 2, BrokerSilent, BrokerSilent]
