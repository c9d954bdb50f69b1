"""An unplugged broker that tells what clients with given options write, and when."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import SystemBusy
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.fakes import faults
from tests.helpers.fakes.protocol import BrokerSettings

NAME_SERVER, BROKER, VIP = "127.0.0.1:10000", "127.0.0.1:10010", "127.0.0.1:10008"


class ScriptedWire(UnpluggedBroker):
    """A name server and one broker. It needs no `with`, since there is nothing to close.

    Args:
      options: of the clients.
      busy: request codes that are answered with SYSTEM_BUSY, the first `busy_times` of each.
      silent: request codes that nobody answers.
      settings: what the broker permits.
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        busy: Sequence[RequestCode] = (),
        busy_times: int | None = None,
        silent: Sequence[RequestCode] = (),
        settings: BrokerSettings | None = None,
    ) -> None:
        super().__init__(vip=True, settings=settings)
        self.options = options
        for code in busy:
            self.on(code, faults.answer(SystemBusy.number, "[TIMEOUT_CLEAN_QUEUE]"), times=busy_times)
        for code in silent:
            self.on(code, faults.drop(), times=None)
        self._before_waiting: list[tuple[str, Command]] = []
        self.clock.call_later(0.001, lambda: self._before_waiting.extend(self.requests))
        self.__enter__()

    def client(self) -> RemotingQueueClient:
        return RemotingQueueClient(self.options, self.environment)

    def producer(self, group: str = "g") -> RemotingProducer:
        return RemotingProducer(self.options, group, environment=self.environment)

    def topic(self, messages: int = 0, name: str = "t", queues: int = 1) -> MessageQueue:
        """Creates a topic and returns its first queue, which holds `messages` messages."""
        first = self.cluster.create_topic(name, queues)[0]
        for number in range(messages):
            self.cluster.append(name, b"%d" % number)
        return first

    def got(self, *codes: RequestCode) -> list[Command]:
        return [request for _, request in self.requests if request.code in codes]

    def at_once(self, *codes: RequestCode) -> int:
        """Returns how many requests with these codes were written before a client first had to wait."""
        return sum(request.code in codes for _, request in self._before_waiting)

    @property
    def elapsed_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)
