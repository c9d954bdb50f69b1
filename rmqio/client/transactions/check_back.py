"""Keeps a producer group known to brokers, and receives what they ask it: which transactions to commit."""

from __future__ import annotations

import logging
import select
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable

from rmqio.client.connections.call import Call
from rmqio.client.connections.connection import Connection
from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.connections.session import Session
from rmqio.client.connections.wakeup import Wakeup
from rmqio.client.environment import Environment
from rmqio.client.identity import client_id
from rmqio.errors import GoAway, LocalError, RmqioError, broker_error
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.codes import RequestCode, ResponseCode
from rmqio.wire.command import Command

_LOGGER = logging.getLogger("rmqio.client")

_REMEMBERED_S = 120.0
"""For how long the end of a transaction is kept in mind: several rounds of a broker's questions, each 30 s."""
_ANOTHER_READS_MS = 10.0
"""Another thread reads the socket already: look again after this time at the latest."""


class KnownConnections(ConnectionPool):
    """A pool that also tells its connections by where they lead: that is the address a check comes from.

    Routes may know the broker by another one (`Security.address_map`), and may not name it any more.
    """

    def __init__(self, options: ClientOptions, environment: Environment) -> None:
        super().__init__(options, environment)
        self._leading: dict[str, Connection] = {}

    def connection(self, address: str) -> Connection:
        found = super().connection(address)
        # Two addresses that are mapped to one have one connection, for what comes by it and what answers that.
        return self._leading.setdefault(found.address, found)

    def leading_to(self, address: str) -> Connection:
        """The connection with this `Connection.address`. Raises `LocalError` when there is none."""
        try:
            return self._leading[address]
        except KeyError:
            raise LocalError(f"there is no connection to {address}") from None


class Inbox:
    """The checks that brokers have pushed, in their order. Thread-safe: any thread may read a socket."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self._checks: deque[tuple[str, Command]] = deque()

    def take_over(self, address: str, command: Command) -> bool:
        """An `Environment.on_pushed`: keeps a check for the thread that answers them."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        self._checks.append((address, command))
        self.wakeup.wake()
        return True

    def next(self) -> tuple[str, Command] | None:
        """The oldest check and the address that it came from."""
        return self._checks.popleft() if self._checks else None


class Ended:
    """The transactions that brokers have lately confirmed the end of. Thread-safe.

    A broker writes down such an end up to 3 s late (transactionOpBatchInterval), and may ask meanwhile. That question
    is about a copy of the half message: whoever commits that too makes a second message of it. But only while the
    broker is the same process: one that crashed may have lost the end and not the half message. So an end counts on
    the connection that it was confirmed on.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._ended: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, message_id: str, session: Session) -> None:
        """The broker has confirmed it."""
        now = self._environment.clock()
        with self._lock:
            self._ended.pop(message_id, None)  # to the end of the order
            self._ended[message_id] = (session, now + _REMEMBERED_S)
            while next(iter(self._ended.values()))[1] <= now:
                self._ended.popitem(last=False)

    def forget(self, message_id: str) -> None:
        """A new transaction has this id: what is asked about may be its half message."""
        with self._lock:
            self._ended.pop(message_id, None)

    def is_ended(self, message_id: str, session: Session | None) -> bool:
        """Whether that broker has confirmed it on this connection."""
        with self._lock:
            found = self._ended.get(message_id)
        return found is not None and found[0] is session


class _Registration:
    """That a broker knows our group, on one socket."""

    __slots__ = ("call", "connection", "due", "is_refused", "session")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session: Session | None = None
        self.call: Call | None = None
        self.due = 0.0
        self.is_refused = False


class CheckBack:
    """Heartbeats to brokers, and waiting for what they push. Used by one thread at a time.

    Args:
      group: the producer group, as brokers know it.
      inbox: where the pool's connections put what is pushed.
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
        """Tell these brokers that the group is here, those where it is time and those whose connection is new.

        A broker that cannot be reached is tried again after a pause; blocks for at most a connection's time each.
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
        """A broker that refuses heartbeats does not know the group, and asks it nothing: that is told, once."""
        call = registration.call
        if call is None or not call.is_done:
            return
        registration.call = None
        try:
            answer = call.result(0)
        except RmqioError:
            return  # the connection broke, which is dealt with
        if answer.code == ResponseCode.SUCCESS:
            registration.is_refused = False
        elif answer.code != GoAway.number and not registration.is_refused:
            registration.is_refused = True
            what = f"heartbeat of producer group {self._group!r} at broker {registration.connection.address}"
            _LOGGER.warning(
                "%s; it does not ask this producer about transactions until it takes one",
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
        """Read what brokers send, for at most this time or until a check is there."""
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
