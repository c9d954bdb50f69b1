"""The runner's knowledge of the bundles that it runs, for the transforms that write in them.

If a runner sets nothing, `current()` is None. A bundle may then be a repeat if it is the first of its DoFn instance,
because failed work is always restarted with new instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt to which the current bundles belong."""

    may_be_repeat: bool
    """Whether an earlier attempt may have sent some of what these bundles send."""
    commits_together: bool = False
    """Whether one commit covers all bundles that run at the same time on all workers, before the next ones start.
    Finalizers run after that commit."""


_current: ContextVar[Attempt | None] = ContextVar("rmqio_attempt", default=None)


def current() -> Attempt | None:
    """The attempt of the bundles that this thread runs; None: the runner does not report it."""
    return _current.get()


@contextmanager
def running(attempt: Attempt) -> Iterator[None]:
    """For runners: code in this context belongs to the attempt."""
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)
