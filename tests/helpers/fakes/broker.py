"""A name server and brokers on loopback ports that speak the remoting protocol and misbehave as told."""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from rmqio.errors import LocalError, WireError
from rmqio.testing.cluster import InMemoryCluster
from rmqio.wire.command import Command, CommandFlag, FrameDecoder, RequestCode, encode_frame
from tests.helpers.fakes.faults import Fault
from tests.helpers.fakes.protocol import BrokerHandlers, BrokerSettings, NameServerHandlers, should_hold
from tests.helpers.waiting import patience

# A loopback TCP server in one thread: listeners, connections, timers, frames.

_LOGGER = logging.getLogger(__name__)
_READ_BYTES = 1 << 18

OnCommand = Callable[["Connection", Command], None]


class Connection:
    """One accepted connection. Used by the server's thread only."""

    def __init__(self, server: LoopbackServer, sock: socket.socket, on_command: OnCommand, role: str) -> None:
        self.role = role
        self._server = server
        self._socket = sock
        self._on_command = on_command
        self._decoder = FrameDecoder()
        self._out = bytearray()
        self._closing = False
        self.is_open = True
        self.is_paused = False

    def send(self, data: bytes) -> None:
        """Write as much as possible now, and the rest when the socket accepts it."""
        if self.is_open:
            self._out += data
            self.flush()

    def close_when_written(self) -> None:
        self._closing = True
        self.flush()

    def read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._decoder.receive_data(data)
        try:
            while self.is_open and not self._closing and (command := self._decoder.next_command()) is not None:
                self._on_command(self, command)
        except WireError:
            self.close()  # as a server does: close the socket without an answer

    def flush(self) -> None:
        if not self.is_open or self.is_paused:
            return
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._closing and not self._out:
            self.close()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._server.watch(self._socket, events, self)

    def close(self) -> None:
        if self.is_open:
            self.resume()
            self.is_open = False
            self._server.forget(self._socket, self)
            self._socket.close()

    def pause(self) -> None:
        """Stop reading and writing."""
        if self.is_open and not self.is_paused:
            self.is_paused = True
            self._server.ignore(self._socket)

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._server.heed(self._socket, self)
            self.flush()


class LoopbackServer:
    """The server thread. Unless stated otherwise, any thread can call its methods; they act in the server thread."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._listeners: dict[str, socket.socket] = {}
        self._paused: dict[str, tuple[socket.socket, str, OnCommand]] = {}
        self._connections: set[Connection] = set()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close everything and end the thread. Idempotent."""
        if self._thread.is_alive():
            self.call(self._mark_stopped)
            self._thread.join(10 * patience())
        else:
            self._release()

    def listen(self, role: str, on_command: OnCommand, port: int = 0) -> int:
        """Accept connections for a role; return the port."""
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        listener.setblocking(False)
        self._listeners[role] = listener
        self.call(lambda: self._selector.register(listener, selectors.EVENT_READ, (listener, role, on_command)))
        return int(listener.getsockname()[1])

    def close_role(self, role: str) -> None:
        """Stop accepting for a role and close its connections; returns when done."""

        def act() -> None:
            self._resume(role)
            listener = self._listeners.pop(role, None)
            if listener is not None:
                self._selector.unregister(listener)
                listener.close()
            self._close_connections(role)

        self._do(act)

    def pause_role(self, role: str) -> None:
        """Stop serving a role, like a stopped process: the kernel accepts connections and bytes until `resume_role`."""

        def act() -> None:
            listener = self._listeners.get(role)
            if listener is not None and role not in self._paused:
                self._paused[role] = self._selector.unregister(listener).data
            for connection in self._connections:
                if connection.role == role:
                    connection.pause()

        self._do(act)

    def resume_role(self, role: str) -> None:
        """Serve a role again, starting with what arrived meanwhile."""
        self._do(lambda: self._resume(role))

    def _resume(self, role: str) -> None:
        data = self._paused.pop(role, None)
        if data is not None:
            self._selector.register(data[0], selectors.EVENT_READ, data)
        for connection in tuple(self._connections):
            if connection.role == role:
                connection.resume()

    def ignore(self, sock: socket.socket) -> None:
        """Ignore events of this socket until `heed`. Runs in the server's thread."""
        self._selector.unregister(sock)

    def heed(self, sock: socket.socket, connection: Connection) -> None:
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def close_connections(self, role: str | None = None) -> None:
        """Close the connections of a role, or all; returns when done."""
        self._do(lambda: self._close_connections(role))

    def push(self, role: str, data: bytes) -> int:
        """Write to every connection of a role, before anything sent from now on; return the number of connections."""
        connections = [connection for connection in tuple(self._connections) if connection.role == role]

        def act() -> None:
            for connection in connections:
                connection.send(data)

        self._do(act)
        return len(connections)

    def count_connections(self, role: str) -> int:
        return sum(connection.role == role for connection in tuple(self._connections))

    def call(self, action: Callable[[], object], delay_s: float = 0.0) -> None:
        """Run an action in the server's thread, soon or after a delay."""
        with self._lock:
            heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), action))
        self.wake()

    def _do(self, action: Callable[[], object]) -> None:
        """Run an action in the server's thread, and return when it is done."""
        if threading.current_thread() is self._thread:  # a fault scripted by a test
            action()
            return
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self.call(act)
        done.wait(10 * patience())

    def wake(self) -> None:
        with suppress(OSError):  # full: it will wake anyway; closed: nothing to wake
            self._wake_writer.send(b"!")

    def watch(self, sock: socket.socket, events: int, connection: Connection) -> None:
        if self._selector.get_key(sock).events != events:
            self._selector.modify(sock, events, connection)

    def forget(self, sock: socket.socket, connection: Connection) -> None:
        self._selector.unregister(sock)
        self._connections.discard(connection)

    def _run(self) -> None:
        try:
            while not self._stopped:
                for key, events in self._selector.select(self._next_timeout()):
                    self._serve(key.data, events)
                self._run_timers()
        except Exception:
            _LOGGER.exception("the fake broker's thread failed; its clients will see a closed connection")
            raise
        finally:
            self._release()

    def _serve(self, target: object, events: int) -> None:
        if target is None:
            with suppress(BlockingIOError):
                self._wake_reader.recv(4096)
        elif isinstance(target, Connection):
            if events & selectors.EVENT_WRITE:
                target.flush()
            if events & selectors.EVENT_READ and target.is_open:
                target.read()
        elif isinstance(target, tuple):
            self._accept(*target)

    def _accept(self, listener: socket.socket, role: str, on_command: OnCommand) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, sock, on_command, role)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _next_timeout(self) -> float | None:
        with self._lock:
            return max(self._timers[0][0] - time.monotonic(), 0.0) if self._timers else None

    def _run_timers(self) -> None:
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > time.monotonic():
                    return
                action = heapq.heappop(self._timers)[2]
            action()

    def _close_connections(self, role: str | None) -> None:
        for connection in tuple(self._connections):
            if role in (None, connection.role):
                connection.close()

    def _mark_stopped(self) -> None:
        self._stopped = True

    def _release(self) -> None:
        for connection in tuple(self._connections):
            connection.close()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()


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
