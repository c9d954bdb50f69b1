"""One batch until it is safe: written again while the system is away, halved while rows of it are at fault."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from rmqio.connect.sink.base import BatchSink, SinkFailed, Verdict, Written
from rmqio.connect.sink.buffer import Item
from rmqio.connect.sink.options import Retry
from rmqio.errors import LocalError


class Delivery:
    """Writes batches to one sink. `clock`, `sleep` and `spread` are for tests."""

    def __init__(
        self,
        sink: BatchSink,
        retry: Retry,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._sink, self._retry = sink, retry
        self._clock, self._sleep, self._spread = clock, sleep, spread
        self.retries = 0
        """Tries after the first one, since this was last set to 0."""

    def open(self) -> None:
        """Opens the sink. Raises what cannot be retried, and `SinkFailed` if retries did not help."""
        tries = _Tries(self)
        while True:
            try:
                return self._sink.open()
            except Exception as error:
                if self._sink.judge(error) is not Verdict.RETRY:
                    raise
                tries.wait(error)

    def write(self, destination: Hashable, items: Sequence[Item]) -> list[tuple[Item, Exception]]:
        """Returns the refused rows with their errors; all others are written.

        Raises what the sink calls a failure of the set-up, and `SinkFailed` if retries did not help.
        """
        refused: list[tuple[Item, Exception]] = []
        left = [list(items)]
        while left:
            batch = left.pop()
            halves = self._write(destination, batch, refused)
            left.extend(reversed(halves))  # in the order of the rows
        return refused

    def _write(
        self, destination: Hashable, batch: list[Item], refused: list[tuple[Item, Exception]]
    ) -> list[list[Item]]:
        """Returns what has to be written in parts instead."""
        tries = _Tries(self)
        while batch:
            try:
                outcome = self._sink.write([item.row for item in batch], destination) or Written()
            except Exception as error:
                verdict = self._sink.judge(error)
                if verdict is Verdict.FAIL:
                    raise
                if verdict is Verdict.RETRY:
                    tries.wait(error)
                    continue
                if len(batch) > 1:
                    middle = len(batch) // 2
                    return [batch[:middle], batch[middle:]]
                refused.append((batch[0], error))
                return []
            _require_positions(self._sink, outcome, len(batch))
            refused.extend((batch[position], error) for position, error in outcome.refused.items())
            if not outcome.again:
                return []
            if len(outcome.again) < len(batch):
                tries = _Tries(self)  # it goes on
            batch = [batch[position] for position in sorted(outcome.again)]
            tries.wait(next(iter(outcome.again.values())))
        return []

    def failed(self, error: Exception, tries: int, seconds: float) -> SinkFailed:
        """Returns the error of a sink that gave up."""
        return SinkFailed(f"{self._sink.name}: gave up after {tries} tries in {seconds:.0f} s: {error}")


class _Tries:
    """The waits between the tries of one batch."""

    def __init__(self, of: Delivery) -> None:
        self._of = of
        self._began: float = of._clock()
        self._tries = 0

    def wait(self, error: Exception) -> None:
        """Waits for the next try. Raises `SinkFailed` if there is none."""
        of, retry = self._of, self._of._retry
        self._tries += 1
        waited = of._clock() - self._began
        pause = min(retry.first_wait_s * 2 ** min(self._tries - 1, 60), retry.max_wait_s) * (0.5 + of._spread() / 2)
        if waited + pause > retry.give_up_after_s:
            raise of.failed(error, self._tries, waited) from error
        of.retries += 1
        of._sleep(pause)


def _require_positions(sink: BatchSink, outcome: Any, count: int) -> None:
    if not isinstance(outcome, Written):
        raise LocalError(f"{sink.name}: write returned {type(outcome).__name__}; it must return None or Written")
    wrong = [each for each in (*outcome.refused, *outcome.again) if not (isinstance(each, int) and 0 <= each < count)]
    if wrong or outcome.refused.keys() & outcome.again.keys():
        raise LocalError(f"{sink.name}: write returned wrong positions of a batch of {count}: {outcome}")
