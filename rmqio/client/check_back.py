"""Keeps a producer group registered at brokers, and receives their checks of open transactions."""

from __future__ import annotations

import logging
import select
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable

from rmqio.client.connection import Connection, ConnectionPool
from rmqio.client.environment import Environment, client_id
from rmqio.client.session import Call, Session, Wakeup
from rmqio.errors import GoAway, LocalError, RmqioError, broker_error
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode, ResponseCode

_LOGGER = logging.getLogger("rmqio.client")

_REMEMBERED_S = 120.0
"""How long the end of a transaction is remembered: several rounds of a broker's checks, one every 30 s."""
_ANOTHER_READS_MS = 10.0
"""Used while another thread reads the socket: check again after this time at the latest."""


class KnownConnections(ConnectionPool):
    """A pool that also finds connections by the address they lead to: checks arrive from that address.

    Routes can know the broker by another address (`Security.address_map`) or no longer list it.
    """

    def __init__(self, options: ClientOptions, environment: Environment) -> None:
        super().__init__(options, environment)
        self._leading: dict[str, Connection] = {}

    def connection(self, address: str) -> Connection:
        found = super().connection(address)
        # Two addresses mapped to one share a connection, for checks and the answers to them.
        return self._leading.setdefault(found.address, found)

    def leading_to(self, address: str) -> Connection:
        """Return the connection with this `Connection.address`. Raises `LocalError` when there is none."""
        try:
            return self._leading[address]
        except KeyError:
            raise LocalError(f"there is no connection to {address}") from None


class Inbox:
    """The checks that brokers have pushed, in order. Thread-safe: any thread may read a socket."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self._checks: deque[tuple[str, Command]] = deque()

    def take_over(self, address: str, command: Command) -> bool:
        """Keep a check for the thread that answers them; an `Environment.on_pushed`."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        self._checks.append((address, command))
        self.wakeup.wake()
        return True

    def next(self) -> tuple[str, Command] | None:
        """Return the oldest check and the address that it came from."""
        return self._checks.popleft() if self._checks else None


class Ended:
    """The transactions whose end brokers have recently confirmed. Thread-safe.

    A broker records an end up to 3 s late (transactionOpBatchInterval), and can check the transaction meanwhile. That
    check is about a copy of the half message: committing the copy too would create a second message. This holds only
    while the broker is the same process: a broker that crashed may have lost the end but not the half message. So an
    end counts only on the connection that confirmed it.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._ended: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, message_id: str, session: Session) -> None:
        """Record that the broker has confirmed the end."""
        now = self._environment.clock()
        with self._lock:
            self._ended.pop(message_id, None)  # moves it to the end of the order
            self._ended[message_id] = (session, now + _REMEMBERED_S)
            while next(iter(self._ended.values()))[1] <= now:
                self._ended.popitem(last=False)

    def forget(self, message_id: str) -> None:
        """Forget an id reused by a new transaction: a check can be about its half message."""
        with self._lock:
            self._ended.pop(message_id, None)

    def is_ended(self, message_id: str, session: Session | None) -> bool:
        """Return whether that broker has confirmed the end on this connection."""
        with self._lock:
            found = self._ended.get(message_id)
        return found is not None and found[0] is session


class _Registration:
    """Records that a broker knows our group, on one socket."""

    __slots__ = ("call", "connection", "due", "is_refused", "session")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session: Session | None = None
        self.call: Call | None = None
        self.due = 0.0
        self.is_refused = False


class CheckBack:
    """Sends heartbeats to brokers and waits for their checks. Used by one thread at a time.

    Args:
      group: the producer group, as brokers know it.
      inbox: where the pool's connections put pushed requests.
    """

    def __init__(
        self, group: str, inbox: Inbox, pool: ConnectionPool, options: ClientOptions, environment: Environment
    ) -> None:
        self._group = group
        self._inbox = inbox
        self._pool = pool
        self._options = options
        self._environment = environment
        self._heartbeat = requests.producer_heartbeat(client_id(options, self), [group])
        self._registrations: dict[str, _Registration] = {}

    def register(self, addresses: Iterable[str]) -> None:
        """Register the group at these brokers, where a heartbeat is due or the connection is new.

        A broker that cannot be reached is retried after a pause. Blocks at most for one connect timeout per broker.
        """
        addresses = set(addresses)
        for gone in self._registrations.keys() - addresses:
            del self._registrations[gone]
        for address in addresses:
            registration = self._registrations.get(address)
            try:
                if registration is None:
                    registration = _Registration(self._pool.connection(address))
                    self._registrations[address] = registration
                self._register(registration)
            except RmqioError as error:
                _LOGGER.info("transactions: cannot register at broker %s: %s", address, error)
                if registration is None:
                    continue
                registration.session = None
                registration.due = self._environment.clock() + self._options.retry_backoff_max_ms / 1000

    def _look_at_answer(self, registration: _Registration) -> None:
        """Log once if a broker refuses heartbeats: it then does not know the group and sends it no checks."""
        call = registration.call
        if call is None or not call.is_done:
            return
        registration.call = None
        try:
            answer = call.result(0)
        except RmqioError:
            return  # the connection broke, which is handled elsewhere
        if answer.code == ResponseCode.SUCCESS:
            registration.is_refused = False
        elif answer.code != GoAway.number and not registration.is_refused:
            registration.is_refused = True
            what = f"heartbeat of producer group {self._group!r} at broker {registration.connection.address}"
            _LOGGER.warning(
                "%s; it sends this producer no checks of transactions until it accepts a heartbeat",
                broker_error(answer.code, answer.remark, what),
            )

    def _register(self, registration: _Registration) -> None:
        self._look_at_answer(registration)
        now = self._environment.clock()
        session = registration.session
        is_same = session is not None and session is registration.connection.session and not session.is_closed
        if now < registration.due and (is_same or session is None):
            return
        call = registration.call
        if call is not None and not call.is_done:
            call.session.time_out(call, self._options.heartbeat_ms)  # the second time it closes the socket
        registration.call = registration.connection.start(self._heartbeat)
        registration.session = registration.call.session
        registration.due = now + self._options.heartbeat_ms / 1000

    def wait(self, timeout_ms: float) -> None:
        """Read what brokers send, for at most this time or until a check arrives."""
        sessions = {
            session.fileno(): session
            for session in (registration.session for registration in self._registrations.values())
            if session is not None and session.is_connected and session.fileno() >= 0
        }
        poll = select.poll()
        for descriptor in (self._inbox.wakeup.fileno(), *sessions):
            poll.register(descriptor, select.POLLIN)
        due = min((registration.due for registration in self._registrations.values()), default=float("inf"))
        due_ms = max((due - self._environment.clock()) * 1000, 0.0)
        for descriptor, _ in poll.poll(min(timeout_ms, due_ms)):
            session = sessions.get(descriptor)
            if session is None:
                self._inbox.wakeup.clear()
            else:
                session.pump(_ANOTHER_READS_MS)
