"""What a micro-batch did not read of what was planned for it, kept in the checkpoint before a later level begins.

A micro-batch that is run again must read the same, or later levels send something else than before. Spark hands the
driver the accumulators of a task when that has ended, waits until they are taken, and only then begins a stage behind
it (DAGScheduler.handleTaskCompletion, PythonAccumulatorV2.merge). So what was cut short is known to the next run of the
micro-batch, however early this one is killed; and where it is not known, nothing behind level 0 has been done.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark.accumulators import AccumulatorParam

from rmqio.runners.spark.streaming.checkpoint import Checkpoint
from rmqio.runners.spark.streaming.micro_batch import Cuts, Parts


class TaskCuts(AccumulatorParam[Any]):
    """Of an accumulator: in tasks a list of `Cuts`, in the driver a `CutKeeper`."""

    def zero(self, value: Any) -> Any:
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        if isinstance(value1, CutKeeper):
            for number, parts in value2:
                value1.add(number, parts)
            return value1
        return [*value1, *value2]


class CutKeeper:
    """Keeps cuts in the checkpoint, and in a file of the driver, which the planning reads. Of one run of a query.

    Thread-safe: Spark's accumulators are taken in a thread of their own.
    """

    def __init__(self, checkpoint: Checkpoint, path: str) -> None:
        self._checkpoint, self._path = checkpoint, path
        self._lock = threading.Lock()
        self._last: Cuts | None = None
        self._is_open = False
        self._failure: Exception | None = None

    def open(self) -> None:
        """Gives the planning those that an earlier run has kept."""
        with self._lock:
            self._is_open = True
            self._last = self._checkpoint.cuts()
            if self._last is not None:
                self._last.write(self._path)

    def close(self) -> None:
        """A task that ends later, of a query that was stopped, changes nothing."""
        with self._lock:
            self._is_open = False

    def add(self, number: int, parts: Parts) -> None:
        """What one task has cut short."""
        with self._lock:
            before: Parts = {} if self._last is None or self._last.number != number else self._last.parts
            sources = {*before, *parts}
            together = {each: {**before.get(each, {}), **parts.get(each, {})} for each in sources}
            try:
                self._keep(Cuts(number, together))
            except Exception as error:  # noqa: BLE001  the thread belongs to Spark; `keep` raises it
                self._failure = error

    def keep(self, cuts: Cuts) -> None:
        """All that a micro-batch has cut short; to be called before Spark commits it."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._keep(cuts)

    def _keep(self, cuts: Cuts) -> None:
        is_known = self._last is not None and self._last.number == cuts.number
        if not self._is_open or cuts == self._last or not (cuts.parts or is_known):
            return
        self._checkpoint.note_cuts(cuts)
        cuts.write(self._path)
        self._last = cuts
