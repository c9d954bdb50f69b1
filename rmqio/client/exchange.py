"""Requests to many servers under one deadline: sent together and awaited together, never one by one."""

from __future__ import annotations

import copy
import os
import select
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rmqio.client.breaker import Breaker
from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.reader import PipelinedReader
from rmqio.client.retry import backoff_ms
from rmqio.client.session import Call, Session, Wakeup
from rmqio.errors import RequestTimeout, RmqioError, TransportError
from rmqio.options import ClientOptions
from rmqio.wire.command import Command

# Waits for any of several readers or answers on several sockets at once.

_NOBODY_TO_WAIT_FOR_MS = 10.0
"""Used when another thread makes the connection to wait on, or sockets without descriptors take turns."""


class Waiter:
    """Blocks threads until a reader is ready or an answer has arrived. Thread-safe; each thread waits for its own."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._local = threading.local()

    def wait(self, readers: Sequence[PipelinedReader], timeout_ms: float) -> bool:
        """Return whether one of the readers becomes ready within this time."""
        clock = self._environment.clock
        deadline = clock() + timeout_ms / 1000
        while True:
            if any(reader.is_ready() for reader in readers):  # this also lets each reader send and retry
                return True
            remaining_ms = (deadline - clock()) * 1000
            if remaining_ms <= 0:
                return False
            due_ms = min((reader.due_in_ms() for reader in readers), default=remaining_ms)
            self._wait_once(readers, min(remaining_ms, due_ms))

    def _wait_once(self, readers: Sequence[PipelinedReader], timeout_ms: float) -> None:
        waiting = [(reader, reader.session) for reader in readers if not reader.is_backing_off]
        sessions = {session for _, session in waiting if session is not None and not session.is_closed}
        if not sessions:
            self._environment.sleep(min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS if waiting else timeout_ms) / 1000)
            return
        for session in sessions:
            if session.fileno() < 0:  # a transport without a descriptor: only its own recv can wait
                session.pump(timeout_ms)
                return
        self._watch(sessions, lambda: any(reader.has_answer for reader in readers), timeout_ms)

    def wait_for_news(
        self, sessions: Collection[Session], has_news: Callable[[], bool], timeout_ms: float, *, is_stuck: bool = False
    ) -> None:
        """Return when something happens on one of the sessions, when `has_news` is true, or after this time.

        `is_stuck`: the wait also depends on something that no session reports, so it is kept short.
        """
        open_ones = {session for session in sessions if not session.is_closed}
        if len(open_ones) < len(sessions):
            return  # broken: that counts as news
        if is_stuck:
            timeout_ms = min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS)
        if not open_ones:
            self._environment.sleep(timeout_ms / 1000)
            return
        without = [session for session in open_ones if session.fileno() < 0]
        if not without:
            self._watch(open_ones, has_news, timeout_ms)
            return
        connected = [session for session in open_ones if session.is_connected]
        moved = [session.pump(0) for session in connected]
        if any(moved) or has_news():
            return
        if len(open_ones) > 1 or not connected:
            timeout_ms = min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS)
        if connected:
            next((session for session in connected if session.fileno() < 0), connected[0]).pump(timeout_ms)
        else:
            self._environment.sleep(timeout_ms / 1000)

    def _watch(self, sessions: Collection[Session], has_news: Callable[[], bool], timeout_ms: float) -> None:
        wakeup = self._wakeup()
        for session in sessions:
            session.watch(wakeup)
        try:
            # Another thread may have read our answer from the socket before we watched it.
            if not has_news():
                self._poll(sessions, wakeup, timeout_ms)
        finally:
            for session in sessions:
                session.unwatch(wakeup)

    def _poll(self, sessions: Collection[Session], wakeup: Wakeup, timeout_ms: float) -> None:
        poll = select.poll()
        poll.register(wakeup.fileno(), select.POLLIN)
        by_descriptor = {}
        for session in sessions:
            descriptor = session.fileno()
            if descriptor < 0:
                return  # just closed
            by_descriptor[descriptor] = session
            poll.register(descriptor, select.POLLIN if session.awaits_bytes else select.POLLOUT)
        for descriptor, _ in poll.poll(timeout_ms):
            found = by_descriptor.get(descriptor)
            if found is None:
                wakeup.clear()
            elif found.is_connected:
                found.pump(0)

    def _wakeup(self) -> Wakeup:
        found: Wakeup | None = getattr(self._local, "wakeup", None)
        if found is None or found.pid != os.getpid():
            found = self._local.wakeup = Wakeup()
        return found


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


# Runs many small programs that query servers together; each is written as if it ran alone.
#
# A program is a generator: it yields what it waits for (an answer, a pause, another program) and continues when that
# is available. One thread runs all of them, so all their requests are in flight together.

T = TypeVar("T")


class Awaited(Protocol):
    """Something that a program can wait for."""

    def is_done(self, now: float) -> bool: ...


Steps = Generator[Awaited, None, T]


class Pause:
    """Waits until this time on the environment's clock."""

    def __init__(self, until: float) -> None:
        self.until = until

    def is_done(self, now: float) -> bool:
        return now >= self.until


class Task(Generic[T]):
    """A program and its state. Another program can wait for it and then take its result."""

    def __init__(self, steps: Steps[T], began: float) -> None:
        self._steps = steps
        self.began = began
        self.awaited: Awaited | None = None
        """None: not started, or done."""
        self._is_done = False
        self._value: T
        self._error: RmqioError | None = None

    def is_done(self, now: float) -> bool:
        return self._is_done

    def advance(self) -> None:
        """Run to the next point of waiting. An error other than `RmqioError` is a bug and is raised."""
        try:
            self.awaited = next(self._steps)
        except StopIteration as end:
            self._value, self._is_done = end.value, True
        except RmqioError as error:
            self._error, self._is_done = error, True

    def result(self) -> T:
        """Return the result of a finished task, or raise its error."""
        if self._error is not None:
            raise fresh(self._error)
        return self._value

    def outcome(self) -> T | RmqioError:
        """Return the result, or the error without its traceback frames, so that it can be kept."""
        if self._error is None:
            return self._value
        link: BaseException | None = self._error
        while link is not None:
            link.__traceback__ = None
            link = link.__cause__ or link.__context__
        return self._error


class Crew:
    """Runs programs. Belongs to one thread."""

    def __init__(self, exchange: Exchange, environment: Environment) -> None:
        self.exchange = exchange
        self._environment = environment
        self._running: list[Task[Any]] = []

    def begin(self, steps: Steps[T]) -> Task[T]:
        """Add a program; it starts with the next turn of `run`."""
        task = Task(steps, self._environment.clock())
        self._running.append(task)
        return task

    def run(self, tasks: Sequence[Task[Any]]) -> None:
        """Run until these tasks are done, which is soon after the deadline: then everything awaited fails."""
        exchange, clock = self.exchange, self._environment.clock
        while True:
            self._advance()
            if all(task.is_done(0) for task in tasks):
                return
            if clock() >= exchange.deadline:
                exchange.collect(is_last=True)
                continue
            exchange.flush()
            if any(task.awaited is not None and task.awaited.is_done(clock()) for task in self._running):
                continue  # requests that could not be sent have failed by now
            pauses = [task.awaited.until for task in self._running if isinstance(task.awaited, Pause)]
            exchange.wait(min([exchange.deadline, *pauses]))
            exchange.collect()

    def _advance(self) -> None:
        """Advance each task as far as possible, and those that this unblocks."""
        goes_on = True
        while goes_on:
            goes_on = False
            now = self._environment.clock()
            for task in tuple(self._running):
                if task.awaited is None or task.awaited.is_done(now):
                    task.advance()
                    goes_on = True
            self._running = [task for task in self._running if not task.is_done(now)]
