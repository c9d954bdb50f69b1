"""Work that may be a repeat: what a runner knows of it, and how a writer finds out what it has already sent."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from rmqio.errors import LocalError
from rmqio.model import MessageQueue

# What waits until all stages of a bounded pipeline have ended, as a later one can fail: commits of group offsets.
#
# Beam calls a finalizer when the stage of its bundle is done. The runners of rmqio say whose calls wait for the
# stages behind it. Under other runners, nothing waits.

_LOGGER = logging.getLogger(__name__)
_endings: dict[str, Ending] = {}
"""By owner: the end that its calls wait for."""


class Ending:
    """The end of a pipeline. A context manager: if it has not come, what waits for it is forgotten."""

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._calls: dict[Hashable, tuple[int, Callable[[], object]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with _lock:
            for owner in self._owners:
                _endings.pop(owner, None)
            self._owners.clear()
            self._calls.clear()

    def awaited_by(self, owners: Iterable[str]) -> None:
        """Let calls of these owners wait."""
        with _lock:
            for owner in owners:
                self._owners.add(owner)
                _endings[owner] = self

    def come(self) -> None:
        """Make the calls that wait. Only logs errors, since in Beam a failed finalizer fails no pipeline."""
        with _lock:
            calls = [call for _, call in self._calls.values()]
            self._calls.clear()
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                _LOGGER.warning("a bundle finalizer failed: %s: %s", type(error).__name__, error)


def waits_for_end(owner: str, key: Hashable, position: int, call: Callable[[], object]) -> bool:
    """Whether a call waits for the end of its pipeline; if not, make it now.

    Of several calls with one key, the one with the highest position waits.
    """
    with _lock:
        ending = _endings.get(owner)
        if ending is None:
            return False
        known = ending._calls.get(key)
        if known is None or known[0] <= position:
            ending._calls[key] = position, call
        return True


# The runner's knowledge of the bundles that it runs, for the transforms that write in them.
#
# If a runner sets nothing, `current()` is None. A bundle may then be a repeat if it is the first of its DoFn
# instance, because failed work is always restarted with new instances.


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt to which the current bundles belong."""

    may_be_repeat: bool
    """Whether an earlier attempt may have sent some of what these bundles send."""
    commits_together: bool = False
    """Whether one commit covers all bundles that run at the same time on all workers, before the next ones start.
    Finalizers run after that commit."""


_current: ContextVar[Attempt | None] = ContextVar("rmqio_attempt", default=None)


def current_attempt() -> Attempt | None:
    """The attempt of the bundles that this thread runs; None: the runner does not report it."""
    return _current.get()


@contextmanager
def in_attempt(attempt: Attempt) -> Iterator[None]:
    """For runners: code in this context belongs to the attempt."""
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)


# `LookBack`: how a writer that may repeat work finds out which messages the sink already has.


@dataclass(frozen=True, slots=True)
class LookBack:
    """A writer that may repeat an earlier one's work first reads the ids in the sink, and sends only missing messages.

    For `WriteToRocketMQ(exactly_once=LookBack(group="..."))`. See docs/write.md for the conditions.

    Args:
      group: a consumer group of the sink. Its offsets are the positions where a look-back starts. The group belongs to
        one writing pipeline, and nobody else may commit to it. None: the write's producer group, if that is given.
      since: look back at least to this time (Unix milliseconds, or a datetime with a time zone), by the broker's clock.
        For a bounded pipeline that you start again by hand: each process then looks back, whatever its runner reports.
        None: look back to when the pipeline was built.
      redo_within_s: after a restart, everything that was sent but not committed comes again within this time. Until
        then the position does not move. Runners that commit all work together (Spark) do not need it.
      outage_timeout_s: how long a send with an unknown outcome waits for its broker before the bundle fails.
      max_messages: maximum number of messages to look back at, at 24 to 37 bytes each; more is an error.
    """

    group: str | None = None
    since: int | dt.datetime | None = None
    redo_within_s: float = 300.0
    outage_timeout_s: float = 120.0
    max_messages: int = 20_000_000

    def __post_init__(self) -> None:
        if self.group is not None and not isinstance(self.group, str):
            raise LocalError(f"LookBack.group is {self.group!r}; it must be the name of a consumer group")
        if isinstance(self.since, dt.datetime):
            if self.since.tzinfo is None:
                raise LocalError(f"LookBack.since is {self.since!r} and has no time zone: give one, e.g. tzinfo=UTC")
        elif self.since is not None and (isinstance(self.since, bool) or not isinstance(self.since, int)):
            raise LocalError(f"LookBack.since is {self.since!r}; it must be Unix milliseconds or a datetime")
        for name in ("redo_within_s", "outage_timeout_s", "max_messages"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise LocalError(f"LookBack.{name} is {value!r}; it must be a number greater than 0")
        if not isinstance(self.max_messages, int):
            raise LocalError(f"LookBack.max_messages is {self.max_messages!r}; it must be a whole number")
        if self.since_ms is not None and self.since_ms < 0:
            raise LocalError(f"LookBack.since is {self.since!r}; it must be a time since 1970")

    @property
    def since_ms(self) -> int | None:
        """`since` in Unix milliseconds."""
        return int(self.since.timestamp() * 1000) if isinstance(self.since, dt.datetime) else self.since


_EVEN: Final = 64
"""So many bundles are noted one by one, and then the fewer, the longer the first one has waited: commits can fail for
hours."""

_ticks = itertools.count(1)
_lock = threading.Lock()


class Uncommitted(NamedTuple):
    """The first thing that a restart reads again."""

    since: int
    """When the bundle began that emitted it."""
    queue: MessageQueue
    resumes: bool
    """Whether a restart goes on from commits; otherwise it reads this again for ever."""


class _Emitted:
    """What a read has emitted of a queue and not committed."""

    def __init__(self, commits: Hashable | None) -> None:
        self.commits = commits
        self.since: int | None = None
        """When a bundle began to emit whose end is not noted: it runs, or has failed."""
        self.until: deque[tuple[int, int]] = deque()
        """For each bundle, the offset at which it ended, and when it began. Only the first one, if nothing commits."""

    @property
    def first(self) -> int | None:
        return self.until[0][1] if self.until else self.since

    def end(self, position: int, since: int) -> None:
        if self.commits is None and self.until:
            return
        if len(self.until) >= _EVEN and (since - self.until[-1][1]) * _EVEN < since - self.until[0][1]:
            since = self.until.pop()[1]  # one entry for both bundles: it waits until both are committed
        self.until.append((position, since))


_emitted: dict[MessageQueue, dict[str, _Emitted]] = {}
"""By queue and read. What is committed is left out."""


def tick() -> int:
    """The current time."""
    return next(_ticks)


def note_begin(read: str, queue: MessageQueue, commits: Hashable | None) -> None:
    """Note that a bundle begins to emit messages of a queue.

    Args:
      read: the id of the read.
      commits: what is committed, from which a restart goes on: a factory and a group. None: a restart reads everything
        again.
    """
    with _lock:
        found = _emitted.setdefault(queue, {}).setdefault(read, _Emitted(commits))
        if found.since is None:
            found.since = tick()


def note_end(read: str, queue: MessageQueue, before: int, position: int) -> None:
    """Note that the bundle has emitted what is in the queue from `before` to `position`."""
    with _lock:
        found = _emitted.get(queue, {}).get(read)
        if found is None:  # it began while another one ran, whose end was committed
            return
        if found.since is not None and position > before:
            found.end(position, found.since)
        found.since = None
        _drop_committed(queue)


def note_commit(commits: Hashable, queue: MessageQueue, offset: float) -> None:
    """Note that a restart goes on at an offset of a queue; at infinity, if the queue exists no more."""
    with _lock:
        for each in _emitted.get(queue, {}).values():
            while each.commits == commits and each.until and each.until[0][0] <= offset:
                each.until.popleft()
        _drop_committed(queue)


def first_uncommitted(reads: Collection[str]) -> Uncommitted | None:
    """The first message that a restart reads again; None: there is none."""
    with _lock:
        found = [
            Uncommitted(first, queue, each.commits is not None)
            for queue, by_read in _emitted.items()
            for read, each in by_read.items()
            if read in reads and (first := each.first) is not None
        ]
    return min(found, default=None)


def _drop_committed(queue: MessageQueue) -> None:
    left = {read: each for read, each in _emitted.pop(queue, {}).items() if each.first is not None}
    if left:
        _emitted[queue] = left
