"""Runs many small programs that query servers together; each is written as if it ran alone.

A program is a generator: it yields what it waits for (an answer, a pause, another program) and continues when that is
available. One thread runs all of them, so all their requests are in flight together.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rmqio.client.environment import Environment
from rmqio.client.offsets.exchange import Exchange, fresh
from rmqio.errors import RmqioError

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
