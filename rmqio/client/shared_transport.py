"""A transport that several threads use and any of them can end."""

from __future__ import annotations

import threading

from rmqio.client.transport import Transport
from rmqio.errors import RequestTimeout, TransportError


class SharedTransport:
    """Ends at once but closes after the last user leaves: a descriptor closed under a reader can be reused meanwhile.

    One thread reads at a time (the session ensures it), and one writes at a time (this class ensures it).
    """

    def __init__(self, address: str, transport: Transport) -> None:
        self._address = address
        self._transport = transport
        self._users = 0
        self._is_ended = False
        self._make_locks()

    def fileno(self) -> int:
        """The descriptor to wait on, or -1."""
        return self._transport.fileno()

    @property
    def connects_by_reading(self) -> bool:
        """As `Transport.connects_by_reading`."""
        return self._transport.connects_by_reading

    def wait_connected(self, timeout_ms: float) -> bool:
        """As `Transport.wait_connected`."""
        self._enter()
        try:
            return self._transport.wait_connected(timeout_ms)
        finally:
            self._leave()

    def write(self, data: bytes, timeout_ms: float, body: bytes = b"") -> None:
        """Write everything, and a frame's body behind it, after the current writer.

        Raises `TransportError`; the caller must then call `end`.
        """
        self._enter()
        try:
            if not self._write_lock.acquire(timeout=timeout_ms / 1000):
                raise RequestTimeout(f"{self._address}: another write did not finish within {timeout_ms:.0f} ms")
            try:
                if body:
                    self._transport.send_parts(data, body, timeout_ms)
                else:
                    self._transport.send_all(data, timeout_ms)
            finally:
                self._write_lock.release()
        finally:
            self._leave()

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        """As `Transport.recv`."""
        self._enter()
        try:
            return self._transport.recv(max_bytes, timeout_ms)
        finally:
            self._leave()

    def end(self) -> None:
        """Make threads inside return soon, and let no others enter. Idempotent. Never raises or blocks."""
        with self._lock:
            self._is_ended = True
            in_use = self._users > 0
        if in_use:
            self._transport.shutdown()
        else:
            self._transport.close()

    def abandon(self) -> None:
        """Free a forked child's copy of the descriptor and leave the connection to the parent."""
        self._make_locks()  # another thread of the parent may have held them at the fork
        self._is_ended = True
        self._transport.abandon()

    def _enter(self) -> None:
        with self._lock:
            if self._is_ended:
                raise TransportError(f"connection to {self._address} is closed")
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or not self._is_ended:
                return
        self._transport.close()

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
