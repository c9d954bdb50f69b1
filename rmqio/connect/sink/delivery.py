"""One batch until it is safe: written again while the system is away, halved while rows of it are at fault."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from rmqio.connect.sink.base import BatchSink, PerhapsRefused, SinkFailed, Verdict, Written
from rmqio.connect.sink.buffer import Item
from rmqio.connect.sink.options import Retry
from rmqio.connect.sink.outage import Outage
from rmqio.connect.sink.tries import Tries
from rmqio.errors import LocalError, counted

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
