"""What a restart reads again if the runner keeps no checkpoint: what the reads of this process have not committed.

Reads note what they emit and what they have committed; the sink of an exactly-once write asks for what is left. Times
are ticks of one counter of this process.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Hashable, Iterable

from rmqio.model import MessageQueue

_ticks = itertools.count(1)
_lock = threading.Lock()


class _Emitted:
    """What a read has emitted of a queue and not committed."""

    def __init__(self, *, resumes: bool) -> None:
        self.resumes = resumes
        """Whether a restart goes on from commits."""
        self.since: int | None = None
        """When a bundle began to emit whose end is not noted: it runs, or has failed."""
        self.until: deque[tuple[int, int]] = deque()
        """For each bundle, the offset at which it ended, and when it began. Only the first one, if nothing commits."""

    @property
    def first(self) -> float:
        if self.until:
            return self.until[0][1]
        return math.inf if self.since is None else self.since


_emitted: dict[tuple[str, MessageQueue], _Emitted] = {}
_committing: dict[tuple[Hashable, MessageQueue], list[_Emitted]] = {}
"""By what is committed: a factory and a group."""


def tick() -> int:
    """The current time."""
    return next(_ticks)


def began(read: str, queue: MessageQueue, commits: Hashable | None) -> None:
    """Note that a bundle begins to emit messages of a queue.

    Args:
      read: the id of the read.
      commits: what is committed, from which a restart goes on; None: a restart reads everything again.
    """
    with _lock:
        found = _emitted.get((read, queue))
        if found is None:
            found = _emitted[read, queue] = _Emitted(resumes=commits is not None)
            if commits is not None:
                _committing.setdefault((commits, queue), []).append(found)
        if found.since is None:
            found.since = tick()


def ended(read: str, queue: MessageQueue, before: int, position: int) -> None:
    """Note that the bundle has emitted what is in the queue from `before` to `position`."""
    with _lock:
        found = _emitted[read, queue]
        if found.since is not None and position > before and (found.resumes or not found.until):
            found.until.append((position, found.since))
        found.since = None


def committed(commits: Hashable, queue: MessageQueue, offset: int) -> None:
    """Note that a restart goes on at an offset of a queue."""
    with _lock:
        for each in _committing.get((commits, queue), ()):
            while each.until and each.until[0][0] <= offset:
                each.until.popleft()


def uncommitted_since(reads: Iterable[str]) -> float:
    """When the first message was emitted that a restart reads again; infinity: there is none."""
    wanted = frozenset(reads)
    with _lock:
        return min((each.first for (read, _), each in _emitted.items() if read in wanted), default=math.inf)
