"""Failures that a test plans for the next uses of an operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from rmqio.errors import LocalError
from rmqio.model import MessageQueue

Operation = Literal[
    "queues",
    "topics",
    "min_offset",
    "max_offset",
    "offset_for_time",
    "committed_offset",
    "commit_offset",
    "open_reader",
    "poll",
    "send",
]
"""Operations that can fail: each is a method of a client; `send` covers all ways to send."""

Failure = BaseException | type[BaseException] | Callable[[], BaseException]


@dataclass(slots=True)
class PlannedFailure:
    """A planned failure; `after`: the operation takes effect first."""

    failure: Failure
    times: int
    queue: MessageQueue | None
    after: bool

    def exception(self) -> BaseException:
        return self.failure if isinstance(self.failure, BaseException) else self.failure()


class FailurePlan:
    """The next planned failures, by operation. Not thread-safe: the cluster's lock guards it."""

    def __init__(self) -> None:
        self._planned: dict[str, list[PlannedFailure]] = {}

    def add(self, operation: Operation, failure: PlannedFailure) -> None:
        if operation not in get_args(Operation):
            raise LocalError(f"unknown operation {operation!r}; use one of {', '.join(get_args(Operation))}")
        self._planned.setdefault(operation, []).append(failure)

    def has(self, operation: Operation, queue: MessageQueue) -> bool:
        return any(item.queue in (None, queue) for item in self._planned.get(operation, ()))

    def take(self, operation: Operation, queue: MessageQueue | None) -> PlannedFailure | None:
        """Return the planned failure of this use, if any, and count it as used."""
        planned = self._planned.get(operation, [])
        for item in planned:
            if item.queue in (None, queue):
                item.times -= 1
                if item.times <= 0:
                    planned.remove(item)
                return item
        return None
