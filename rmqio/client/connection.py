"""Connections by address: opened on first use, signed and over TLS as options require, safe across forks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rmqio.client.environment import Environment
from rmqio.client.session import Call, Session
from rmqio.client.transport import context_of, tls_over
from rmqio.errors import GoAway, LocalError, RequestTimeout, SetupError
from rmqio.options import ClientOptions
from rmqio.security import Credentials, CredentialsError, CredentialsSource, Security
from rmqio.wire.command import Command
from rmqio.wire.templates import Pull, PullTemplate, Request

# Adds request signing and TLS to a client's environment, as its options require.

REFRESH_S: Final = 5.0
"""Maximum age of credentials before their source is queried again: a file or function can return new ones."""

_said: set[str] = set()
"""Has no lock, because a fork could leave it locked forever: at worst two threads log the same warning."""


class Signer:
    """Returns the current credentials. Thread-safe: two threads can query the source at once."""

    def __init__(self, source: CredentialsSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._held: tuple[float, Credentials] | None = None
        self._is_failing = False

    def __call__(self) -> Credentials:
        """Raise `CredentialsError`, unless there were credentials before: those are kept, with a warning.

        A file can be read while it is half written, and a vault can be temporarily unavailable. If the old credentials
        are no longer valid, brokers report it.
        """
        held = self._held
        now = self._clock()
        if held is None or now - held[0] > REFRESH_S:
            try:
                found = self._source.get()
            except Exception as failure:  # noqa: BLE001  # a source may be a user's own
                error = _told(failure)
                if held is None:
                    raise error from None
                found = held[1]
                if not self._is_failing:
                    _LOGGER.warning("keeping the previous credentials: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False
            held = self._held = (now, found)
        return held[1]


def _told(failure: Exception) -> CredentialsError:
    """Omit the text of third-party errors: it can quote the request and the secret used for it."""
    if isinstance(failure, CredentialsError):
        return failure
    return CredentialsError(f"the source of credentials failed with {type(failure).__name__}")


def require_usable(security: Security) -> None:
    """Ask for the credentials and read the files of TLS: before anything slow starts, or a server is asked.

    Raises `SetupError`, and what a function for credentials raises.
    """
    if security.source is not None:
        security.source.get()
    if security.tls is not None:
        context_of(security.tls)


def secured(environment: Environment, security: Security) -> Environment:
    """Return an environment with secured connections. Warns of unsafe settings once per process."""
    source, tls = security.source, security.tls
    if source is not None:
        environment = replace(environment, credentials=Signer(source, environment.clock))
        if tls is None:
            _warn("credentials are used without TLS: an eavesdropper can replay your requests and read messages")
    if tls is not None:
        if tls.insecure:
            _warn(
                "TLS is insecure: certificates are not verified, so anyone on the network path can read and change "
                "everything"
            )
        environment = replace(environment, connect=tls_over(environment.connect, tls))
    return environment


def _warn(what: str) -> None:
    if what not in _said:
        _said.add(what)
        _LOGGER.warning("%s", what)


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

    def start(self, request: Request) -> Call:
        """Send a request without waiting for its answer. See `start_all`."""
        return self._open().start(request, self._write_timeout_ms)

    def start_all(self, requests: Sequence[Request]) -> list[Call]:
        """Send requests in one write, connecting first if necessary, without waiting for the answers.

        Sets the `opaque` of each `Command`. Raises `LocalError` for a frame that is too large or a closed connection,
        and `TransportError` when it cannot connect (nothing was sent) or the write fails (outcome unknown).
        """
        return self._open().start_all(requests, self._write_timeout_ms)

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


# Connections by address, created on first use.


class ConnectionPool:
    """One `Connection` per address. Thread-safe. A forked child starts with the same addresses and no sockets."""

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = secured(environment or Environment(), options.security)
        self._connections: dict[str, Connection] = {}
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<ConnectionPool {state}, {list(self._connections.values())}>"

    def connection(self, address: str) -> Connection:
        """Return the connection to an address from a route or of a name server. A new connection is not opened yet.

        Raises `LocalError` when the pool is closed, and `SetupError` when the address is not an allowed one.
        """
        known = self._connections.get(address)  # empty after `close`
        if known is not None:
            return known
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self._is_closed:
                raise LocalError("the client is closed")
            found = self._connections.get(address)
            if found is None:
                found = Connection(
                    self._target(address),
                    connect_timeout_ms=self._options.connect_timeout_ms,
                    write_timeout_ms=self._options.request_timeout_ms,
                    environment=self._environment,
                )
                self._connections[address] = found
            return found

    def _target(self, address: str) -> str:
        """Return the address to connect to."""
        security = self._options.security
        try:
            is_allowed = address in self._options.name_servers or security.allows(address)
            target = security.mapped(address)
        except LocalError as error:
            raise SetupError(
                f"a route leads to {address!r}, which is not an address: check the name server that returned it"
            ) from error
        if not is_allowed:
            raise SetupError(
                f"a route leads to {address}, which is not one of the allowed addresses "
                f"({', '.join(security.allowed_addresses)}): allow it, or check the name server that returned it"
            )
        return target

    def close(self) -> None:
        """Close every connection; calls in flight fail. Idempotent."""
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            self._is_closed = True
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
