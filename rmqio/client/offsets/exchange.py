"""Requests to many servers under one deadline: sent together and awaited together, never one by one."""

from __future__ import annotations

import copy

from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.connections.session import Call, Session
from rmqio.client.environment import Environment
from rmqio.client.offsets.breaker import Breaker
from rmqio.client.reading.waiting import Waiter
from rmqio.client.retry import backoff_ms
from rmqio.errors import RequestTimeout, RmqioError, TransportError
from rmqio.options import ClientOptions
from rmqio.wire.command import Command


def fresh(error: RmqioError) -> RmqioError:
    """Return a copy: an error reported to several callers must not be raised in several places."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


class NotConnected(TransportError):
    """No connection could be made after all retries. Nothing was sent."""


class Ticket:
    """One request. It is given up at `until`, on the environment's clock; `probe` is as in `Breaker.trip`."""

    __slots__ = ("_answer", "_error", "address", "call", "command", "probe", "until")

    def __init__(self, address: str, command: Command, probe: Command, until: float) -> None:
        self.address, self.command, self.probe, self.until = address, command, probe, until
        self.call: Call | None = None
        self._answer: Command | None = None
        self._error: RmqioError | None = None

    def is_done(self, now: float) -> bool:
        return self._answer is not None or self._error is not None

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def answer(self) -> Command:
        """Return the answer. Raises `NotConnected`, `RequestTimeout`, and `TransportError` with an unknown outcome."""
        if self._answer is None:
            assert self._error is not None
            raise self._error
        return self._answer

    def collect(self) -> bool:
        """Take the answer or failure if available; return whether it was."""
        if self.call is None or not self.call.is_done:
            return False
        try:
            self._answer = self.call.result(0)
        except RmqioError as error:
            self._error = error
        return True

    def fail(self, error: RmqioError) -> None:
        """Fail with a copy of the error: several tickets raise it in different places."""
        self._error = fresh(error)


class _Lane:
    """The requests to one address."""

    def __init__(self, address: str, is_patient: bool) -> None:
        self.address, self.is_patient = address, is_patient
        self.waiting: list[Ticket] = []
        """Not sent yet."""
        self.flying: list[Ticket] = []
        self.session: Session | None = None
        """The session being connected while requests wait; then the session of those in flight."""
        self.failures = 0
        """Failed attempts to connect."""
        self.retry_at = float("-inf")
        self.has_answered = False


class Exchange:
    """Belongs to one thread, for one `Look`.

    Args:
      deadline: on the environment's clock; nothing waits longer.
    """

    def __init__(
        self,
        options: ClientOptions,
        pool: ConnectionPool,
        breaker: Breaker,
        waiter: Waiter,
        environment: Environment,
        *,
        deadline: float,
    ) -> None:
        self.deadline = deadline
        self._began = environment.clock()
        self._options, self._pool, self._breaker = options, pool, breaker
        self._waiter, self._environment = waiter, environment
        self._lanes: dict[str, _Lane] = {}

    def put(
        self,
        address: str,
        command: Command,
        *,
        probe: Command | None = None,
        until: float | None = None,
        is_patient: bool = True,
    ) -> Ticket:
        """Queue a request for the next `flush`, unless the deadline has passed.

        The first request to an address decides, with `is_patient`, whether connecting is retried after pauses.
        """
        ticket = Ticket(address, command, probe or command, self.deadline if until is None else until)
        if self._environment.clock() >= self.deadline:
            ticket.fail(RequestTimeout(f"the deadline passed before request {command.code} to {address} was sent"))
            return ticket
        self._lanes.setdefault(address, _Lane(address, is_patient)).waiting.append(ticket)
        return ticket

    def flush(self) -> None:
        """Send waiting requests, with one write to each connected server, and continue connecting to the others."""
        now = self._environment.clock()
        lanes = [lane for lane in self._lanes.values() if lane.waiting and now >= lane.retry_at]
        for lane in lanes:
            # A server that reads no bytes must not delay the others until the deadline.
            share_ms = max((self.deadline - self._environment.clock()) * 1000, 1.0) / len(lanes)
            self._send(lane, min(share_ms, self._options.request_timeout_ms))

    def _send(self, lane: _Lane, write_ms: float) -> None:
        try:
            connection = self._pool.connection(lane.address)
        except RmqioError as error:  # an address that is not allowed
            _fail(lane, error)
            return
        try:
            is_connected = connection.begin()
        except TransportError as error:
            self._connect_failed(lane, error)
            return
        except RmqioError as error:  # closed, or unusable certificates
            _fail(lane, error)
            return
        lane.session = session = connection.session
        if not is_connected or session is None:
            return
        tickets = lane.waiting
        try:
            calls = session.start_all([ticket.command for ticket in tickets], write_ms)
        except RmqioError as error:
            if isinstance(error, RequestTimeout):  # it accepts no more bytes
                self._breaker.trip(lane.address, str(error), tickets[0].probe)
            _fail(lane, error)
            return
        lane.waiting, lane.failures = [], 0
        for ticket, call in zip(tickets, calls, strict=True):
            ticket.call = call
        lane.flying += tickets

    def _connect_failed(self, lane: _Lane, error: TransportError) -> None:
        """Retry after a pause. Without retries or time left, all requests fail and the breaker opens."""
        pause_s = backoff_ms(lane.failures, self._options, self._environment.random) / 1000
        lane.session = None
        lane.failures += 1
        lane.retry_at = self._environment.clock() + pause_s
        is_final = not lane.is_patient or isinstance(error, RequestTimeout)
        if is_final or lane.failures > self._options.max_retries or lane.retry_at >= self.deadline:
            probe = lane.waiting[0].probe
            failure = NotConnected(str(error))
            failure.__cause__ = error
            _fail(lane, failure)
            self._breaker.trip(lane.address, str(error), probe)

    def collect(self, *, is_last: bool = False) -> None:
        """Take available answers and give up requests that are due; with `is_last` all that are still open."""
        now = self._environment.clock()
        for lane in self._lanes.values():
            if not lane.flying and not lane.waiting:
                continue
            self._collect(lane)
            due = is_last or any(ticket.until <= now for ticket in (*lane.flying, *lane.waiting))
            if due:
                self._read(lane)
                self._collect(lane)
                self._give_up(lane, float("inf") if is_last else now)

    @staticmethod
    def _read(lane: _Lane) -> None:
        """Read answers that may have arrived unread."""
        for ticket in lane.flying:
            if ticket.call is not None:
                ticket.call.session.drain(until=ticket.call)

    @staticmethod
    def _collect(lane: _Lane) -> None:
        done = [ticket for ticket in lane.flying if ticket.collect()]
        if done:
            lane.has_answered = lane.has_answered or any(ticket.is_answered for ticket in done)
            lane.flying = [ticket for ticket in lane.flying if not ticket.is_done(0)]

    def _give_up(self, lane: _Lane, now: float) -> None:
        late = [ticket for ticket in lane.flying if ticket.until <= now]
        unsent = [ticket for ticket in lane.waiting if ticket.until <= now]
        if not late and not unsent:
            return
        lane.flying = [ticket for ticket in lane.flying if ticket.until > now]
        lane.waiting = [ticket for ticket in lane.waiting if ticket.until > now]
        after_ms = f"{(self._environment.clock() - self._began) * 1000:.0f} ms"
        kept: Call | None = None
        if not lane.has_answered:
            # Keep one call: its late answer would show that the server is back.
            kept = late[0].call if late else None
            why = f"has not answered request {late[0].command.code}" if late else "has not accepted a connection"
            self._breaker.trip(lane.address, f"it {why} within {after_ms}", (late + unsent)[0].probe, kept)
        for ticket in unsent:
            ticket.fail(RequestTimeout(f"{lane.address}: not connected within {after_ms}, so nothing was sent"))
        for ticket in late:
            ticket.fail(RequestTimeout(f"{lane.address}: no answer to request {ticket.command.code} within {after_ms}"))
            if ticket.call is not None and ticket.call is not kept:
                ticket.call.forget()

    def wait(self, until: float) -> None:
        """Return when there is something to collect or flush, or at this time."""
        now = self._environment.clock()
        busy = [lane for lane in self._lanes.values() if lane.flying or lane.waiting]
        until = min([until, *(ticket.until for lane in busy for ticket in (*lane.flying, *lane.waiting))])
        pausing = [lane for lane in busy if lane.waiting and lane.retry_at > now]
        until = min([until, *(lane.retry_at for lane in pausing)])
        connecting = [lane for lane in busy if lane.waiting and lane not in pausing]
        sessions = {ticket.call.session for lane in busy for ticket in lane.flying if ticket.call is not None}
        sessions |= {lane.session for lane in connecting if lane.session is not None}
        self._waiter.wait_for_news(
            sessions,
            lambda: any(ticket.call is not None and ticket.call.is_done for lane in busy for ticket in lane.flying),
            max((until - now) * 1000, 0.0),
            is_stuck=any(lane.session is None for lane in connecting),
        )


def _fail(lane: _Lane, error: RmqioError) -> None:
    failed, lane.waiting = lane.waiting, []
    for ticket in failed:
        ticket.fail(error)
