"""The byte stream under a connection: a protocol, and the implementations over TCP and TLS."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from rmqio.addresses import parse_address
from rmqio.errors import RequestTimeout, SetupError, TransportError
from rmqio.security import Tls, shown_variable


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


# TLS over another transport. It verifies certificates unless configured otherwise.

_LOGGER = logging.getLogger("rmqio.client")
_READ_BYTES = 128 * 1024
"""Encrypted bytes per read."""
_FLUSH_TIMEOUT_MS = 1_000
"""The timeout for the few bytes that TLS itself sends while we read."""


def context_of(tls: Tls) -> ssl.SSLContext:
    """Build the OpenSSL context. Raises `SetupError` for files that OpenSSL rejects."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"TLS: cannot read the certificate authorities in {tls.ca_file}: {_reason(error)}") from error
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)  # the system may allow older ones
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_file is not None:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=_password(tls))
        except (OSError, ssl.SSLError) as error:
            files = tls.certificate_file if tls.key_file is None else f"{tls.certificate_file} with {tls.key_file}"
            raise SetupError(f"TLS: cannot use the certificate in {files}: {_reason(error)}") from error
    return context


def _password(tls: Tls) -> Callable[[], str]:
    def password() -> str:  # called only for an encrypted key; OpenSSL would otherwise prompt on the terminal
        name = tls.key_password_variable
        if name is None or name not in os.environ:
            raise SetupError(
                f"TLS: the key in {tls.key_file or tls.certificate_file} has a password: "
                + (
                    "set key_password_variable"
                    if name is None
                    else f"{shown_variable(name)} is not set in the environment"
                )
            )
        return os.environ[name]

    return password


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def _hint(error: ssl.SSLError) -> str:
    """With TLS 1.3, a server reports only after the handshake that it requires a client certificate, or another one."""
    is_about_ours = "ALERT" in (error.reason or "") and "CERT" in (error.reason or "")
    return "; it requires a client certificate that it trusts, see Tls.certificate_file" if is_about_ours else ""


def tls_over(connect: Connect, tls: Tls) -> Connect:
    """Return a `Connect` that adds TLS to the connections of `connect`.

    Files are read for the first connection, and again when they change: short-lived certificates are replaced while a
    job runs. While new files cannot be used (they can be half written), the old ones stay in use.
    """
    # No lock, because a fork could leave it locked forever: at worst two threads both read the files.
    held: list[tuple[object, ssl.SSLContext]] = []

    def context() -> ssl.SSLContext:
        state = _state_of_files(tls)
        if not held:
            held.append((state, context_of(tls)))
        elif held[0][0] != state:
            try:
                held[0] = (state, context_of(tls))
            except SetupError as error:
                _LOGGER.warning("%s; keeping the previous files", error)
        return held[0][1]

    def connect_tls(address: str, timeout_ms: int) -> Transport:
        return TlsTransport(connect(address, timeout_ms), address, context(), tls, timeout_ms)

    return connect_tls


def _state_of_files(tls: Tls) -> tuple[object, ...]:
    state: list[object] = []
    for path in (tls.ca_file, tls.certificate_file, tls.key_file):
        if path is not None:
            try:
                found = os.stat(path)
            except OSError:
                state.append(None)
            else:
                state.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(state)


class TlsTransport:
    """TLS between the client and a transport. OpenSSL works in memory; no lock is held while bytes travel.

    One thread can read while another writes. OpenSSL's own connections do not allow that, hence the lock around it.
    """

    def __init__(
        self,
        transport: Transport,
        address: str,
        context: ssl.SSLContext,
        tls: Tls,
        timeout_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._address = address
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._deadline = clock() + timeout_ms / 1000
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = tls.server_name or parse_address(address)[0]
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        except (ValueError, TypeError) as error:
            raise SetupError(f"TLS: no certificate can be for {name!r}: {error}") from error
        self._name = name
        self._transport_is_connected = False
        self._is_connected = False
        self._lock = threading.Lock()
        """Guards OpenSSL. Never held while waiting."""
        self._sending = threading.Lock()
        """Guards output, so that it is sent in the order in which OpenSSL produced it."""

    def __repr__(self) -> str:
        state = self._tls.version() if self._is_connected else "connecting"
        return f"<TlsTransport {state} over {self._transport!r}>"

    @property
    def connects_by_reading(self) -> bool:
        return self._transport_is_connected and not self._is_connected

    def wait_connected(self, timeout_ms: float) -> bool:
        deadline = self._clock() + timeout_ms / 1000
        if not self._transport_is_connected:
            if not self._transport.wait_connected(timeout_ms):
                return False
            self._transport_is_connected = True
        while not self._is_connected:
            try:
                self._tls.do_handshake()
                self._is_connected = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                with suppress(TransportError):
                    self._flush()  # the alert, so that the peer knows the reason
                raise self._refused(error) from error
            try:
                self._flush()
                if not self._is_connected and not self._receive(deadline):
                    return False
            except TransportError as error:
                if isinstance(error.__cause__, ConnectionError):  # the peer closed before it read what we sent
                    raise self._ended() from error
                raise
        return True

    def send_all(self, data: bytes, timeout_ms: float) -> None:
        self.send_parts(data, b"", timeout_ms)

    def send_parts(self, head: bytes, body: bytes, timeout_ms: float) -> None:
        deadline = self._clock() + timeout_ms / 1000
        with self._sending:
            with self._lock:
                try:
                    self._tls.write(head)
                    if body:
                        self._tls.write(body)
                except ssl.SSLError as error:
                    raise TransportError(f"writing to {self._address}: {_reason(error)}") from error
            self._send_pending(deadline)

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        deadline = self._clock() + timeout_ms / 1000
        while True:
            data = self._decrypted()
            if data is not None:
                return data
            remaining_ms = max(deadline - self._clock(), 0) * 1000
            raw = self._transport.recv(min(max_bytes, _READ_BYTES), remaining_ms)
            if raw is None:
                return None
            with self._lock:
                self._incoming.write(raw) if raw else self._incoming.write_eof()

    def _decrypted(self) -> bytes | None:
        """Return all that can be decrypted: a thread that waits on the descriptor would not see what stays here.

        That is at most what `recv` took from the transport, plus a 16 KiB record that was incomplete before.
        """
        pieces: list[bytes] = []
        with self._lock:
            try:
                while piece := self._tls.read(_READ_BYTES):
                    pieces.append(piece)
                is_end = True
            except ssl.SSLWantReadError:
                is_end = False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                is_end = True  # closed without close_notify: our frames have lengths, so truncation is detected
            except ssl.SSLError as error:
                raise TransportError(f"reading from {self._address}: {_reason(error)}{_hint(error)}") from error
            owes = self._outgoing.pending > 0
        if owes:
            self._flush()
        if pieces:
            return b"".join(pieces)
        return b"" if is_end else None

    def _receive(self, deadline: float) -> bool:
        now = self._clock()
        remaining_ms = max(min(deadline, self._deadline) - now, 0) * 1000
        raw = self._transport.recv(_READ_BYTES, remaining_ms)
        if raw is None:
            if self._clock() >= self._deadline:
                raise RequestTimeout(
                    f"cannot connect to {self._address}: no TLS answer within {self._timeout_ms} ms. Does it speak TLS?"
                )
            return False
        if not raw:
            raise self._ended()
        self._incoming.write(raw)
        return True

    def _flush(self) -> None:
        """Send TLS's own pending output; a thread that is already sending takes it along."""
        if self._sending.acquire(blocking=False):
            try:
                self._send_pending(self._clock() + _FLUSH_TIMEOUT_MS / 1000)
            finally:
                self._sending.release()

    def _send_pending(self, deadline: float) -> None:
        while True:
            with self._lock:
                data = self._outgoing.read()
            if not data:
                return
            self._transport.send_all(data, max(deadline - self._clock(), 0) * 1000)

    def _ended(self) -> TransportError:
        return TransportError(
            f"cannot connect to {self._address}: the peer closed the connection when TLS began. Does it speak TLS, or "
            "does it require a client certificate (Tls.certificate_file)?"
        )

    def _refused(self, error: ssl.SSLError) -> TransportError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return UntrustedPeer(
                f"cannot connect to {self._address}: its certificate is not valid for {self._name!r}: "
                f"{error.verify_message}; see Tls.ca_file and Tls.server_name"
            )
        return TransportError(f"cannot connect to {self._address} with TLS: {_reason(error)}")

    def fileno(self) -> int:
        return self._transport.fileno()

    def shutdown(self) -> None:
        self._transport.shutdown()

    def close(self) -> None:
        self._transport.close()

    def abandon(self) -> None:
        self._transport.abandon()


class UntrustedPeer(TransportError):
    """The peer's certificate does not prove its identity. A retry would not help."""

    retriable = False
    stale_route = False
