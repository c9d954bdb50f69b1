"""Stores cuts in the checkpoint before a later level begins: the planned parts that a micro-batch did not fully read.

A micro-batch that is run again must read the same records. Otherwise, later levels would send different output. When a
task has ended, Spark passes its accumulators to the driver, waits until the driver has merged them, and only then
begins a stage that depends on the task (DAGScheduler.handleTaskCompletion, PythonAccumulatorV2.merge). The next run of
the micro-batch therefore knows the cuts, no matter how early this run is killed. If it does not know them, nothing
after level 0 has run.
"""

from __future__ import annotations

import threading
from typing import cast

from pyspark.accumulators import AccumulatorParam

from rmqio.runners.spark.streaming.checkpoint import Checkpoint
from rmqio.runners.spark.streaming.micro_batch import Cuts, Parts


class TaskCuts(AccumulatorParam["CutKeeper | list[tuple[int, Parts]]"]):
    """An accumulator whose value is a list of `Cuts`, as (number, parts), in tasks, and a `CutKeeper` in the driver."""

    def zero(self, value: CutKeeper | list[tuple[int, Parts]]) -> list[tuple[int, Parts]]:
        return []

    def addInPlace(
        self, value1: CutKeeper | list[tuple[int, Parts]], value2: CutKeeper | list[tuple[int, Parts]]
    ) -> CutKeeper | list[tuple[int, Parts]]:
        added = cast("list[tuple[int, Parts]]", value2)  # never a keeper: it comes from a task
        if isinstance(value1, CutKeeper):
            for number, parts in added:
                value1.add(number, parts)
            return value1
        return [*value1, *added]


class CutKeeper:
    """Stores the cuts of one run of a query in the checkpoint, and in a file of the driver that the planning reads.

    Thread-safe, because Spark merges accumulators in another thread.
    """

    def __init__(self, checkpoint: Checkpoint, path: str) -> None:
        self._checkpoint, self._path = checkpoint, path
        self._lock = threading.Lock()
        self._last: Cuts | None = None
        self._is_open = False
        self._failure: Exception | None = None

    def open(self) -> None:
        """Gives the planning the cuts that an earlier run has stored."""
        with self._lock:
            self._is_open = True
            self._last = self._checkpoint.cuts()
            if self._last is not None:
                self._last.write(self._path)

    def close(self) -> None:
        """Ignores what is added from now on, such as by a task that ends after its query was stopped."""
        with self._lock:
            self._is_open = False

    def add(self, number: int, parts: Parts) -> None:
        """Adds the parts that one task has cut short."""
        with self._lock:
            before: Parts = {} if self._last is None or self._last.number != number else self._last.parts
            sources = {*before, *parts}
            together = {each: {**before.get(each, {}), **parts.get(each, {})} for each in sources}
            try:
                self._keep(Cuts(number, together))
            except Exception as error:  # noqa: BLE001  the thread belongs to Spark, so `keep` raises it
                self._failure = error

    def keep(self, cuts: Cuts) -> None:
        """Stores all cuts of a micro-batch. Call it before Spark commits the micro-batch."""
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
