"""A cluster behind scripted transports that records what a client writes, and when. Only waiting moves its clock."""

from __future__ import annotations

from typing import NamedTuple

from rmqio.client.client import RemotingQueueClient
from rmqio.client.environment import Environment
from rmqio.client.sending.producer import RemotingProducer
from rmqio.errors import SystemBusy
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import BrokerSettings, InMemoryCluster, ManualClock, ScriptedTransport
from rmqio.testing._protocol.handlers import BrokerHandlers, NameServerHandlers
from rmqio.testing._protocol.pull import should_hold
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

NAME_SERVER, BROKER = "ns:9876", "a:10911"


class Sent(NamedTuple):
    """A request, its receiver, and its time in seconds of the clock."""

    address: str
    at: float
    request: Command


class ScriptedWire:
    """One broker, `broker-a`, and any number of name servers, over an `InMemoryCluster`.

    Args:
      options: of the clients.
      silent: request codes that nobody answers.
      busy: request codes that are answered with SYSTEM_BUSY.
      settings: what the broker permits.
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        silent: tuple[RequestCode, ...] = (),
        busy: tuple[RequestCode, ...] = (),
        settings: BrokerSettings | None = None,
    ) -> None:
        self.options = options
        self.clock = ManualClock()
        self.cluster = InMemoryCluster(clock=self.clock)
        self.connects: list[tuple[str, int]] = []
        """The address and timeout of each connection."""
        self.sent: list[Sent] = []
        settings = settings or BrokerSettings()
        self._silent, self._busy = frozenset(silent), frozenset(busy)
        self._name_server = NameServerHandlers(self.cluster, lambda: {"broker-a": BROKER}, settings)
        self._broker = BrokerHandlers(self.cluster, "broker-a", 10911, settings)
        self.environment = Environment(
            connect=self._connect,
            clock=self.clock.monotonic,
            sleep=self.clock.sleep,
            random=lambda: 0.5,
            wall_clock=self.clock.time,
        )

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

    def requests(self, *codes: RequestCode) -> list[Command]:
        return [each.request for each in self.sent if each.request.code in codes]

    def at_once(self, *codes: RequestCode) -> int:
        """Returns how many requests with these codes were written before the client first had to wait."""
        times = [each.at for each in self.sent if each.request.code in codes]
        return times.count(times[0])

    @property
    def elapsed_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def _connect(self, address: str, timeout_ms: int) -> ScriptedTransport:
        self.connects.append((address, timeout_ms))
        handlers = self._name_server if address.endswith(":9876") else self._broker

        def respond(request: Command) -> list[Command | bytes]:
            self.sent.append(Sent(address, self.clock.monotonic(), request))
            if request.code in self._silent:
                return []
            if request.code in self._busy:
                return [Command(SystemBusy.number, remark="[TIMEOUT_CLEAN_QUEUE]")]
            answer = handlers(request)
            held = request.code == RequestCode.PULL_MESSAGE and should_hold(request, answer)
            return [] if held or request.is_oneway else [answer]

        return ScriptedTransport(responder=respond, clock=self.clock)
