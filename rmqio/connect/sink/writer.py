"""Buffer and delivery together, with a thread that writes what has waited long enough."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable
from typing import Final, NamedTuple

from rmqio.connect.sink.base import BatchSink
from rmqio.connect.sink.buffer import Buffer, Item
from rmqio.connect.sink.delivery import Delivery
from rmqio.connect.sink.options import Batching, Retry
from rmqio.errors import counted
from rmqio.logs import event

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
