"""A request in flight and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from rmqio.errors import RequestTimeout, RmqioError, TransportError
from rmqio.wire.command import Command

OnDone = Callable[["Call[Any]"], None]


class CallSession(Protocol):
    """The part of a session that a call needs; `session.Session` is the implementation."""

    @property
    def address(self) -> str: ...

    def clock(self) -> float:
        """Monotonic seconds."""
        ...

    def pump(self, timeout_ms: float, *, until: Call[Any] | None = None) -> bool:
        """Read answers. Whether there was anything to read."""
        ...

    def drain(self, *, until: Call[Any]) -> None:
        """Read what has arrived, without waiting."""
        ...

    def forget(self, call: Call[Any]) -> None:
        """Drop the answer when it comes."""
        ...

    def time_out(self, call: Call[Any], timeout_ms: float) -> None:
        """Settle a call that was not answered in time. Raises `RequestTimeout`."""
        ...


S = TypeVar("S", bound=CallSession)


class Call(Generic[S]):
    """A request in flight on a session."""

    __slots__ = ("_answer", "_failure", "_session", "code", "on_done", "opaque", "started")

    def __init__(self, session: S, code: int, opaque: int, started: float, on_done: OnDone | None) -> None:
        self._session = session
        self.on_done = on_done
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
