"""The byte stream under a connection: a protocol, and the implementation over TCP.

Operating system errors become `TransportError` and `RequestTimeout` only here.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Protocol

from rmqio.addresses import parse_address
from rmqio.errors import RequestTimeout, TransportError


class Transport(Protocol):
    """A stream of bytes to one peer. One thread can read while another writes.

    Times are in milliseconds; 0 means do not wait. Every method except `close` and `abandon` raises `TransportError`.
    """

    def wait_connected(self, timeout_ms: float) -> bool:
        """Return True when connected, False when not within this time (call again). Raises when connecting fails."""
        ...

    @property
    def connects_by_reading(self) -> bool:
        """Whether connecting waits for bytes from the peer instead of for room to write."""
        ...

    def send_all(self, data: bytes, timeout_ms: float) -> None:
        """Write everything. Raises `RequestTimeout` when it takes longer; a part may have been written."""
        ...

    def send_parts(self, head: bytes, body: bytes, timeout_ms: float) -> None:
        """As `send_all`, for a frame in two parts: a large body need not be copied behind its head."""
        ...

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        """Return up to `max_bytes` available bytes; None: nothing arrived in time; `b""`: the peer closed."""
        ...

    def fileno(self) -> int:
        """The descriptor to wait on; -1 for a transport without one, which is polled with `recv`."""
        ...

    def shutdown(self) -> None:
        """End both directions, so that another thread's `recv` or `send_all` returns. Idempotent. Never raises."""
        ...

    def close(self) -> None:
        """Free the descriptor; no thread is inside another method any more. Idempotent. Never raises."""
        ...

    def abandon(self) -> None:
        """Free the descriptor of a socket inherited by a fork without ending the parent's connection. Never raises."""
        ...


Connect = Callable[[str, int], Transport]
"""Maps an address (`host:port`) and a timeout in milliseconds to a transport, which may still be connecting."""


def _mapped(doing: str, address: str, error: OSError) -> TransportError:
    kind = RequestTimeout if isinstance(error, TimeoutError) else TransportError
    return kind(f"{doing} {address}: {error}")


class TcpTransport:
    """A TCP connection over a non-blocking socket. It waits with poll(2), which has no limit of 1024 descriptors.

    The addresses of a host with several of them (`localhost`) are tried one by one.
    """

    def __init__(self, address: str, timeout_ms: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._connect_deadline = clock() + timeout_ms / 1000
        self._connect_timeout_ms = timeout_ms
        self._connected = False
        self._socket: socket.socket | None = None
        self._readable = select.poll()
        """Watches the socket for input. Only `recv` uses it: two threads must not wait on the same poll object."""
        host, port = parse_address(address)
        self._is_drained = True
        """Whether the last `recv` read everything. Waiting first then costs less than a read that mostly fails."""
        try:
            self._candidates = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            raise _mapped("cannot connect to", address, error) from error
        self._try_next(OSError("the host has no address"))

    def __repr__(self) -> str:
        state = "closed" if self._socket is None else "connected" if self._connected else "connecting"
        return f"<TcpTransport {self._address} {state}>"

    @property
    def connects_by_reading(self) -> bool:
        return False

    def wait_connected(self, timeout_ms: float) -> bool:
        deadline = self._clock() + timeout_ms / 1000
        while not self._connected:
            now = self._clock()
            remaining_ms = max(min(deadline, self._connect_deadline) - now, 0) * 1000
            if not self._wait_writable(remaining_ms):
                if self._clock() >= self._connect_deadline:
                    self._drop_socket()
                    raise RequestTimeout(
                        f"cannot connect to {self._address}: no answer within {self._connect_timeout_ms} ms"
                    )
                return False
            failure = self._connect_failure()
            if failure is None:
                self._connected = True
            else:
                self._try_next(failure)
        return True

    def send_all(self, data: bytes, timeout_ms: float) -> None:
        self._send(data, 0, self._clock() + timeout_ms / 1000)

    def send_parts(self, head: bytes, body: bytes, timeout_ms: float) -> None:
        deadline = self._clock() + timeout_ms / 1000
        sock = self._open()
        try:
            sent = sock.sendmsg((head, body))
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise _mapped("writing to", self._address, error) from error
        if sent < len(head):
            self._send(head, sent, deadline)
            sent = len(head)
        self._send(body, sent - len(head), deadline)

    def _send(self, data: bytes, sent: int, deadline: float) -> None:
        """Write the rest of the data, of which so much is sent."""
        sock = self._open()
        try:
            while sent < len(data):
                try:
                    sent += sock.send(memoryview(data)[sent:] if sent else data)
                except BlockingIOError:
                    if not self._wait_writable(max(deadline - self._clock(), 0) * 1000):
                        raise TimeoutError(f"{len(data) - sent} of {len(data)} bytes not taken in time") from None
        except OSError as error:
            raise _mapped("writing to", self._address, error) from error

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        sock = self._open()
        waits = self._is_drained and timeout_ms > 0
        try:
            if waits and not self._readable.poll(timeout_ms):
                return None
            data = sock.recv(max_bytes)
        except BlockingIOError:
            self._is_drained = True
            return None if waits or timeout_ms <= 0 else self.recv(max_bytes, timeout_ms)
        except OSError as error:
            raise _mapped("reading from", self._address, error) from error
        self._is_drained = len(data) < max_bytes
        return data

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def shutdown(self) -> None:
        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # never connected, or the peer closed first

    def close(self) -> None:
        self.shutdown()
        self._drop_socket()

    def abandon(self) -> None:
        self._drop_socket()

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise TransportError(f"connection to {self._address} is closed")
        return self._socket

    def _connect_failure(self) -> OSError | None:
        sock = self._open()
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return OSError(code, os.strerror(code))
        try:
            if sock.getsockname() == sock.getpeername():
                # While a broker on this machine is down, the system can assign its port to our own end. TCP then
                # connects us to ourselves, and the broker cannot take its port back.
                return ConnectionRefusedError(
                    errno.ECONNREFUSED, "no server listens there (the socket connected to itself)"
                )
        except OSError as error:
            return error
        return None

    def _try_next(self, failure: OSError) -> None:
        self._drop_socket()
        while self._candidates:
            family, kind, protocol, _, target = self._candidates.pop(0)
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setblocking(False)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                code = self._socket.connect_ex(target)
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
            except OSError as error:
                self._drop_socket()
                failure = error
            else:
                self._readable = select.poll()
                self._readable.register(self._socket, select.POLLIN)
                return
        raise TransportError(f"cannot connect to {self._address}: {failure}") from failure

    def _wait_writable(self, timeout_ms: float) -> bool:
        poll = select.poll()
        poll.register(self._open(), select.POLLOUT)
        return bool(poll.poll(timeout_ms))

    def _drop_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect_tcp(address: str, timeout_ms: int) -> Transport:
    """Begin a TCP connection; it is established when `wait_connected` returns True."""
    return TcpTransport(address, timeout_ms)
