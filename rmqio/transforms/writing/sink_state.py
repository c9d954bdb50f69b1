"""The state of a sink that a process writes exactly once: its position, and the ids in it.

The position is one offset per queue; before it, there is only committed work. The broker keeps it as the offsets of a
group. An older position only makes the look-back longer, so it can be moved late, and by any process that knows a safe
one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from rmqio import repeats
from rmqio.errors import RmqioError, TransportError
from rmqio.interfaces import QUEUES, ClientFactory, OffsetQuery, QueueClient
from rmqio.logs import event
from rmqio.model import MessageQueue
from rmqio.repeats import LookBack
from rmqio.sending.certain import stored_ids
from rmqio.transforms.shared import shared_client

# Many message ids and where each is stored: 24 bytes each when sorted in, 24 to 37 with the newest ones in a dict.

_OFFSET_BITS: Final = 48
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_MANY: Final = 65_536
"""Minimum number of ids in the dict before they are moved to the arrays."""


class KnownIds:
    """The offsets of ids, by two of Python's hashes: 128 bits, with a random key unless PYTHONHASHSEED fixes it.

    For an id that is stored several times, the place that was added first counts.
    """

    def __init__(self) -> None:
        self._sorted: tuple[Any, Any, Any] = tuple(np.empty(0, np.int64) for _ in range(3))  # type: ignore[assignment]
        self._waiting: list[tuple[Any, Any, Any]] = []
        self._count = 0
        self._new: dict[str, int] = {}
        self._queues: list[MessageQueue] = []
        self._numbers: dict[MessageQueue, int] = {}

    def __len__(self) -> int:
        return self._count + len(self._new)

    def add(self, queue: MessageQueue, places: Iterable[tuple[int, str]]) -> None:
        """Add offsets, and the ids that are stored there."""
        number = self._numbers.get(queue)
        if number is None:
            number = self._numbers[queue] = len(self._queues)
            self._queues.append(queue)
        base, keep = number << _OFFSET_BITS, self._new.setdefault
        for offset, message_id in places:
            keep(message_id, base | offset)
        if len(self._new) >= max(_MANY, self._count >> 3):
            self._put_away()

    def find(self, ids: Sequence[str]) -> list[tuple[MessageQueue, int] | None]:
        """The queue and offset of each id, or None."""
        found: list[tuple[MessageQueue, int] | None] = [None] * len(ids)
        for position, place in self._places(ids).items():
            found[position] = self._queues[place >> _OFFSET_BITS], place & _OFFSET
        return found

    def _places(self, ids: Sequence[str]) -> dict[int, int]:
        """The encoded places of known ids, by position in `ids`."""
        places: dict[int, int] = {}
        if self._new:
            new = self._new.get
            places.update((position, place) for position, each in enumerate(ids) if (place := new(each)) is not None)
        if self._waiting:
            self._sort_in()
        high, low, place_of = self._sorted
        if len(high) and ids:
            wanted = np.fromiter(map(hash, ids), np.int64, len(ids))
            starts = np.searchsorted(high, wanted)
            for position in np.flatnonzero(high[np.minimum(starts, len(high) - 1)] == wanted).tolist():
                at, second = int(starts[position]), _second(ids[position])
                while at < len(high) and high[at] == wanted[position]:
                    if low[at] == second:
                        places[position] = int(place_of[at])
                        break
                    at += 1
        return places

    def _put_away(self) -> None:
        new, count = self._new, len(self._new)
        self._waiting.append(
            (
                np.fromiter(map(hash, new), np.int64, count),
                np.fromiter(map(_second, new), np.int64, count),
                np.fromiter(new.values(), np.int64, count),
            )
        )
        self._count += count
        self._new = {}

    def _sort_in(self) -> None:
        high, low, places = (np.concatenate(each) for each in zip(self._sorted, *self._waiting, strict=True))
        self._waiting.clear()
        order = np.argsort(high, kind="stable")
        self._sorted = high[order], low[order], places[order]


def _second(message_id: str) -> int:
    return hash(message_id + "\n")


# Turns of threads: several at the same time, or one alone.


class Turns:
    """Lets threads take a turn together, or alone. Not reentrant. A thread that waits to be alone has precedence."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._is_alone = False
        self._waiting = 0

    @contextmanager
    def taken(self, *, alone: bool, timeout_s: float) -> Iterator[None]:
        """Take a turn. Raises `TransportError` if another thread keeps its turn for longer than `timeout_s`."""
        with self._changed:
            self._waiting += alone
            try:
                if not self._changed.wait_for(lambda: self._is_free(alone), timeout_s):
                    self._changed.notify_all()  # threads that waited for this one can continue
                    raise TransportError(f"another writer of this process has been sending for {timeout_s:.0f} s")
            finally:
                self._waiting -= alone
            self._is_alone = alone
            self._together += not alone
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._together -= not alone
                self._changed.notify_all()

    def _is_free(self, alone: bool) -> bool:
        if alone:
            return not self._is_alone and not self._together
        return not self._is_alone and not self._waiting


_LOGGER = logging.getLogger("rmqio.transforms")

CLOCKS_DIFFER_MS: Final = 60_000
"""How far the clock of the machine that built the pipeline can be ahead of the broker's clock."""
LANDING_S: Final = 1.0
"""Messages that a killed writer had in flight to the broker are stored within this time."""
_COMMIT_EVERY_S: Final = 1.0
_HELD_S: Final = 15.0
"""How long a position waits when it is safe: a broker that is killed loses the commits of a read of its last 5 s, and a
read that starts without its checkpoint goes on from a commit that can be `Sink.commits_s` old."""
_COMMITS_S: Final = 5.0
"""The time between commits that `_HELD_S` covers."""
_EVEN: Final = 64
"""So many positions wait one by one, and then the fewer, the longer the first one has waited: commits can fail for
hours."""
_WARN_EVERY_S: Final = 600.0

Offsets = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Sink:
    """The sink to look back in. Equal ones share the state of a process.

    Args:
      factory: creates clients that read the sink.
      group: the group whose offsets are the position; None: there is no position, and `built_ms` counts.
      look_back: the user's `LookBack`.
      built_ms: when the pipeline was built.
      reads: the ids of the reads that the position waits for, since a restart goes on from what they have committed;
        none: nobody knows from where, so the position stays. None: it goes on from a checkpoint of the runner.
      commits_s: the longest time between commits of the offsets from which a stream goes on without its checkpoint.
    """

    factory: ClientFactory
    group: str | None
    look_back: LookBack
    built_ms: int
    reads: tuple[str, ...] | None = None
    commits_s: float = 0.0

    @property
    def held_s(self) -> float:
        """How long a position waits when it is safe."""
        return _HELD_S + max(0.0, self.commits_s - _COMMITS_S)


@dataclass(slots=True)
class _Held:
    """Positions, and the tick by which everything before them was stored."""

    made: float
    at: int
    offsets: Offsets
    until: float | None = None
    """How long they are held after the reads have committed what was emitted before the tick; None: not yet."""


class SinkState:
    """This process's knowledge of a sink. A thread that looks back or sends possible repeats takes its turn alone."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.token = uuid.uuid4().hex
        self.turns = Turns()
        self.known: dict[str, KnownIds] | None = None
        """By topic: ids that were found, and those that were sent since. None: nothing is repeated."""
        self.generations: dict[str, int] = {}
        """By topic: how many writer instances have looked back."""
        self.floors: dict[MessageQueue, int] = {}
        """Messages that this process sends from now on have at least this offset."""
        self.final: dict[MessageQueue, int] = {}
        """Ends of what committed bundles have stored."""
        self._begins: dict[MessageQueue, int] = {}
        self._read: dict[MessageQueue, int] = {}
        self._looked_at = float("-inf")
        self._topics: set[str] = set()
        self._stored: dict[MessageQueue, int] = {}
        self._lock = threading.Lock()
        self._kept_until = float("-inf")
        self._alone_until = float("-inf")
        self._stays_until: dict[MessageQueue, float] = {}
        self._held: deque[_Held] = deque()
        """Positions that wait for commits of the reads, and then for `_HELD_S`."""
        self._waiting: dict[MessageQueue, int] = {}
        """Positions that are safe once the queue's position has stayed long enough."""
        self._wanted: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._moved_at = float("-inf")
        self._told_at = float("-inf")
        """When the position has moved, or a warning has said why it does not."""

    @property
    def client(self) -> QueueClient:
        return shared_client(self.sink.factory)

    # ---- looking back ----------------------------------------------------------------------------------------------

    @property
    def is_mixed(self) -> bool:
        """Whether replaced instances may still send beside those that repeat their work: then one sends at a time."""
        return time.monotonic() < self._alone_until

    @property
    def is_started_again(self) -> bool:
        """Whether the user has given `since`, and work of an earlier run may still be repeated."""
        if self.sink.look_back.since_ms is None:
            return False
        return not self.generations or time.monotonic() <= self._kept_until

    def look_back(self, topic: str, *, is_new: bool, stays: bool) -> int:
        """Read the ids from the position, or from the end of the last look, to the end. Returns the topic's generation.

        Must be called alone. Raises if any of the queues cannot be read: then nothing may be sent.

        Args:
          is_new: whether this is the first look of an instance.
          stays: whether the position stays until everything that was found may have been sent again.
        """
        is_first = topic not in self.generations
        if is_new and time.monotonic() - self._looked_at > LANDING_S and self._has_position(topic):
            time.sleep(LANDING_S)
        if time.monotonic() > self._kept_until:
            self.forget()  # it belongs to an earlier look; what may be repeated now is read again
        with self._lock:
            self._let_go()
        ends = self.open_topic(topic, whole=True)
        ranges = {queue: (max(self._read.get(queue, 0), self._begins[queue]), end) for queue, end in ends.items()}
        count = sum(end - begin for begin, end in ranges.values() if end > begin)
        if self.known is None:
            self.known = {}
        known = self.known.setdefault(topic, KnownIds())
        total = count + sum(map(len, self.known.values()))
        if total > self.sink.look_back.max_messages:
            later = ", or a later since=" if self.sink.group is None else ""
            raise RmqioError(
                f"looking back in topic {topic!r} over {total} messages, more than "
                f"LookBack.max_messages={self.sink.look_back.max_messages}: give more{later}"
            )
        began = time.monotonic()
        for queue, places in stored_ids(self.client, ranges):
            known.add(queue, places)
        self._read.update({queue: end for queue, (_, end) in ranges.items()})
        self._looked_at = now = time.monotonic()
        if count:
            _LOGGER.info("looked back over %d messages of topic %r in %.1f s", count, topic, now - began)
        redo_s = self.sink.look_back.redo_within_s
        if is_new:
            self.generations[topic] = self.generations.get(topic, 0) + 1
            self._kept_until = now + redo_s
            if not is_first:
                self._alone_until = now + self.sink.look_back.outage_timeout_s
        if stays:
            with self._lock:
                self._stays_until.update({queue: now + redo_s for queue, (begin, end) in ranges.items() if begin < end})
        return self.generations.get(topic, 0)

    def _has_position(self, topic: str) -> bool:
        if self.sink.group is None:
            return True
        queries = [OffsetQuery(queue, "committed", group=self.sink.group) for queue in self.client.queues(topic)]
        return any(each is not None for each in self._answers(queries))

    def there(self, topic: str, ids: Sequence[str]) -> list[tuple[MessageQueue, int] | None] | None:
        """The offsets of the known ids in the topic; None: nothing is repeated any more."""
        held = self.known  # another thread can forget it
        if held is None:
            return None
        now = time.monotonic()
        if now > self._kept_until:
            self.forget()
            return None
        known = held.get(topic)
        if not known:
            return None
        found = known.find(ids)
        if any(found):  # work is still being repeated
            redo_s = self.sink.look_back.redo_within_s
            self._kept_until = now + redo_s
            with self._lock:
                self._stays_until.update(
                    {queue: now + redo_s for queue, until in self._stays_until.items() if until > now}
                )
        return found

    def add_known(self, queue: MessageQueue, places: Sequence[tuple[int, str]]) -> None:
        """Add what one instance has stored while others may look for it. Must be called alone."""
        held = self.known
        if held is None or not places:
            return
        held.setdefault(queue.topic, KnownIds()).add(queue, places)
        first, last = places[0][0], places[-1][0]
        if self._read.get(queue) == first and last - first == len(places) - 1:
            self._read[queue] = last + 1  # otherwise the next look reads it once more

    def forget(self) -> None:
        """Drop the known ids: nothing is repeated from now on."""
        self.known = None
        self._read.clear()

    # ---- floors ----------------------------------------------------------------------------------------------------

    def is_open(self, topic: str) -> bool:
        """Whether the positions of the topic's queues are known."""
        return topic in self._topics

    def open_topic(self, topic: str, *, whole: bool = False) -> dict[MessageQueue, int]:
        """Look up where the look-backs of the topic's queues start; returns their ends. Commits missing positions.

        The ends are looked up first: what another writer stores after it has found no position is after ours.

        Raises `TransportError` while there is no queue to look at; with `whole`, also while one that was there is
        unavailable.
        """
        sink, queues = self.sink, self.client.queues(topic)
        if not queues:
            raise TransportError(
                f"topic {topic!r} has no readable queues, and an exactly-once write looks back in it: give it the "
                "permission to read on its brokers"
            )
        ends = self._numbers(queues, "max")
        since = sink.look_back.since_ms
        built_ms = sink.built_ms - CLOCKS_DIFFER_MS
        by_time = self._numbers(queues, "time", built_ms if since is None else min(since, built_ms))
        begins = {queue: min(by_time[queue], end) for queue, end in ends.items()}
        if sink.group is not None:
            self._count(queues, sink.group + QUEUES, must=whole)
            asked = [OffsetQuery(queue, "committed", group=sink.group) for queue in queues]
            positions = dict(zip(queues, self._answers(asked), strict=True))
            self._commit({queue: begins[queue] for queue in queues if positions[queue] is None}, must=True)
            for queue, position in positions.items():
                if position is None:
                    continue
                if position > ends[queue]:  # the topic was deleted and recreated
                    position = 0
                begins[queue] = position if since is None else min(position, begins[queue])
        self._begins.update(begins)
        for queue, begin in begins.items():
            self.floors.setdefault(queue, begin)
        self._topics.add(topic)
        return ends

    def _count(self, queues: Sequence[MessageQueue], group: str, *, must: bool) -> None:
        """Store the number of queues for each queue: a name server soon forgets queues of an unavailable broker."""
        counts = self._answers([OffsetQuery(queue, "committed", group=group) for queue in queues])
        most = max(len(queues), *(count or 0 for count in counts))
        if must and most > len(queues):
            raise TransportError(
                f"{most - len(queues)} of {most} queues of topic {queues[0].topic!r} are unavailable, and what an "
                f"earlier attempt wrote to them is unknown. If they were removed, reset the offsets of group {group}"
            )
        changed = {queue: most for queue, count in zip(queues, counts, strict=True) if count != most}
        for error in (self.client.commit_offsets(group, changed) if changed else {}).values():
            raise error

    def _numbers(
        self, queues: Sequence[MessageQueue], kind: Literal["max", "time"], at: int = 0
    ) -> dict[MessageQueue, int]:
        answers = self._answers([OffsetQuery(queue, kind, timestamp_ms=at) for queue in queues])
        return {queue: answer or 0 for queue, answer in zip(queues, answers, strict=True)}

    def _answers(self, queries: Sequence[OffsetQuery]) -> list[int | None]:
        found: list[int | None] = []
        for answer in self.client.look_up(queries):
            if isinstance(answer, RmqioError):
                raise answer
            found.append(answer)
        return found

    # ---- what is stored, and final ---------------------------------------------------------------------------------

    def stored(self, queue: MessageQueue, last: int) -> None:
        """Record that this process has stored a message at `last`."""
        with self._lock:
            if last >= self._stored.get(queue, 0):
                self._stored[queue] = last + 1
            if last >= self.floors.get(queue, 0):
                self.floors[queue] = last + 1

    def all_stored(self) -> dict[MessageQueue, int]:
        """Offsets before which everything has been stored at this moment: a lower bound of the queues' ends."""
        with self._lock:
            return dict(self._stored)

    def all_final(self) -> dict[MessageQueue, int]:
        """The same for committed bundles."""
        with self._lock:
            return dict(self.final)

    def note_final(self, offsets: Offsets) -> None:
        """Record that a bundle is committed that had stored up to these offsets."""
        with self._lock:
            for queue, offset in offsets.items():
                self.final[queue] = max(offset, self.final.get(queue, 0))

    def move(self, offsets: Offsets, at: int = 0) -> None:
        """Move the position, forward only, and at most once per second. A failure is only logged: it costs time.

        `at`: the tick (`restarts`) by which everything before these offsets was stored.
        """
        now = time.monotonic()
        with self._lock:
            if now - self._moved_at < _COMMIT_EVERY_S:
                return
            idle_s, self._moved_at = now - self._moved_at, now
            first = None if self.sink.reads is None else repeats.first_uncommitted(self.sink.reads)
            if self.sink.reads != ():
                self._hold(_Held(now, at, offsets))
                self._release(now, first)
                self._let_go()
            moved = {queue: at for queue, at in self._wanted.items() if at > self._committed.get(queue, -1)}
            patience_s = _WARN_EVERY_S + self.sink.held_s + self.sink.look_back.redo_within_s
            is_stuck = not moved and now - self._told_at > patience_s >= idle_s
            if moved or is_stuck or idle_s > patience_s:
                self._told_at = now
        if is_stuck:
            self._tell(first)
        try:
            self._commit(moved)
        except RmqioError as error:
            _LOGGER.warning("group %s: the position of the sink was not moved: %s", self.sink.group, error)

    def _hold(self, new: _Held) -> None:
        """Must be called with the lock. To leave out a position is safe: the next one replaces it, only later."""
        held = self._held
        if len(held) < _EVEN or (new.made - held[-1].made) * _EVEN >= new.made - held[0].made:
            held.append(new)

    def _release(self, now: float, first: repeats.Uncommitted | None) -> None:
        """Lets the positions wait no more that a restart cannot read before. Must be called with the lock."""
        for each in self._held:
            if first is None or each.at <= first.since:
                each.until = each.until or now + self.sink.held_s
        while first is not None and not first.resumes and self._held and self._held[-1].at > first.since:
            self._held.pop()  # it would wait for ever
        while self._held and (until := self._held[0].until) is not None and until <= now:
            for queue, offset in self._held.popleft().offsets.items():
                self._waiting[queue] = max(offset, self._waiting.get(queue, 0))

    def _tell(self, first: repeats.Uncommitted | None) -> None:
        """Logs why the position stays, since nothing else shows it until a writer looks back over too much."""
        if self.sink.reads == ():
            why = "nobody knows which elements come again, as not all come from reads of RocketMQ in this process"
        elif first is None:
            redo_s = self.sink.look_back.redo_within_s
            why = f"work may still be repeated, since writers look back more often than redo_within_s ({redo_s:g} s)"
        elif first.resumes:
            why = f"what was read of {first.queue} is not committed"
        else:
            why = f"a read of {first.queue} does not resume from committed offsets, so a restart reads everything again"
        _LOGGER.warning(
            "group %s: the position of the sink does not move: %s. A writer that starts again looks back over all that "
            "was written since, at most LookBack.max_messages (%d)",
            *(self.sink.group, why, self.sink.look_back.max_messages),
        )

    def _let_go(self) -> None:
        """Release the positions that have waited long enough. Must be called with the lock."""
        now = time.monotonic()
        for queue, offset in [*self._waiting.items()]:
            if now >= self._stays_until.get(queue, now):
                self._wanted[queue] = max(offset, self._wanted.get(queue, 0))
                del self._waiting[queue]

    def _commit(self, offsets: Offsets, *, must: bool = False) -> None:
        if not offsets or self.sink.group is None:
            return
        failed = self.client.commit_offsets(self.sink.group, offsets)
        for queue, offset in offsets.items():
            if queue not in failed:
                self._committed[queue] = offset
        for queue, error in failed.items():
            if must:
                raise error
            fields = event(queue=queue, offset=offsets[queue], group=self.sink.group, error=error)
            _LOGGER.warning("the position of %s was not moved to %d: %s", queue, offsets[queue], error, extra=fields)


_states: dict[tuple[int, Sink], SinkState] = {}
_lock = threading.Lock()


def state_of(sink: Sink) -> SinkState:
    """This process's state of a sink."""
    with _lock:
        return _states.setdefault((os.getpid(), sink), SinkState(sink))


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _states.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def as_list(offsets: Offsets) -> list[tuple[str, str, int, int]]:
    """Converts offsets to lists for JSON."""
    return [(*queue, offset) for queue, offset in offsets.items()]


def from_list(found: Iterable[Sequence[str | int]]) -> dict[MessageQueue, int]:
    """The inverse of `as_list`."""
    return {
        MessageQueue(str(topic), str(broker), int(queue_id)): int(offset) for topic, broker, queue_id, offset in found
    }
