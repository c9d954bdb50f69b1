"""The life of one socket: requests go out, and the waiting thread matches answers by `opaque`.

There is no reader thread. A thread that waits for its answer becomes the leader: it reads the socket and completes
all threads' calls. The others sleep until the leader has an answer for them or steps down. A dedicated reader would
cost a hand-over of the interpreter lock (up to 5 ms) for each answer, and would not survive a fork.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from rmqio.client.environment import OnPushed
from rmqio.client.transport import Transport
from rmqio.errors import GoAway, RequestTimeout, RmqioError, TransportError, WireError
from rmqio.security import Credentials
from rmqio.wire.command import Command, CommandFlag, FrameDecoder, encode_frame, refuse
from rmqio.wire.templates import Pull, PullTemplate, Request, encode_parts, encode_request

# A request in flight and its answer.


class CallSession(Protocol):
    """The part of a session that a call needs; `session.Session` is the implementation."""

    @property
    def address(self) -> str: ...

    def clock(self) -> float:
        """Monotonic seconds."""
        ...

    def pump(self, timeout_ms: float, *, until: CallOn[Any] | None = None) -> bool:
        """Read answers. Whether there was anything to read."""
        ...

    def drain(self, *, until: CallOn[Any]) -> None:
        """Read what has arrived, without waiting."""
        ...

    def forget(self, call: CallOn[Any]) -> None:
        """Drop the answer when it comes."""
        ...

    def time_out(self, call: CallOn[Any], timeout_ms: float) -> None:
        """Settle a call that was not answered in time. Raises `RequestTimeout`."""
        ...


S = TypeVar("S", bound=CallSession)


class CallOn(Generic[S]):
    """A request in flight on a session."""

    __slots__ = ("_answer", "_failure", "_session", "code", "opaque", "started")

    def __init__(self, session: S, code: int, opaque: int, started: float) -> None:
        self._session = session
        self.started = started
        self._answer: Command | None = None
        self._failure: RmqioError | None = None
        self.code = code
        self.opaque = opaque

    def __repr__(self) -> str:
        state = "answered" if self._answer else "failed" if self._failure else "in flight"
        return f"<Call code={self.code} opaque={self.opaque} to {self._session.address} {state}>"

    @property
    def session(self) -> S:
        return self._session

    @property
    def is_done(self) -> bool:
        """Whether `result` would not block."""
        return self._answer is not None or self._failure is not None

    @property
    def age_ms(self) -> float:
        """The time since the request was started."""
        return (self._session.clock() - self.started) * 1000

    def result(self, timeout_ms: float) -> Command:
        """Wait for the answer, from now on, and return it whatever its code.

        Raises `TransportError` when the connection broke (the outcome is unknown), and `RequestTimeout` when there is
        no answer in time. The call is then forgotten: a late answer is dropped, and the socket is kept.
        """
        if self._answer is None and self._failure is None:
            self._wait(timeout_ms)
        if self._answer is not None:
            return self._answer
        failure = self._failure
        assert failure is not None  # is_done, without an answer
        if isinstance(failure, RequestTimeout):
            raise failure
        # A fresh error for each waiter: one instance raised in several threads would mix up its tracebacks.
        raise TransportError(f"{failure}; outcome of request {self.code} unknown") from failure

    def _wait(self, timeout_ms: float) -> None:
        session = self._session
        deadline = session.clock() + timeout_ms / 1000
        remaining_ms = timeout_ms
        while remaining_ms >= 0.01:
            session.pump(remaining_ms, until=self)
            if self._answer is not None or self._failure is not None:
                return
            remaining_ms = (deadline - session.clock()) * 1000
        session.time_out(self, timeout_ms)

    def forget(self) -> None:
        """Give up on the answer. Never blocks."""
        self._session.forget(self)

    def finish(self, answer: Command | None, failure: RmqioError | None) -> None:
        """Settle the call with one of the two. Called once, by the thread that took it out of the session's table."""
        self._answer = answer
        self._failure = failure


# A descriptor that another thread can make readable to end a poll(2) early.


class Wakeup:
    """A pipe to the same process. Any thread can call `wake`, also after `close`."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self.pid = os.getpid()

    def fileno(self) -> int:
        return self._read_end

    def wake(self) -> None:
        if self._write_end >= 0:
            with suppress(BlockingIOError):  # the pipe is full, so it is readable already
                os.write(self._write_end, b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                pass

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        read_end, write_end = self._read_end, self._write_end
        self._read_end = self._write_end = -1
        if write_end >= 0:
            os.close(read_end)
            os.close(write_end)


__all__ = ["Call", "Session"]

if TYPE_CHECKING:
    Call: TypeAlias = CallOn["Session"]
else:
    Call = CallOn

_LOGGER = logging.getLogger("rmqio.client")

RECEIVE_BYTES = 256 * 1024
_MOST_READS = 64
"""16 MiB: the longest frame, and more than a socket buffers."""
_REFUSAL_TIMEOUT_MS = 1_000
_GO_AWAY = GoAway.number
_RESPONSE = int(CommandFlag.RESPONSE)
_MAX_SILENT_TIMEOUTS = 2
"""Consecutive timeouts without a byte from the peer after which the socket is considered dead and closed."""


class Session:
    """One transport and the calls in flight on it. A failed or closed session stays so. Thread-safe.

    One thread reads the transport at a time, and one writes. It ends at once, but closes after the last of them has
    left: a descriptor closed under a reader can be reused meanwhile.
    """

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        clock: Callable[[], float],
        on_pushed: OnPushed | None = None,
        credentials: Callable[[], Credentials] | None = None,
    ) -> None:
        self.address = address
        self.clock = clock
        self._on_pushed = on_pushed
        self._credentials = credentials
        self.requests_made = 0
        self.is_retiring = False
        """The server sent GO_AWAY: new requests belong on a new session."""
        self.last_used = clock()
        self._transport = transport
        self._users = 0
        """Threads inside the transport."""
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)
        self._pending: dict[int, Call] = {}
        self._failure: RmqioError | None = None
        self._connected = False
        self._silent_timeouts = 0
        self._last_received = self._last_complete = float("-inf")
        """Time of the last bytes received, and of the last bytes that completed a command."""
        self._watchers: list[Wakeup] = []
        self._is_reading = False
        self._make_locks()

    def __repr__(self) -> str:
        return f"<Session {self.address} {self.state}, in flight {len(self._pending)}, made {self.requests_made}>"

    @property
    def state(self) -> str:
        if self._failure is not None:
            return "closed"
        return "retiring" if self.is_retiring else "open" if self._connected else "connecting"

    @property
    def is_closed(self) -> bool:
        self._check_process()
        return self._failure is not None

    @property
    def is_connected(self) -> bool:
        return self._connected and self._failure is None

    def is_ready(self, idle_s: float) -> bool:
        """Return whether requests can be started here and there was traffic within `idle_s` seconds."""
        is_open = self._connected and self._failure is None and not self.is_retiring
        return is_open and self.clock() - self.last_used <= idle_s

    @property
    def calls_in_flight(self) -> int:
        return len(self._pending)

    def fileno(self) -> int:
        """The descriptor to wait on for answers, or -1."""
        return self._transport.fileno()

    @property
    def awaits_bytes(self) -> bool:
        """Whether the next step needs bytes from the peer; otherwise it needs room to write."""
        return self._connected or self._transport.connects_by_reading

    # ---- opening ----------------------------------------------------------------------------------------------------

    def connect(self, timeout_ms: float) -> bool:
        """Return whether the transport is connected, waiting up to the timeout. Raises `TransportError` on failure."""
        if self._connected:
            return True
        self._check_process()
        try:
            self._enter()
            try:
                self._connected = self._transport.wait_connected(timeout_ms)
            finally:
                self._leave()
        except TransportError as error:
            self.fail(error)
            raise
        return self._connected

    # ---- writing ----------------------------------------------------------------------------------------------------

    def start(self, request: Request, timeout_ms: float) -> Call:
        """As `start_all`, for one request."""
        now = self.clock()
        call = Call(self, request.code, self._next_opaque(), now)
        credentials = None if self._credentials is None else self._credentials()
        head, body = encode_parts(request, call.opaque, credentials)
        self._launch((call,), head, timeout_ms, now, body)
        return call

    def start_all(self, requests: Sequence[Request], timeout_ms: float) -> list[Call]:
        """Send requests in one write.

        Raises `LocalError` for a frame that is too large or has no credentials (nothing was sent), and `TransportError`
        (the session is dead).
        """
        now = self.clock()
        calls = [Call(self, request.code, self._next_opaque(), now) for request in requests]
        credentials = None if self._credentials is None else self._credentials()
        frames = [
            encode_request(request, call.opaque, credentials) for request, call in zip(requests, calls, strict=True)
        ]
        self._launch(calls, b"".join(frames), timeout_ms, now)
        return calls

    def start_pulls(self, template: PullTemplate, pulls: Sequence[Pull], timeout_ms: float) -> list[Call]:
        """As `start_all`, for a reader's pulls."""
        now = self.clock()
        calls = [Call(self, template.code, self._next_opaque(), now) for _ in pulls]
        credentials = None if self._credentials is None else self._credentials()
        frames = [template.frame(call.opaque, *pull, credentials) for call, pull in zip(calls, pulls, strict=True)]
        self._launch(calls, b"".join(frames), timeout_ms, now)
        return calls

    def _next_opaque(self) -> int:
        return next(self._opaques) & 0x7FFFFFFF

    def _launch(self, calls: Sequence[Call], data: bytes, timeout_ms: float, now: float, body: bytes = b"") -> None:
        self._check_process()
        with self._lock:
            if self._failure is not None:
                raise TransportError(f"{self._failure}") from self._failure
            self.requests_made += len(calls)
            for call in calls:
                self._pending[call.opaque] = call
        try:
            self._write(data, timeout_ms, body)
        except TransportError as error:
            self.fail(error)
            raise
        except BaseException:  # a signal's handler raised: a part may have been written
            self.fail(TransportError(f"{self.address}: a write was interrupted"))
            raise
        self.last_used = now

    def _write(self, data: bytes, timeout_ms: float, body: bytes = b"") -> None:
        """Write everything, and a frame's body behind it, after the current writer.

        Raises `TransportError`; the caller must then call `fail`.
        """
        self._enter()
        try:
            if not self._write_lock.acquire(timeout=timeout_ms / 1000):
                raise RequestTimeout(f"{self.address}: another write did not finish within {timeout_ms:.0f} ms")
            try:
                if body:
                    self._transport.send_parts(data, body, timeout_ms)
                else:
                    self._transport.send_all(data, timeout_ms)
            finally:
                self._write_lock.release()
        finally:
            self._leave()

    # ---- reading ----------------------------------------------------------------------------------------------------

    def pump(self, timeout_ms: float, *, until: Call | None = None) -> bool:
        """Read once and complete calls, or wait while another thread does; return whether anything happened.

        Returns at once when `until` is done. Never raises: errors fail the calls.
        """
        if self._pid != os.getpid():
            self._leave_to_parent()
        with self._lock:
            if self._failure is not None or (until is not None and until.is_done):
                return True
            if self._is_reading:
                return self._sleep(timeout_ms)
            self._is_reading = True
        done: list[Call] = []
        try:
            return self._read_once(timeout_ms, done)
        finally:
            with self._lock:
                self._is_reading = False
                if self._sleepers:
                    self._stepped_down.notify_all()
            if done:
                self._report()

    def drain(self, *, until: Call) -> None:
        """Read what is available, up to this answer. Neither waits nor follows a stream endlessly."""
        for _ in range(_MOST_READS):
            if until.is_done or self._failure is not None or not self.pump(0):
                return

    def _sleep(self, timeout_ms: float) -> bool:
        """Wait, with the lock held, until the leader steps down; return whether it did in this time."""
        self._sleepers += 1
        try:
            return self._stepped_down.wait(timeout_ms / 1000)
        finally:
            self._sleepers -= 1  # we hold the lock again in every case

    def _read_once(self, timeout_ms: float, done: list[Call]) -> bool:
        pushed: list[Command] = []
        try:
            self._enter()
            try:
                data = self._transport.recv(RECEIVE_BYTES, timeout_ms)
            finally:
                self._leave()
            if data is None:
                return False
            if not data:
                raise TransportError(f"{self.address} closed the connection")
            now = self._last_received = self.last_used = self.clock()
            self._silent_timeouts = 0
            self._decoder.receive_data(data)
            while (command := self._decoder.next_command()) is not None:
                self._last_complete = now
                # A server also sends its own requests on our socket, and their opaque can equal ours: the flag decides.
                if not command.flag & _RESPONSE:
                    pushed.append(command)
                    continue
                if command.code == _GO_AWAY:
                    self.is_retiring = True
                call = self._pending.pop(command.opaque, None)
                if call is not None:  # else the answer is late: its call was given up
                    call.finish(command, None)
                    done.append(call)
        except WireError as error:
            self.fail(TransportError(f"{self.address} does not speak RocketMQ's protocol: {error}"))
        except TransportError as error:
            self.fail(error)
        for command in pushed:
            if self._on_pushed is None or not self._on_pushed(self.address, command):
                self._refuse(command)
        return True

    def _refuse(self, command: Command) -> None:
        answer = refuse(command)
        if answer is None or self._failure is not None:
            return
        try:
            self._write(encode_frame(answer), _REFUSAL_TIMEOUT_MS)
        except TransportError as error:
            self.fail(error)

    def _report(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.wake()
        self._close_if_retired()

    # ---- giving up --------------------------------------------------------------------------------------------------

    def forget(self, call: Call) -> None:
        """Drop a call, and a later answer."""
        if self._pending.pop(call.opaque, None) is not None:
            call.finish(None, RequestTimeout(f"{self.address}: request {call.code} was given up"))
            self._close_if_retired()

    def time_out(self, call: Call, timeout_ms: float) -> None:
        """Fail a call because it has no answer.

        A peer that is silent several times in a row is disconnected. A peer that stops inside an answer is disconnected
        at once.
        """
        if self._pending.pop(call.opaque, None) is None:
            return
        error = RequestTimeout(f"{self.address}: no answer to request {call.code} within {timeout_ms:.0f} ms")
        call.finish(None, error)
        self._close_if_retired()
        if self._last_complete < self._last_received and self.clock() - self._last_received >= call.age_ms / 2000:
            # The peer is dead, or the length is wrong. Later answers would be read as the rest of this one.
            self.fail(TransportError(f"{self.address} stopped in the middle of an answer"))
        elif self._last_received < call.started:
            self._silent_timeouts += 1
            if self._silent_timeouts >= _MAX_SILENT_TIMEOUTS:
                self.fail(TransportError(f"{self.address} has not answered {self._silent_timeouts} requests in a row"))

    def fail(self, error: RmqioError) -> None:
        """Close permanently and fail the calls in flight. Idempotent. Never raises or blocks."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = _without_stack(error)
            is_in_use = self._users > 0
            calls = self._fail_pending(self._failure)
            self._stepped_down.notify_all()
        if calls:
            _LOGGER.info("connection to %s lost with %d calls in flight: %s", self.address, len(calls), error)
        if is_in_use:
            self._transport.shutdown()  # threads inside return soon, and the last one closes
        else:
            self._transport.close()
        if calls:
            self._report()

    def close(self) -> None:
        """Close; calls in flight fail. Idempotent."""
        self._check_process()
        self.fail(TransportError(f"connection to {self.address} was closed by this client"))

    def close_when_idle(self) -> None:
        """Close as soon as no call is in flight."""
        self.is_retiring = True
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self.is_retiring and not self._pending and self._failure is None:
            self.close()

    def _enter(self) -> None:
        with self._lock:
            if self._failure is not None:
                raise TransportError(f"connection to {self.address} is closed")
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._failure is None:
                return
        self._transport.close()

    def watch(self, wakeup: Wakeup) -> None:
        """Wake the waiter whenever another thread completes a call here."""
        self._watchers.append(wakeup)

    def unwatch(self, wakeup: Wakeup) -> None:
        with suppress(ValueError):
            self._watchers.remove(wakeup)

    # ---- forks -------------------------------------------------------------------------------------------------------

    def _make_locks(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._stepped_down = threading.Condition(self._lock)
        self._sleepers = 0

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._leave_to_parent()

    def _leave_to_parent(self) -> None:
        """Free a forked child's copy of the socket, which belongs to the parent, without reading or writing a byte."""
        self._make_locks()  # another thread of the parent may have held them at the fork
        self._is_reading = False
        self._watchers = []
        self._transport.abandon()
        error = TransportError(f"connection to {self.address} belongs to the parent process")
        with self._lock:
            self._failure = self._failure or error
            self._fail_pending(error)

    def _fail_pending(self, error: RmqioError) -> list[Call]:
        # Only the thread that removes a call from the table finishes it.
        calls = []
        while self._pending:
            _, call = self._pending.popitem()
            call.finish(None, error)
            calls.append(call)
        return calls


def _without_stack(error: RmqioError) -> RmqioError:
    """Return a copy to keep: the error itself references the variables of all threads that were waiting."""
    kept = copy.copy(error)
    kept.__cause__ = copy.copy(error.__cause__)
    return kept
