"""A connection to one address: opened on first use, reopened when it breaks, safe across forks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from rmqio.client.connections.session import Call, OnDone, Session
from rmqio.client.environment import Environment
from rmqio.errors import GoAway, LocalError, RequestTimeout
from rmqio.wire.command import Command
from rmqio.wire.templates.pull import Pull, PullTemplate
from rmqio.wire.templates.send import Request

_LOGGER = logging.getLogger("rmqio.client")

_adopting = threading.Lock()
"""Held while a connection adapts to a fork: one thread of the child at a time."""


def _after_fork() -> None:
    global _adopting
    _adopting = threading.Lock()  # a thread that does not exist in the child may have held it


os.register_at_fork(after_in_child=_after_fork)

IDLE_CHECK_S = 5.0
"""After this time without traffic, a socket is checked before use: servers close idle ones after 120 s."""


class Connection:
    """A connection to one address. Thread-safe.

    Each socket's life is a `Session`. Calls stay on the session that started them; new calls use the current session.

    Args:
      address: `host:port`.
      connect_timeout_ms: the timeout for connecting.
      write_timeout_ms: the timeout for handing a request to the operating system.
      environment: clock and transport.
    """

    def __init__(
        self,
        address: str,
        *,
        connect_timeout_ms: int = 3_000,
        write_timeout_ms: int = 3_000,
        environment: Environment | None = None,
    ) -> None:
        self.address = address
        self._connect_timeout_ms = connect_timeout_ms
        self._write_timeout_ms = write_timeout_ms
        self._environment = environment or Environment()
        self._session: Session | None = None
        self._retired: list[Session] = []
        """Sessions that the server asked us to leave, with outstanding answers that may have no waiter."""
        self._sessions_opened = 0
        self._requests_before = 0
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if self._is_closed else "idle" if session is None else session.state
        in_flight, made = (0, 0) if session is None else (session.calls_in_flight, session.requests_made)
        return (
            f"<Connection {self.address} {state}, in flight {in_flight}, "
            f"requests {self._requests_before + made}, opened {self._sessions_opened} times>"
        )

    @property
    def session(self) -> Session | None:
        """The current socket's session, if any."""
        return self._session

    def begin(self) -> bool:
        """Return whether requests can start without waiting; if not, begin to connect. Never blocks, except for DNS.

        Raises `TransportError` when the connection failed; the next call tries again.
        """
        self._check_process()
        if not self._lock.acquire(blocking=False):
            return False  # another thread is connecting
        try:
            return self._usable_session().connect(0)
        finally:
            self._lock.release()

    def start(self, request: Request, on_done: OnDone | None = None) -> Call:
        """Send a request without waiting for its answer. See `start_all`."""
        return self._open().start(request, self._write_timeout_ms, on_done)

    def start_all(self, requests: Sequence[Request], on_done: OnDone | None = None) -> list[Call]:
        """Send requests in one write, connecting first if necessary, without waiting for the answers.

        Sets the `opaque` of each `Command`. Raises `LocalError` for a frame that is too large or a closed connection,
        and `TransportError` when it cannot connect (nothing was sent) or the write fails (outcome unknown).
        `on_done(call)` runs in the thread that completes the call; see `Session.start_all`.
        """
        return self._open().start_all(requests, self._write_timeout_ms, on_done)

    def start_pulls(self, template: PullTemplate, pulls: Sequence[Pull]) -> list[Call]:
        """As `start_all`, for a reader's pulls; see `Session.start_pulls`."""
        return self._open().start_pulls(template, pulls, self._write_timeout_ms)

    def request(self, command: Command, timeout_ms: float) -> Command:
        """Send a request, wait for its answer and return it, whatever its code.

        On a GO_AWAY answer (the server is shutting down gracefully), it reconnects and sends the request once more.
        Raises the errors of `start_all` and `Call.result`.
        """
        answer = self.start(command).result(timeout_ms)
        if answer.code == GoAway.number:
            answer = self.start(command).result(timeout_ms)
        return answer

    def pump(self, timeout_ms: float) -> bool:
        """Read what is available and complete calls; return whether anything happened in this time. Never raises."""
        session = self._session
        return session.pump(timeout_ms) if session is not None else False

    def fileno(self) -> int:
        """The descriptor of the current socket to wait on, or -1."""
        return -1 if self._session is None else self._session.fileno()

    def close(self) -> None:
        """Close permanently; calls in flight fail. Idempotent."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._close_retired()

    def _open(self) -> Session:
        if self._pid != os.getpid():
            self._adopt_process()
        session = self._session
        if session is not None and session.is_ready(IDLE_CHECK_S):
            return session  # needs no lock: the lock's holder can only create another session or none
        if not self._lock.acquire(timeout=self._connect_timeout_ms / 1000):
            raise RequestTimeout(f"cannot connect to {self.address}: another thread is still trying")
        try:
            session = self._usable_session()
            if not session.is_connected and not session.connect(self._connect_timeout_ms):
                error = RequestTimeout(f"cannot connect to {self.address} within {self._connect_timeout_ms} ms")
                session.fail(error)
                raise error
            return session
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LocalError(f"the connection to {self.address} is closed")

    def _usable_session(self) -> Session:
        self._check_open()
        if self._retired:
            for retired in self._retired:
                _read_all(retired)
            self._retired = [retired for retired in self._retired if not retired.is_closed]
        session = self._session
        if session is not None and session.is_connected and self._is_old(session):
            _read_all(session)
        if session is not None and not session.is_closed and not session.is_retiring:
            return session
        if session is not None:
            self._requests_before += session.requests_made
            self._session = None
            if session.is_retiring:
                session.close_when_idle()
                self._retired.append(session)
        transport = self._environment.connect(self.address, self._connect_timeout_ms)
        environment = self._environment
        session = Session(
            self.address,
            transport,
            clock=environment.clock,
            on_pushed=environment.on_pushed,
            credentials=environment.credentials,
        )
        self._session = session
        try:
            self._check_open()
        except LocalError:  # closed meanwhile by a thread that did not take the lock and saw no session
            self._session = None
            session.close()
            self._close_retired()
            raise
        self._sessions_opened += 1
        _LOGGER.debug("connecting to %s", self.address)
        return session

    def _close_retired(self) -> None:
        retired, self._retired = self._retired, []
        for session in retired:
            session.close()

    def _is_old(self, session: Session) -> bool:
        return self._environment.clock() - session.last_used > IDLE_CHECK_S

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._adopt_process()

    def _adopt_process(self) -> None:
        """Start without the parent's socket in a forked child."""
        with _adopting:
            if self._pid == os.getpid():
                return  # another thread of the child was first
            session, self._session = self._session, None
            if session is not None:
                session.close()  # in a child this frees the descriptor and leaves the parent's connection open
            self._close_retired()
            self._lock = threading.Lock()  # another thread of the parent may have held it at the fork
            self._pid = os.getpid()  # last: from now on, threads that pass the check use the session they find


def _read_all(session: Session) -> None:
    """Read everything available: an end of stream can follow the last answers."""
    while session.pump(0) and not session.is_closed:
        pass
