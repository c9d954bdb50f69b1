"""Batches that do not wait for long: a thread sends those that are old enough."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rmqio.model import Message, SendResult
from rmqio.sending.accumulator import BatchAccumulator
from rmqio.sending.outcomes import Outcomes

_LOGGER = logging.getLogger("rmqio.transforms")


class Deferred:
    """Outcomes that the thread of the bundle learns later, if another one sees them. Beam's metrics are that thread's.

    `is_elsewhere` is set by the other thread while it sends.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._later: list[Callable[[], None]] = []
        self.is_elsewhere = False

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """As `Outcomes`."""
        self._tell(partial(self._outcomes.sent, origins, messages, results, latency_s))

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """As `Outcomes`."""
        self._tell(partial(self._outcomes.failed, element, origin, message, topic, error))

    def settle(self) -> None:
        """Tell what the other thread has seen. For the thread of the bundle."""
        later, self._later = self._later, []
        for tell in later:
            tell()

    def clear(self) -> None:
        """Drop what the other thread has seen: its bundle has failed."""
        self._later = []

    def _tell(self, tell: Callable[[], None]) -> None:
        if self.is_elsewhere:
            self._later.append(tell)
        else:
            tell()


class TimedAccumulator:
    """A `BatchAccumulator` whose batches are sent after `max_wait_s`, also while no message is added.

    Order and delivery are those of the accumulator: all calls, and the thread, take turns. The next call raises an
    error of the thread, and nothing more is sent before `begin`.

    Args:
      accumulator: the accumulator, with `deferred` as its outcomes and those of its sender.
      clock: that of the accumulator.
    """

    def __init__(
        self,
        accumulator: BatchAccumulator,
        deferred: Deferred,
        max_wait_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accumulator = accumulator
        self._deferred = deferred
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._turn = threading.Condition(threading.RLock())
        self._error: BaseException | None = None
        self._is_open = False
        """Whether a bundle runs. The rest of one that has failed here is not sent."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """As `BatchAccumulator.begin`."""
        with self._turn:
            self._error = None
            self._deferred.clear()
            self._accumulator.begin()
            self._is_open = True

    def add(self, message: Message, topic: str, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """As `BatchAccumulator.add`. Also raises what has failed in the thread."""
        with self._turn:
            self._adding(partial(self._accumulator.add, message, topic, message_id, element, origin, size))

    def extend(
        self,
        messages: Sequence[Message],
        topic: str,
        ids: Sequence[str | None],
        elements: Sequence[Any],
        origin: Any,
        sizes: Sequence[int],
    ) -> None:
        """As `BatchAccumulator.extend`. Also raises what has failed in the thread."""
        with self._turn:
            self._adding(partial(self._accumulator.extend, messages, topic, ids, elements, origin, sizes))

    def finish(self) -> None:
        """As `BatchAccumulator.finish`. Also raises what has failed in the thread."""
        with self._turn:
            self._raise()
            self._is_open = False
            self._deferred.settle()
            self._accumulator.finish()

    def close(self) -> None:
        """End the thread. It finishes what it is sending."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()

    def send_due(self) -> float | None:
        """Send what has waited long enough. Returns the seconds until there is more to send; None: nothing waits."""
        with self._turn:
            oldest = self._accumulator.oldest() if self._is_open else None
            left = None if oldest is None else oldest + self._max_wait_s - self._clock()
            if left is None or left > 0:
                return left
            self._deferred.is_elsewhere = True
            try:
                self._accumulator.send_older(self._clock() - self._max_wait_s)
            except BaseException as error:  # noqa: BLE001  # raised by the next call of the bundle
                _LOGGER.error("the bundle will fail: %s", error)
                self._error = error
                self._is_open = False
            finally:
                self._deferred.is_elsewhere = False
            return 0

    def _adding(self, add: Callable[[], None]) -> None:
        self._raise()
        self._deferred.settle()
        waited = self._accumulator.oldest() is not None
        try:
            add()
            if not waited and self._accumulator.oldest() is not None:
                self._wake()
        except BaseException:
            self._is_open = False
            raise

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rmqio max_wait_ms", daemon=True)
            thread.start()  # if it cannot, the next bundle tries again
            self._thread = thread
        else:
            self._turn.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with self._turn:
            while not self._is_closed:
                left = self.send_due()
                if left != 0:
                    self._turn.wait(left)
