"""Two brokers, and a client that asks for the end offsets of their queues."""

from __future__ import annotations

from typing import Any

from rmqio.client.client import RemotingQueueClient
from rmqio.client.environment import Environment
from rmqio.errors import BrokerSilent, RequestTimeout, RmqioError
from rmqio.interfaces import OffsetQuery
from rmqio.options import ClientOptions
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes.broker import FakeBroker

A, B = "broker-a", "broker-b"


class Setup:
    """Two brokers with two queues each, and a client."""

    def __init__(
        self, broker: FakeBroker, environment: Environment | None = None, deadline_ms: int = 15_000, **options: Any
    ) -> None:
        self.broker = broker
        self.queues = broker.cluster.create_topic("t", 2, (A, B))
        for queue in self.queues:
            for _ in range(queue.queue_id + (10 if queue.broker == B else 1)):
                broker.cluster.append("t", b"x", queue_id=queue.queue_id, broker=queue.broker)
        self.options = ClientOptions(broker.name_server, request_timeout_ms=deadline_ms, retry_backoff_ms=10, **options)
        self.environment = environment or Environment()
        self.client = RemotingQueueClient(self.options, self.environment)

    def ends(self) -> list[int | RmqioError | None]:
        return list(self.client.look_up([OffsetQuery(queue, "max") for queue in self.queues]))

    def kinds(self) -> list[object]:
        """Returns the numbers, and the classes of the errors."""
        return [end if isinstance(end, int) else type(end) for end in self.ends()]


class UnpluggedSetup(Setup):
    """Without sockets and real time: for what happens when a broker does not answer."""

    def __init__(self, broker: UnpluggedBroker) -> None:
        super().__init__(broker, broker.environment, deadline_ms=900)  # a probe ends before the next
        self.clock = broker.clock

    def until_answered(self, wanted: list[object]) -> int:
        """Looks once a second until everything is answered. Returns the number of seconds."""
        for count in range(1, 10):
            self.clock.advance(1)
            if self.kinds() == wanted:
                return count
        raise AssertionError(f"{self.ends()}")


ALL = [1, 2, 10, 11]
B_TIMED_OUT = [1, 2, RequestTimeout, RequestTimeout]
B_SILENT = [1, 2, BrokerSilent, BrokerSilent]
