"""A name server and brokers on loopback ports that speak the remoting protocol and misbehave as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from rmqio.errors import LocalError
from rmqio.testing._protocol.handlers import BrokerHandlers, NameServerHandlers
from rmqio.testing._protocol.pull import should_hold
from rmqio.testing._protocol.server import Connection, LoopbackServer
from rmqio.testing._protocol.settings import BrokerSettings
from rmqio.testing.cluster import InMemoryCluster
from rmqio.testing.faults import Fault
from rmqio.wire.command import Command, CommandFlag, RequestCode, encode_frame

NAME_SERVER = "name server"
_VIP = " (VIP)"


@dataclass(slots=True)
class _Rule:
    code: int
    fault: Fault
    times: int | None
    role: str | None


class _Exchange:
    """One request in progress; see `faults.Exchange`."""

    def __init__(self, broker: FakeBroker, connection: Connection, request: Command) -> None:
        self._broker = broker
        self._connection = connection
        self.request = request

    def handle(self) -> Command:
        return self._broker.execute(self._connection.role, self.request)

    def send(self, answer: Command | bytes) -> None:
        if isinstance(answer, bytes):
            self._connection.send(answer)
        elif not self.request.is_oneway:
            flag = answer.flag | CommandFlag.RESPONSE
            self._connection.send(encode_frame(replace(answer, opaque=self.request.opaque, flag=flag)))

    def close(self) -> None:
        self._connection.close_when_written()

    def later(self, delay_ms: float, action: Callable[[], object]) -> None:
        self._broker.server.call(action, delay_ms / 1000)


class _HeldPull:
    """A long poll: answered when a message arrives, at the latest after its time."""

    def __init__(self, exchange: _Exchange) -> None:
        self.exchange = exchange
        self.is_done = False

    def try_answer(self, *, is_late: bool = False) -> None:
        if self.is_done:
            return
        answer = self.exchange.handle()
        if is_late or not should_hold(self.exchange.request, answer):
            self.is_done = True
            self.exchange.send(answer)


class FakeBroker:
    """A cluster behind real sockets on 127.0.0.1, in one thread of this process. A context manager.

    The name server and each broker have their own port. Unlike a real broker it ends a long poll on time (a real one
    checks every five seconds).

    Args:
      cluster: the cluster to serve; None: a new one, available as `cluster`.
      brokers: names of the brokers.
      settings: what the brokers permit.
      vip: whether to listen also on each broker's port minus 2, which serves sends but no pulls.
    """

    def __init__(
        self,
        cluster: InMemoryCluster | None = None,
        *,
        brokers: Sequence[str] = ("broker-a",),
        vip: bool = False,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.cluster = cluster if cluster is not None else InMemoryCluster()
        self.server = LoopbackServer("rmqio-fake-broker")
        self.requests: list[tuple[str, Command]] = []
        """All requests in order: the receiver (a broker's name or `NAME_SERVER`) and the request."""
        self.client_answers: list[Command] = []
        """Clients' answers to pushed requests."""
        self._names = tuple(brokers)
        self._vip = vip
        self._settings = settings or BrokerSettings()
        self._ports: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Command], Command]] = {}
        self._rules: list[_Rule] = []
        self._held: list[_HeldPull] = []
        self._lock = threading.Lock()
        self._wake_pending = False
        self._alarm_is_set = False

    def __repr__(self) -> str:
        return f"<FakeBroker {self._ports}, {len(self.requests)} requests>"

    def __enter__(self) -> Self:
        self._handlers[NAME_SERVER] = NameServerHandlers(self.cluster, self._addresses, self._settings)
        self.server.start()
        try:
            self._ports[NAME_SERVER] = self.server.listen(NAME_SERVER, self._on_command)
            for name in self._names:
                self._open(name)
        except BaseException:
            self.server.stop()
            raise
        self.cluster.listeners.append(self._on_change)
        return self

    def __exit__(self, *_: object) -> None:
        if self._on_change in self.cluster.listeners:
            self.cluster.listeners.remove(self._on_change)
        self.server.stop()

    # ---- what a test does --------------------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """The name server's `host:port`."""
        return f"127.0.0.1:{self._ports[NAME_SERVER]}"

    def address(self, broker: str = "broker-a") -> str:
        """Return the `host:port` of a broker, or of the name server (`NAME_SERVER`)."""
        return f"127.0.0.1:{self._ports[broker]}"

    def on(self, code: RequestCode | int, fault: Fault, times: int | None = 1, *, broker: str | None = None) -> None:
        """Apply a fault to the next requests with this code (`times=None`: to all), at one broker only if named.

        Rules are used up in the order in which they were added.
        """
        if broker is not None and broker not in (*self._names, NAME_SERVER):
            raise LocalError(f"no broker {broker!r}; use one of {', '.join(self._names)}")
        with self._lock:
            self._rules.append(_Rule(int(code), fault, times, broker))

    def heal(self) -> None:
        """Forget all planned faults."""
        with self._lock:
            self._rules.clear()

    def count(self, code: RequestCode | int, broker: str | None = None) -> int:
        """Return how many requests with a code arrived, at one broker or at all."""
        return sum(
            request.code == code and broker in (None, role.removesuffix(_VIP)) for role, request in tuple(self.requests)
        )

    def stop_broker(self, broker: str = "broker-a") -> None:
        """Act as if the broker's process died: connections break, new ones are refused. The route still lists it."""
        for role in (broker, broker + _VIP):
            self.server.close_role(role)

    def start_broker(self, broker: str = "broker-a") -> None:
        """Listen again on the same port."""
        self._open(broker)

    def pause_broker(self, broker: str = "broker-a") -> None:
        """Act as under SIGSTOP: connections and requests are accepted, nothing is answered. Also for `NAME_SERVER`."""
        self.server.pause_role(broker)

    def resume_broker(self, broker: str = "broker-a") -> None:
        """Act as after SIGCONT: requests that arrived meanwhile are answered now."""
        self.server.resume_role(broker)

    def drop_connections(self, broker: str | None = None) -> None:
        """Break the connections to one broker, or all."""
        self.server.close_connections(broker)

    def push(self, command: Command, broker: str = "broker-a") -> int:
        """Send a server's request on each connection to a broker; return the number of connections."""
        return self.server.push(broker, encode_frame(command))

    def connections(self, broker: str = "broker-a") -> int:
        """Return the current number of connections to a broker."""
        return self.server.count_connections(broker)

    # ---- how it works ------------------------------------------------------------------------------------------------

    def execute(self, role: str, request: Command) -> Command:
        """Return the proper answer. Called in the server's thread."""
        if role.endswith(_VIP) and request.code == RequestCode.PULL_MESSAGE:
            return Command(3, remark="the VIP channel serves no pulls")
        return self._handlers[role.removesuffix(_VIP)](request)

    def _addresses(self) -> dict[str, str]:
        return {name: self.address(name) for name in self._names if name in self._ports}

    def _open(self, name: str) -> None:
        for _ in range(50):
            port = self.server.listen(name, self._on_command, self._ports.get(name, 0))
            try:
                if self._vip:
                    self.server.listen(name + _VIP, self._on_command, port - 2)
            except OSError:  # taken: try another pair
                self.server.close_role(name)
                continue
            self._ports[name] = port
            self._handlers[name] = BrokerHandlers(self.cluster, name, port, self._settings)
            return
        raise LocalError("no free pair of ports for a VIP channel")

    def _on_command(self, connection: Connection, command: Command) -> None:
        if command.is_response:
            self.client_answers.append(command)
            return
        self.requests.append((connection.role, command))
        exchange = _Exchange(self, connection, command)
        fault = self._take_fault(connection.role.removesuffix(_VIP), command.code)
        if fault is not None:
            fault(exchange)
            return
        answer = exchange.handle()
        hold_ms = should_hold(command, answer) if command.code == RequestCode.PULL_MESSAGE else 0
        if hold_ms > 0:
            held = _HeldPull(exchange)
            self._held.append(held)
            self._on_change()
            exchange.later(hold_ms, lambda: held.try_answer(is_late=True))
        else:
            exchange.send(answer)

    def _take_fault(self, role: str, code: int) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.code == code and rule.role in (None, role):
                    if rule.times is not None:
                        rule.times -= 1
                        if rule.times <= 0:
                            self._rules.remove(rule)
                    return rule.fault
        return None

    def _on_change(self) -> None:
        # Called for every stored message: one check of the held pulls is enough for many.
        if self._held and not self._wake_pending:
            self._wake_pending = True
            self.server.call(self._look_at_held)

    def _look_at_held(self) -> None:
        self._wake_pending = False
        with self.cluster.changed:
            self.cluster.deliver_due()
            for held in tuple(self._held):
                held.try_answer()
            self._held = [held for held in self._held if not held.is_done]
            due_s = self.cluster.until_due_s()
            if self._held and due_s is not None and not self._alarm_is_set:
                self._alarm_is_set = True
                self.server.call(self._on_alarm, max(due_s, 0.001))

    def _on_alarm(self) -> None:
        self._alarm_is_set = False
        self._look_at_held()
