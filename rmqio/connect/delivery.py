"""Rows to a sink: they wait for their batch, which is written until it is safe, halved while rows are at fault."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

from rmqio.connect.outage import Outage, Tries
from rmqio.connect.sink import Batching, BatchSink, PerhapsRefused, Retry, SinkFailed, Verdict, Written
from rmqio.errors import LocalError, counted
from rmqio.logs import event
from rmqio.model import MessageQueue

# Rows that wait for their batch, by destination.


class Item(NamedTuple):
    """A row that waits."""

    row: Any
    value: Any
    """Its source: the element, or a value of a batch."""
    place: tuple[MessageQueue, int] | None
    origin: Any
    """A WindowedValue with the windows, timestamp and pane of the element."""


class _Waiting:
    __slots__ = ("items", "since", "size")

    def __init__(self, since: float) -> None:
        self.items: list[Item] = []
        self.size = 0
        self.since = since


class Buffer:
    """Gathers rows. `add` returns the batch that is due, if one is."""

    def __init__(self, options: Batching) -> None:
        self._options = options
        self._waiting: dict[Hashable, _Waiting] = {}
        """By destination, the oldest first."""
        self.total = 0
        """About how many bytes wait."""

    def add(self, item: Item, destination: Hashable, size: int, now: float) -> list[tuple[Hashable, list[Item]]]:
        """Returns the batches to be written now, in order."""
        options, due = self._options, []
        found = self._waiting.get(destination)
        if found is not None and found.size + size > options.max_bytes:
            due.append((destination, self._take(destination)))
            found = None
        if found is None:
            found = self._waiting[destination] = _Waiting(now)
        found.items.append(item)
        found.size += size
        self.total += size
        if len(found.items) >= options.max_rows or found.size >= options.max_bytes:
            due.append((destination, self._take(destination)))
        while self.total > options.max_total_bytes:
            largest = max(self._waiting, key=lambda each: self._waiting[each].size)
            due.append((largest, self._take(largest)))
        return due

    def oldest(self) -> float | None:
        """Returns since when the row waits that has waited longest; None: none waits."""
        return next((each.since for each in self._waiting.values()), None)

    def older_than(self, since: float) -> list[tuple[Hashable, list[Item]]]:
        """Takes the batches whose first row came then or before."""
        found = [name for name, each in self._waiting.items() if each.since <= since]
        return [(name, self._take(name)) for name in found]

    def all(self) -> list[tuple[Hashable, list[Item]]]:
        """Takes everything."""
        return [(name, self._take(name)) for name in list(self._waiting)]

    def clear(self) -> None:
        """Drops everything: its bundle has failed, and will come again."""
        self._waiting.clear()
        self.total = 0

    def _take(self, destination: Hashable) -> list[Item]:
        found = self._waiting.pop(destination)
        self.total -= found.size
        return found.items


_DOUBTS: Final = 20
"""So many rows that are `PerhapsRefused`, with none written before or between, are the fault of the set-up."""
_doubts: Counter[tuple[str, Hashable]] = Counter()
"""Such rows of this process, by sink and destination: Spark has a new writer for each micro-batch."""


class Delivery:
    """Writes batches to one sink. `clock`, `sleep`, `spread` and `outage` are for tests."""

    def __init__(
        self,
        sink: BatchSink,
        retry: Retry,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        spread: Callable[[], float] = random.random,
        outage: Outage | None = None,
    ) -> None:
        self._sink, self._retry = sink, retry
        self._clock, self._sleep, self._spread, self._outage = clock, sleep, spread, outage
        self._took: set[Hashable] = set()
        """The destinations that have taken a row: their set-up is right."""
        self.retries = 0
        """Tries after the first one, since this was last set to 0."""

    def open(self) -> None:
        """Opens the sink. Raises what cannot be retried, and `SinkFailed` if retries did not help."""
        tries = self._tries()
        while True:
            try:
                self._sink.open()
            except Exception as error:
                if self._sink.judge(error) is not Verdict.RETRY:
                    raise
                self._wait(tries, error)
            else:
                if tries.has_waited:  # many a sink connects with its first write only
                    tries.passed()
                return

    def write(self, destination: Hashable, items: Sequence[Item]) -> list[tuple[Item, Exception]]:
        """Returns the refused rows with their errors; all others are written.

        Raises what the sink calls a failure of the set-up, and `SinkFailed` if retries did not help. It is also one
        of the set-up if this writer has written no row, and many are `PerhapsRefused`, in this batch or in those
        before: a few bad rows must not stop a job at each restart, nor a wrong set-up refuse a whole table.
        """
        refused: list[tuple[Item, Exception]] = []
        left = [list(items)]
        while left:
            batch = left.pop()
            halves = self._write(destination, batch, refused)
            left.extend(reversed(halves))  # in the order of the rows
        key = self._sink.name, destination
        if len(refused) < len(items):
            self._took.add(destination)
            _doubts.pop(key, None)
        perhaps = [error for _, error in refused if isinstance(error, PerhapsRefused)]
        if not perhaps or destination in self._took:
            return refused
        _doubts[key] += len(perhaps)
        if _doubts[key] >= _DOUBTS:
            raise LocalError(
                f"{self._sink.name} takes none of {counted(_doubts[key], 'row')}, and has taken no other, so it seems "
                f"to be set up for other rows: {perhaps[0]}. Change it, or what the rows contain; nothing is dropped"
            ) from perhaps[0]
        return refused

    def _write(
        self, destination: Hashable, batch: list[Item], refused: list[tuple[Item, Exception]]
    ) -> list[list[Item]]:
        """Returns what has to be written in parts instead."""
        tries = self._tries()
        while batch:
            try:
                outcome = self._sink.write([item.row for item in batch], destination) or Written()
            except Exception as error:
                verdict = self._sink.judge(error)
                if verdict is Verdict.FAIL:
                    raise
                if verdict is Verdict.RETRY:
                    self._wait(tries, error)
                    continue
                tries.passed()  # it answers
                if len(batch) > 1:
                    middle = len(batch) // 2
                    return [batch[:middle], batch[middle:]]
                refused.append((batch[0], error))
                return []
            _require_positions(self._sink, outcome, len(batch))
            refused.extend((batch[position], error) for position, error in outcome.refused.items())
            if not outcome.again:
                tries.passed()
                return []
            if len(outcome.again) < len(batch):
                tries = self._tries()  # it goes on
            batch = [batch[position] for position in sorted(outcome.again)]
            self._wait(tries, next(iter(outcome.again.values())))
        return []

    def _wait(self, tries: Tries, error: Exception) -> None:
        tries.wait(error)
        self.retries += 1

    def _tries(self) -> Tries:
        return Tries(
            self._sink.name, self._retry, SinkFailed,
            clock=self._clock, sleep=self._sleep, spread=self._spread, outage=self._outage,
        )  # fmt: skip


def _require_positions(sink: BatchSink, outcome: Any, count: int) -> None:
    if not isinstance(outcome, Written):
        raise LocalError(f"{sink.name}: write returned {type(outcome).__name__}; it must return None or Written")
    wrong = [each for each in (*outcome.refused, *outcome.again) if not (isinstance(each, int) and 0 <= each < count)]
    if wrong or outcome.refused.keys() & outcome.again.keys():
        raise LocalError(f"{sink.name}: write returned wrong positions of a batch of {count}: {outcome}")


# Buffer and delivery together, with a thread that writes what has waited long enough.

_LOGGER = logging.getLogger("rmqio.connect")
_UNSEEN_S: Final = 5.0
"""Rows that the thread has found to be refused are logged if the bundle has not taken them for so long."""


class Counted(NamedTuple):
    """Events since the last `Writer.take`."""

    rows: int
    batches: int
    retries: int
    seconds: float
    refused: list[tuple[Item, Exception]]


class Writer:
    """Gathers rows and writes them. Thread-safe; the sink is called under the lock."""

    def __init__(self, sink: BatchSink, batching: Batching, retry: Retry) -> None:
        self._sink, self._batching = sink, batching
        self._delivery = Delivery(sink, retry)
        self._buffer = Buffer(batching)
        self._lock = threading.Condition(threading.RLock())
        self._error: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._rows = self._batches = 0
        self._seconds = 0.0
        self._refused: list[tuple[Item, Exception]] = []
        self._unseen_since: float | None = None
        """When the thread wrote refused rows that neither the bundle has taken nor the log has."""

    def open(self) -> None:
        """Connects."""
        self._delivery.open()

    def begin(self) -> None:
        """Begins a bundle: drops what an earlier one left when it failed."""
        with self._lock:
            self._buffer.clear()
            self._refused = []
            self._unseen_since = self._error = None

    def add(self, item: Item, destination: Hashable, size: int) -> None:
        """Adds a row, and writes the batches that are due. Raises what failed, here or in the thread."""
        with self._lock:
            self._raise()
            was_empty = self._buffer.oldest() is None
            self._write(self._buffer.add(item, destination, size, time.monotonic()))
            if was_empty and self._batching.max_wait_s is not None and self._buffer.oldest() is not None:
                self._watch()

    def finish(self) -> None:
        """Writes everything that waits. Raises what failed."""
        with self._lock:
            self._raise()
            self._write(self._buffer.all())

    def take(self) -> Counted:
        """Returns what happened since the last call. Beam's metrics are for the thread of the bundle only."""
        with self._lock:
            found = Counted(self._rows, self._batches, self._delivery.retries, self._seconds, self._refused)
            self._rows = self._batches = self._delivery.retries = 0
            self._seconds = 0.0
            self._refused = []
            self._unseen_since = None
            return found

    @property
    def has_news(self) -> bool:
        """Whether `take` has something."""
        return bool(self._refused or self._batches)

    def refuse(self, item: Item, error: Exception) -> None:
        """Notes an element that is not a row."""
        with self._lock:
            self._refused.append((item, error))

    def close(self) -> None:
        """Ends the thread and disconnects. Drops waiting elements: `finish` comes before, unless the bundle failed."""
        with self._lock:
            self._closed = True
            self._buffer.clear()
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._sink.close()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self, batches: list[tuple[Hashable, list[Item]]]) -> None:
        for destination, items in batches:
            began = time.monotonic()
            refused = self._delivery.write(destination, items)
            self._seconds += time.monotonic() - began
            self._refused.extend(refused)
            self._rows += len(items) - len(refused)
            self._batches += 1

    def _watch(self) -> None:
        """Makes sure that the thread knows of the row that waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"rmqio {self._sink.name}", daemon=True)
            self._thread.start()
        else:
            self._lock.notify_all()

    def _run(self) -> None:
        wait_s = self._batching.max_wait_s
        assert wait_s is not None
        with self._lock:
            while not self._closed:
                now, oldest = time.monotonic(), self._buffer.oldest()
                if self._unseen_since is not None and now >= self._unseen_since + _UNSEEN_S:
                    self._warn()
                if oldest is None or oldest + wait_s > now:
                    times = [] if oldest is None else [oldest + wait_s]
                    times += [] if self._unseen_since is None else [self._unseen_since + _UNSEEN_S]
                    self._lock.wait(min(times) - now if times else None)
                    continue
                before = len(self._refused)
                try:
                    self._write(self._buffer.older_than(now - wait_s))
                    if len(self._refused) > before and self._unseen_since is None:
                        self._unseen_since = time.monotonic()
                except BaseException as error:  # noqa: BLE001  # raised by the next call of the bundle
                    _LOGGER.error("%s: the bundle will fail: %s", self._sink.name, error)
                    self._error = error
                    self._buffer.clear()

    def _warn(self) -> None:
        """Logs refused rows while no element comes: only the bundle's thread can output or raise something."""
        self._unseen_since = None
        error, count = self._refused[0][1], len(self._refused)
        _LOGGER.warning(
            "%s refuses %s; the first: %s: %s; the next element, or the end of the bundle, takes them further",
            self._sink.name, counted(count, "row"), type(error).__name__, error, extra=event(count=count),
        )  # fmt: skip
