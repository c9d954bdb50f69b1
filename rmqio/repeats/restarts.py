"""What a restart reads again if the runner keeps no checkpoint: what the reads of this process have not committed.

Reads note what they emit and what they have committed; the sink of an exactly-once write asks for what is left. Times
are ticks of one counter of this process.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Collection, Hashable
from typing import Final, NamedTuple

from rmqio.model import MessageQueue

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


def began(read: str, queue: MessageQueue, commits: Hashable | None) -> None:
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


def ended(read: str, queue: MessageQueue, before: int, position: int) -> None:
    """Note that the bundle has emitted what is in the queue from `before` to `position`."""
    with _lock:
        found = _emitted.get(queue, {}).get(read)
        if found is None:  # it began while another one ran, whose end was committed
            return
        if found.since is not None and position > before:
            found.end(position, found.since)
        found.since = None
        _drop_committed(queue)


def committed(commits: Hashable, queue: MessageQueue, offset: float) -> None:
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
