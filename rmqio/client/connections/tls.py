"""TLS over another transport. It verifies certificates unless configured otherwise."""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rmqio.addresses import parse_address
from rmqio.client.connections.transport import Connect, Transport
from rmqio.errors import RequestTimeout, SetupError, TransportError
from rmqio.security import Tls, shown_variable

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
