"""A fake broker without sockets and without real time: only waiting moves its clock, and that of its clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from rmqio.client.environment import Environment
from rmqio.client.transport import Connect
from rmqio.errors import TransportError
from rmqio.testing import InMemoryCluster, ManualClock
from rmqio.wire.command import Command
from tests.helpers.fakes.broker import FakeBroker, OnCommand
from tests.helpers.fakes.network import ScriptedTransport
from tests.helpers.fakes.protocol import BrokerSettings

_STEP_S = 0.01


def environment_on(clock: ManualClock, connect: Connect) -> Environment:
    """Of clients whose pauses are as long as the middle of what chance permits."""
    return Environment(connect, clock.monotonic, clock.sleep, random=lambda: 0.5, wall_clock=clock.time)


class UnpluggedBroker(FakeBroker):
    """Does to requests what a `FakeBroker` does. Its clients need its `environment`, and belong to one thread."""

    def __init__(
        self, *, brokers: Sequence[str] = ("broker-a",), vip: bool = False, settings: BrokerSettings | None = None
    ) -> None:
        self.clock = ManualClock()
        super().__init__(InMemoryCluster(clock=self.clock), brokers=brokers, vip=vip, settings=settings)
        self.server.stop()
        self.server = wire = _Wire(self.clock)  # type: ignore[assignment]
        self.connects = wire.connects
        self.environment = environment_on(self.clock, wire.connect)


def environment_of(broker: FakeBroker) -> Environment:
    return broker.environment if isinstance(broker, UnpluggedBroker) else Environment()


class _Wire:
    """In the place of a `LoopbackServer`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.connects: list[tuple[str, int]] = []
        """The address and timeout of each attempt to connect."""
        self.paused: set[str] = set()
        self._ports = itertools.count(10_000, 10)
        self._listeners: dict[str, tuple[str, OnCommand]] = {}
        self._lines: list[_Line] = []

    def connect(self, address: str, timeout_ms: int) -> ScriptedTransport:
        self.connects.append((address, timeout_ms))
        if address not in self._listeners:
            raise TransportError(f"{address} refused the connection")
        self._lines.append(_Line(self, *self._listeners[address]))
        return self._lines[-1]

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._listeners.clear()
        self.close_connections()

    def listen(self, role: str, on_command: OnCommand, port: int = 0) -> int:
        port = port or next(self._ports)
        self._listeners[f"127.0.0.1:{port}"] = role, on_command
        return port

    def close_role(self, role: str) -> None:
        self._listeners = {address: each for address, each in self._listeners.items() if each[0] != role}
        self.close_connections(role)
        self.paused.discard(role)

    def pause_role(self, role: str) -> None:
        self.paused.add(role)

    def resume_role(self, role: str) -> None:
        self.paused.discard(role)
        for line in self._lines_of(role):
            line.resume()

    def close_connections(self, role: str | None = None) -> None:
        for line in self._lines_of(role):
            line.close_when_written()

    def push(self, role: str, data: bytes) -> int:
        for line in self._lines_of(role):
            line.send(data)
        return self.count_connections(role)

    def count_connections(self, role: str) -> int:
        return len(self._lines_of(role))

    def call(self, action: Callable[[], object], delay_s: float = 0.0) -> None:
        self.clock.call_later(delay_s, action) if delay_s else action()

    def _lines_of(self, role: str | None) -> list[_Line]:
        return [line for line in self._lines if role in (None, line.role) and not line.has_ended]


class _Line(ScriptedTransport):
    """Both ends of a connection: the client's transport, and the server's `Connection`."""

    def __init__(self, wire: _Wire, role: str, on_command: OnCommand) -> None:
        super().__init__(responder=self._arrived, clock=wire.clock)
        self.role = role
        self._wire, self._on_command = wire, on_command
        self._kept: list[Callable[[], object]] = []
        """What happens when its broker is no longer paused."""
        self._server_closed = False

    @property
    def has_ended(self) -> bool:
        return self._server_closed or self.is_closed

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        """Returns at the time at which something arrives, as a socket does."""
        end = self._wire.clock.monotonic() + timeout_ms / 1000
        while not (self._script or self.is_closed) and (left := end - self._wire.clock.monotonic()) > 0:
            self._wire.clock.sleep(min(left, _STEP_S))
        return super().recv(max_bytes, 0)

    def send(self, data: bytes) -> None:
        self._do(lambda: self.feed(data))

    def close_when_written(self) -> None:
        self._server_closed = True
        self.feed(b"")

    def resume(self) -> None:
        kept, self._kept = self._kept, []
        for each in kept:
            self._do(each)

    def _arrived(self, request: Command) -> Sequence[Command]:
        self._do(lambda: self._on_command(self, request))  # type: ignore[arg-type]
        return ()

    def _do(self, action: Callable[[], object]) -> None:
        if self.role in self._wire.paused:
            self._kept.append(action)
        elif not self._server_closed:
            action()
