"""What a runner knows of the bundles that it runs, told to whoever writes in them.

A runner that says nothing leaves `current()` None: then a bundle may be a repeat if it is the first of its DoFn's
instance, since what fails is begun anew with new instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Of the bundles that run now."""

    may_be_repeat: bool
    """Whether an earlier attempt may have sent some of what these bundles send."""
    commits_together: bool = False
    """Whether all bundles of all workers that run at the same time are committed by one commit, before the next ones
    begin; finalizers run after that."""


_current: ContextVar[Attempt | None] = ContextVar("rmqio_attempt", default=None)


def current() -> Attempt | None:
    """Of the bundles that this thread runs; None: the runner does not say."""
    return _current.get()


@contextmanager
def running(attempt: Attempt) -> Iterator[None]:
    """For runners: what is run inside is of this attempt."""
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)
