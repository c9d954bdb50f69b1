"""Limits how many records a read emits per second, without a word between its workers.

Each queue is read by one worker at a time. A process may therefore take the part of the limit that belongs to the
queues that it reads, and its queues share that: all processes together stay below the limit. A queue that has nothing
to read leaves its part to the others of its process.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory
from rmqio.topics import Subscription
from rmqio.transforms.shared import shared_client

BURST_S: Final = 0.5
"""Seconds of the limit that may be read at once, after a pause; as many again can be borrowed."""
WAIT_S: Final = 0.2
"""The longest wait of one visit of a queue: a bundle must end soon, so that others are read and checkpoints happen."""
_POLL: Final = 32
_COUNT_EVERY_S: Final = 30.0
_GONE_AFTER_S: Final = 10.0
_MOST_ELAPSED_S: Final = 60.0


@dataclass(frozen=True)
class RateLimit:
    """The limit of one read.

    Args:
      records_per_second: of all queues together.
      subscription: what is read; tells how many queues share the limit.
      read_id: identifies the read among those of a process.
      alone: whether one process reads everything, and may take the whole limit.
      splits_per_queue: how many processes may read parts of one queue.
    """

    records_per_second: float
    subscription: Subscription
    read_id: str
    alone: bool = False
    splits_per_queue: int = 1


def checked_rate(value: float | None) -> float | None:
    """The argument `max_records_per_second`. Raises `LocalError`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < value < math.inf):
        raise LocalError(f"max_records_per_second is {value!r}; it must be a number above 0, or None for no limit")
    return value


class TokenBucket:
    """Tokens that arrive at a rate, of which at most `BURST_S` seconds' worth are kept. Not thread-safe.

    In t seconds it gives at most `rate * (t + BURST_S)` tokens, or one more at rates too low for a whole token.

    Args:
      clock: monotonic seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rate = rate
        self._tokens = self.capacity
        self._at = clock()

    @property
    def capacity(self) -> float:
        return max(1.0, self._rate * BURST_S)

    @property
    def lendable(self) -> int:
        """Whole tokens that may be borrowed at once."""
        return int(self._rate * BURST_S)

    def set_rate(self, rate: float) -> None:
        """Change the rate from now on."""
        if rate != self._rate:
            self._fill()
            self._rate = rate
            self._tokens = min(self._tokens, self.capacity)

    def take(self, most: int, least: int = 1) -> int:
        """Take up to `most` whole tokens, or none while there are fewer than `least`."""
        self._fill()
        if self._tokens < min(least, self.capacity):
            return 0
        taken = min(most, int(self._tokens))
        self._tokens -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return tokens that were not used; a negative count takes more than there are, which later ones pay for."""
        self._tokens = min(self.capacity, self._tokens + count)

    def wait_s(self, least: int = 1) -> float:
        """Seconds until `take` would give something."""
        self._fill()
        return max(0.0, (min(least, self.capacity) - self._tokens) / self._rate)

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self.capacity, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Pacer:
    """The tokens of one read in this process. Thread-safe.

    Args:
      count_queues: how many queues the read has in all; called seldom, may raise `RmqioError`.
    """

    def __init__(
        self,
        limit: RateLimit,
        count_queues: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = limit
        self._count_queues = count_queues
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._active: dict[Hashable, float] = {}
        self._total = 0
        self._counted_at = -math.inf
        self._bucket: TokenBucket | None = None

    def take(self, part: Hashable, most: int, until: float) -> tuple[int, float]:
        """Take up to `most` tokens, waiting for them until the clock shows `until`.

        `part`: the queue, or the part of it, for which they are; each that is read here has its share of the limit.

        Returns the tokens, 0 if there are none yet, and the seconds that it has waited.
        """
        waited = 0.0
        least = min(_POLL, most)
        while True:
            with self._lock:
                bucket = self._current(part)
                taken = bucket.take(most, least)
                wait_s = 0.0 if taken else max(bucket.wait_s(least), 0.001)
            left_s = until - self._clock()
            if taken or left_s <= 0:
                return taken, waited
            self._sleep(min(wait_s, left_s))
            waited += min(wait_s, left_s)

    def give_back(self, count: int) -> None:
        """Return unused tokens, or with a negative count take more; see `cut_at`."""
        with self._lock:
            if self._bucket is not None:
                self._bucket.give_back(count)

    def cut_at(self, taken: int) -> int:
        """How many records of one answer may be emitted with these tokens.

        An answer can have more records than tokens were taken. The rest is borrowed if that is less than `BURST_S` of
        this process's part of the limit; otherwise the answer is cut, and pulled again later.
        """
        with self._lock:
            return taken + (0 if self._bucket is None else self._bucket.lendable)

    def done(self, part: Hashable) -> None:
        """Note that a queue, or a part of it, is no longer read here."""
        with self._lock:
            self._active.pop(part, None)

    def _current(self, part: Hashable) -> TokenBucket:
        now = self._clock()
        self._active[part] = now
        if len(self._active) > 1:
            for old in [each for each, at in self._active.items() if now - at > _GONE_AFTER_S]:
                del self._active[old]
        rate = self._limit.records_per_second
        if not self._limit.alone:
            parts = self._counted(now) * self._limit.splits_per_queue
            rate *= len(self._active) / max(parts, len(self._active))
        if self._bucket is None:
            self._bucket = TokenBucket(rate, self._clock)
        self._bucket.set_rate(rate)
        return self._bucket

    def _counted(self, now: float) -> int:
        if now - self._counted_at >= _COUNT_EVERY_S:
            self._counted_at = now
            with contextlib.suppress(RmqioError):  # name servers are away: the last number stays
                self._total = self._count_queues()
        return self._total


class PlanPace:
    """The limit of a read whose micro-batches are planned: what may be planned is what the time since the last plan is
    worth.

    Args:
      clock: monotonic seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._at: float | None = None
        self._rest = 0.0

    def due(self) -> int:
        """How many records the next micro-batch may read; called once for each."""
        now = self._clock()
        elapsed = BURST_S if self._at is None else min(now - self._at, _MOST_ELAPSED_S)
        self._at = now
        due = self._rest + elapsed * self._rate
        self._rest = due % 1
        return int(due)


_lock = threading.Lock()
_pacers: dict[tuple[str, ClientFactory], Pacer] = {}


def pacer_of(limit: RateLimit, factory: ClientFactory) -> Pacer:
    """This process's pacer of a read."""
    with _lock:
        found = _pacers.get((limit.read_id, factory))
        if found is None:

            def count_queues() -> int:
                return len(limit.subscription.find_queues(shared_client(factory), missing_ok=True))

            found = _pacers[limit.read_id, factory] = Pacer(limit, count_queues)
        return found


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _pacers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
