"""A loopback TCP server in one thread: listeners, connections, timers, frames."""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rmqio.errors import WireError
from rmqio.wire.command import Command, FrameDecoder

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
            self._thread.join(10)
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
        done.wait(10)

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
